"""Compilations on demand: told while they take long, and why each was needed."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import Any, Protocol

from ..ir.errors import ArgumentError

LONG = 2.0
"""Seconds after which a call that compiles says so."""


@contextmanager
def told_if_long(what: str) -> Iterator[None]:
    """Say once on stderr what is being done, if it takes longer than ``LONG``."""
    timer = Timer(LONG, lambda: print(f"nestwright: {what}", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass(frozen=True, slots=True)
class CallSignature:
    """The arguments of a call as a compilation depends on them: their structure and types.

    ``structure`` is None for flat arguments. ``kinds`` has a pair for each leaf: its shape, and its
    element type or, for what is no array, its Python type.
    """

    structure: Hashable | None
    kinds: tuple[Any, ...]

    def __str__(self) -> str:
        text = ", ".join(_kind(k) for k in self.kinds[:8])
        return f"({text}{', ..' if len(self.kinds) > 8 else ''})"


@dataclass(frozen=True, slots=True)
class Compilation:
    """An executable that was compiled: for what, and in how many seconds."""

    signature: CallSignature
    seconds: float


@dataclass(frozen=True, slots=True)
class Recompilation:
    """A compilation, and how its key differs from the nearest earlier one (nothing: the first).

    ``changes`` are triples: the part of the key, what it was, and what it is.
    """

    number: int
    seconds: float
    changes: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        told = "; ".join(f"{part}: {old} -> {new}" for part, old, new in self.changes)
        return f"{self.number}. {told or 'first call'} ({self.seconds:.2f} s)"


class Compiling(Protocol):
    """A function that compiles for new arguments: ``nw.jit(f)``, a ``Specialized``."""

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """All compilations, in order."""


def explain_recompile(function: Compiling) -> tuple[Recompilation, ...]:
    """Return why a function of ``nw.jit`` or a ``Specialized`` was compiled, each time.

    ``print(*nw.explain_recompile(f), sep="\\n")`` shows a line for each, as in ``2. argument 0:
    f32[3,4] -> f32[5,4] (0.21 s)``. ``ArgumentError`` for what does not compile by itself.
    """
    done = getattr(function, "compilations", None)
    if not isinstance(done, tuple):
        raise ArgumentError(
            f"a {type(function).__name__} is compiled once, or not at all",
            hint="give what nw.jit, nw.Specialized or nw.build(..., shapes=...) returned",
        )
    return tuple(
        Recompilation(n + 1, c.seconds, _changes(c.signature, [d.signature for d in done[:n]]))
        for n, c in enumerate(done)
    )


def _changes(
    new: CallSignature, earlier: Sequence[CallSignature]
) -> tuple[tuple[str, str, str], ...]:
    found = [tuple(_differences(old, new)) for old in earlier]
    return min(reversed(found), key=len, default=())


def _differences(old: CallSignature, new: CallSignature) -> Iterator[tuple[str, str, str]]:
    if old.structure != new.structure:
        yield "structure and static values", _structure(old), _structure(new)
    if len(old.kinds) != len(new.kinds):
        yield "number of arrays", str(len(old.kinds)), str(len(new.kinds))
        return
    for n, (a, b) in enumerate(zip(old.kinds, new.kinds, strict=True)):
        if a != b:
            yield f"argument {n}", _kind(a), _kind(b)


def _structure(signature: CallSignature) -> str:
    return "flat" if signature.structure is None else str(signature.structure)


def _kind(kind: Any) -> str:
    shape, dtype = kind
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    return f"{name}[{','.join(map(str, shape))}]"
