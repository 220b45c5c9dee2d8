"""Arena allocation: lifetimes over the order of the thunks, then offsets.

Time is the number of a step in the flat order of all thunks, control flow included. Two values that
are live at the same step never overlap. A value that a loop's thunks access, but that exists before
the loop, lives until the loop ends, since the next iteration may read it again.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.arrays import alignment_of
from .nodes import (
    ALIGNMENT,
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    LibraryThunk,
    Thunk,
    WhileThunk,
    accesses,
)

GPU_ALIGNMENT = 256  # the same of a GPU: whole lines of its cache, as its driver aligns memory


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The steps, both included, between which a value must be kept."""

    start: int
    end: int
    bytes: int

    def meets(self, other: Lifetime) -> bool:
        """True if both are live at some step."""
        return self.start <= other.end and other.start <= self.end


def lifetimes(thunks: Sequence[Thunk], sizes: Mapping[int, int]) -> dict[int, Lifetime]:
    """Return the lifetimes of the values that the thunks access as ``value`` slices.

    ``sizes`` gives a value's bytes by its number.
    """
    spans: dict[int, list[int]] = {}
    _scan(thunks, 0, spans)
    return {v: Lifetime(start, end, sizes[v]) for v, (start, end) in spans.items()}


def _scan(thunks: Sequence[Thunk], now: int, spans: dict[int, list[int]]) -> int:
    """Record the first and last step that accesses each value; return the next free step."""
    for thunk in thunks:
        match thunk:
            case WhileThunk(condition=condition, predicate=predicate, body=body):
                before, begin = set(spans), now
                now = _scan(condition, now, spans)
                _touch((predicate,), now, spans)
                now = _scan(body, now + 1, spans)
                for value in before:
                    if spans[value][1] >= begin:
                        spans[value][1] = now
                now += 1
            case ConditionalThunk(selector=selector, branches=branches):
                before, begin = set(spans), now
                _touch((selector,), now, spans)
                now += 1
                for branch in branches:
                    now = _scan(branch, now, spans)
                for value in before:
                    if spans[value][1] >= begin:
                        spans[value][1] = now
                now += 1
            case KernelThunk() | CopyThunk() | LibraryThunk():
                read, written = accesses(thunk)
                _touch((*read, *written), now, spans)
                now += 1
    return now


def _touch(slices: Sequence[BufferSlice], now: int, spans: dict[int, list[int]]) -> None:
    for s in slices:
        if s.memory == "value":
            spans.setdefault(s.index, [now, now])[1] = now


def assign(lives: Mapping[int, Lifetime], alignment: int = ALIGNMENT) -> tuple[dict[int, int], int]:
    """Return an offset for every value, a multiple of ``alignment``, and the arena's size.

    Large values begin pages, as ``ir.arrays`` says why.
    Largest first, each in the smallest gap left between the values live at the same time: the
    greedy order of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
    (2020).
    """
    placed: list[tuple[int, int, Lifetime]] = []  # (offset, padded bytes, lifetime), by offset
    offsets: dict[int, int] = {}
    total = 0
    order = sorted(lives, key=lambda v: (-lives[v].bytes, lives[v].start, v))
    for value in order:
        life = lives[value]
        room = -(-life.bytes // alignment) * alignment
        step = max(alignment, alignment_of(life.bytes))
        offset = _smallest_gap(life, room, step, placed)
        offsets[value] = offset
        if room:
            insort(placed, (offset, room, life), key=lambda p: p[:2])
        total = max(total, offset + room)
    return offsets, total


def _smallest_gap(
    life: Lifetime, room: int, step: int, placed: Sequence[tuple[int, int, Lifetime]]
) -> int:
    best: tuple[int, int] | None = None
    end = 0
    for offset, size, other in placed:
        if not life.meets(other):
            continue
        gap = offset - end
        if gap >= room and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, -(-(offset + size) // step) * step)
    return end if best is None else best[1]


def place(thunks: Sequence[Thunk], where: Mapping[int, BufferSlice]) -> tuple[Thunk, ...]:
    """Replace every ``value`` slice in the thunks by its location in ``where``."""

    def at(s: BufferSlice) -> BufferSlice:
        if s.start is not None:
            start = s.start._replace(place=at(s.start.place))
            return replace(at(replace(s, start=None)), start=start)
        if s.memory != "value":
            return s
        home = where[s.index]
        return replace(home, offset=home.offset + s.offset, bytes=s.bytes)

    def one(thunk: Thunk) -> Thunk:
        match thunk:
            case KernelThunk(args=args):
                return thunk._replace(args=tuple(map(at, args)))
            case CopyThunk(source=source, target=target):
                return thunk._replace(source=at(source), target=at(target))
            case LibraryThunk(operands=operands, results=results):
                read, written = tuple(map(at, operands)), tuple(map(at, results))
                return thunk._replace(operands=read, results=written)
            case WhileThunk(condition=condition, predicate=predicate, body=body):
                inner = tuple(map(one, condition)), tuple(map(one, body))
                return thunk._replace(condition=inner[0], predicate=at(predicate), body=inner[1])
            case ConditionalThunk(selector=selector, branches=branches):
                new = tuple(tuple(map(one, branch)) for branch in branches)
                return thunk._replace(selector=at(selector), branches=new)

    return tuple(map(one, thunks))
