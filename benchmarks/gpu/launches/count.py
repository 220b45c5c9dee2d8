"""Counts the launches of a built model, and what its kernels are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, TypeAlias

from nestwright.codegen.plan.bundle import Bundle
from nestwright.codegen.plan.code.device import DeviceCode
from nestwright.codegen.plan.facts import facts_of, from_json
from nestwright.codegen.plan.nodes import (
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    LibraryThunk,
    Thunk,
    WhileThunk,
    children,
)
from nestwright.codegen.plan.notes import FACTS
from nestwright.codegen.plan.updates import updated_in_place
from nestwright.codegen.targets.cuda import sass

from ..disassembly import KernelListing, kernels

Run: TypeAlias = tuple[Thunk, int]
SMALL = 32  # blocks


@dataclass(frozen=True, slots=True)
class KernelCount:
    """A kernel, and how often a run launches it; ``instructions`` are those of its whole code."""

    name: str
    launches: int
    blocks: int
    threads: int
    shared: int
    registers: int
    spills: int
    instructions: int


@dataclass(frozen=True, slots=True)
class ModelCount:
    """What one run does. A loop whose trips are not known counts once, and so does each branch;
    what only runs where a fast kernel was wrong does not count.

    ``left`` are the copies that remain where a caller passes what is updated as argument and
    result. ``reads`` are values that the host waits for.
    """

    copies: int
    left: int
    reads: int
    kernels: tuple[KernelCount, ...]

    @property
    def launches(self) -> int:
        """Launches of all kernels."""
        return sum(k.launches for k in self.kernels)

    @property
    def small(self) -> int:
        """Launches of few blocks."""
        return sum(k.launches for k in self.kernels if k.blocks < SMALL)

    @property
    def spills(self) -> int:
        """Bytes of spills of all kernels, a thread."""
        return sum(k.spills for k in self.kernels)

    @property
    def instructions(self) -> int:
        """Instructions of the code of all launches."""
        return sum(k.launches * k.instructions for k in self.kernels)


def count(bundle: Bundle) -> ModelCount:
    """Return the counts of a model that is built for a GPU."""
    facts = from_json(bundle.notes.get(FACTS, ""))

    def runs(thunks: Sequence[Thunk], times: int) -> Iterator[Run]:
        for thunk in thunks:
            yield thunk, times
            known = thunk.trips if isinstance(thunk, WhileThunk) else None
            parts = children(thunk)[1:] if known is not None else children(thunk)
            for part in parts:
                if not any(facts_of(t, facts).fallback for t in part):
                    yield from runs(part, times if known is None else times * known)

    found = list(runs(bundle.plan.thunks, 1))
    symbols = Counter[tuple[str, str]]()
    for thunk, times in found:
        if isinstance(thunk, KernelThunk):
            symbols[thunk.symbol, thunk.name] += times
    copies = [(t, times) for t, times in found if isinstance(t, CopyThunk) and t.source.bytes]
    updated = updated_in_place(bundle.plan)
    saved = [(t, n) for t, n in copies if (t.source.index, t.target.index) in updated and _ends(t)]
    return ModelCount(
        sum(n for _, n in copies),
        sum(n for _, n in copies) - sum(n for _, n in saved),
        sum(n for t, n in found if _waits(t)),
        tuple(_kernels(bundle, symbols)),
    )


def _ends(t: CopyThunk) -> bool:
    return (t.source.memory, t.target.memory) == ("param", "result")


def _waits(t: Thunk) -> bool:
    """True if the host reads something to go on."""
    known = isinstance(t, WhileThunk) and t.trips is not None
    return isinstance(t, WhileThunk | ConditionalThunk | LibraryThunk) and not known


def _kernels(bundle: Bundle, symbols: Mapping[tuple[str, str], int]) -> Iterator[KernelCount]:
    """Yield the kernels in the order of the plan; launches of one kernel are one row."""
    rows: dict[str, int] = Counter()
    names: dict[str, str] = {}
    for (symbol, name), times in symbols.items():
        rows[symbol] += times
        names.setdefault(symbol, name)
    for symbol, times in rows.items():
        code = bundle.kernels[symbol]
        assert isinstance(code, DeviceCode)
        listed = _listed(code.ptx, bundle.target.cpu)
        for n, launch in enumerate(code.launches):
            text = listed.get(launch.symbol)
            yield KernelCount(
                names[symbol],
                times,
                prod(launch.grid),
                launch.threads,
                launch.shared_bytes,
                code.registers[n] if code.registers else 0,
                code.spills[n] if code.spills else 0,
                text.instructions if text else 0,
            )


@cache
def _listed(ptx: str, arch: str) -> Mapping[str, KernelListing]:
    return {k.name: k for k in kernels(sass.disassemble(ptx, arch))}


def to_json(found: ModelCount) -> dict[str, Any]:
    """Return the counts as JSON values, a list for each kernel in the order of its fields."""
    return {
        "launches": found.launches,
        "small": found.small,
        "copies": found.copies,
        "left": found.left,
        "reads": found.reads,
        "spills": found.spills,
        "instructions": found.instructions,
        "kernels": [[getattr(k, f) for f in KernelCount.__slots__] for k in found.kernels],
    }
