"""An executable as a small piece of HTML, for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...ir.html import facts, table
from ..plan.bundle import Bundle
from ..plan.facts import facts_of, from_json
from ..plan.nodes import KernelThunk, LibraryThunk, WhileThunk, walk
from ..plan.notes import FACTS
from ..plan.signature import ArraySpec

SHOWN = 12  # arrays of a side


def page(
    bundle: Bundle, inputs: Sequence[str], outputs: Sequence[str], memory: dict[str, int]
) -> str:
    """Return a bundle as HTML: its inputs and outputs by name, target, groups, and memory."""
    plan = bundle.plan
    rows = [("input", *row) for row in _arrays(plan.params, inputs)]
    rows += [("output", *row) for row in _arrays(plan.results, outputs)]
    found = {
        "model": bundle.name,
        "target": bundle.target.spec,
        "groups": _groups(bundle),
        "memory": ", ".join(f"{_name(k)} {_size(n)}" for k, n in memory.items() if n),
    }
    return facts(found) + table(("", "name", "type"), rows)


def _arrays(specs: Sequence[ArraySpec], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return names and types, the last row for what is left out."""
    told = names if len(names) == len(specs) else [s.name for s in specs]
    rows = [(name, str(spec)) for name, spec in zip(told, specs, strict=True)]
    if len(rows) <= SHOWN:
        return rows
    return [*rows[:SHOWN], (f"{len(rows) - SHOWN} more", "")]


def _groups(bundle: Bundle) -> str:
    """Return how many kernels of each kind, library calls and loops a plan has."""
    known = from_json(bundle.notes.get(FACTS, ""))
    counts: Counter[str] = Counter()
    for thunk in walk(bundle.plan.thunks):
        match thunk:
            case KernelThunk():
                counts[facts_of(thunk, known).group or "kernel"] += 1
            case LibraryThunk():
                counts["library call"] += 1
            case WhileThunk():
                counts["loop"] += 1
    return ", ".join(f"{n} {kind}" for kind, n in counts.most_common()) or "none"


def _name(key: str) -> str:
    return key.removesuffix("_size_in_bytes").replace("_", " ")


def _size(count: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
