"""Launches of one function that need nothing of each other: which may run side by side.

The parts of a concatenation write different boxes of one buffer; other launches of a group have no
buffer in common that one of them writes. Boxes are compared while buffers have all their
dimensions: in a flat buffer the parts along an inner dimension are interleaved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....ir.loop.affine import Interval, bounds
from ....ir.loop.nodes import (
    Alloc,
    AllReduce,
    Block,
    Buffer,
    Func,
    Region,
    Scope,
    Seq,
    Stmt,
    Var,
)
from ....ir.loop.notes import BESIDE
from ....ir.loop.visit import own_reads, own_writes, walk


@dataclass(frozen=True, slots=True)
class Touched:
    """A box of a buffer, an interval of each dimension, that a launch reads or writes."""

    box: tuple[Interval, ...]
    write: bool

    def meets(self, other: Touched) -> bool:
        """True if both are of one element, and one of them writes it."""
        pairs = zip(self.box, other.box, strict=True)
        overlap = all(a[0] <= b[1] and b[0] <= a[1] for a, b in pairs)
        return overlap and (self.write or other.write)


@dataclass(frozen=True, slots=True)
class Footprint:
    """The boxes of buffers that the blocks of a launch touch; what else it touches, in ``others``.

    Only counters and what threads keep are touched outside of blocks.
    """

    boxes: Mapping[Buffer, list[Touched]]
    others: frozenset[Buffer]


def mark_independent(func: Func) -> Func:
    """Return the function with a note of its launches that may run beside an earlier one."""
    prints = [_footprint(s) for s in _launches(func.body)]
    firsts: list[int] = []
    for n, mine in enumerate(prints):
        first = firsts[-1] if firsts else 0
        free = all(_apart(mine, other) for other in prints[first:n])
        firsts.append(first if free else n)
    return BESIDE.put(func, tuple(firsts)) if len({*firsts}) < len(firsts) else func


def _launches(s: Stmt) -> Iterator[Stmt]:
    """Yield the launches of a function whose threads are bound, in order."""
    match s:
        case Alloc(buffer=b, body=body) if b.scope is Scope.GLOBAL:
            yield from _launches(body)
        case Seq(stmts=stmts):
            for x in stmts:
                yield from _launches(x)
        case _:
            yield s


def _footprint(launch: Stmt) -> Footprint | None:
    """Return what a launch touches; None if threads exchange values, which asks for all of them."""
    found: dict[Buffer, list[Touched]] = defaultdict(list)
    seen: set[Buffer] = set()
    for x in walk(launch):
        if isinstance(x, AllReduce):
            return None
        seen.update(own_reads(x), own_writes(x))
        if isinstance(x, Block):
            inside: dict[Var, Interval] = {a.var: (0, max(a.extent - 1, 0)) for a in x.axes}
            for regions, write in ((x.reads, False), (x.writes, True)):
                for r in regions:
                    found[r.buffer].append(Touched(_box(r, inside), write))
    return Footprint(found, frozenset(seen - found.keys()))


def _box(r: Region, inside: Mapping[Var, Interval]) -> tuple[Interval, ...]:
    low = (bounds(x.start, inside)[0] for x in r.ranges)
    high = (bounds(x.start, inside)[1] + bounds(x.extent, inside)[1] - 1 for x in r.ranges)
    return tuple(zip(low, high, strict=True))


def _apart(a: Footprint | None, b: Footprint | None) -> bool:
    if a is None or b is None or a.others & (b.others | b.boxes.keys()):
        return False
    if b.others & a.boxes.keys():
        return False
    common = a.boxes.keys() & b.boxes.keys()
    both = ((x, y) for buffer in common for x in a.boxes[buffer] for y in b.boxes[buffer])
    return not any(x.meets(y) for x, y in both)
