"""Horizontal fusion: kernels that are independent become one, where launches cost time.

A kernel moves up to an earlier one if nothing from there on, branches included, makes what it
reads, or accesses what it writes; a copy that it starts from, as of a cache that it updates, moves
with it. Values have no places yet, so the arena keeps apart what is then live at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .facts import FactList
from .nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    Thunk,
    WhileThunk,
    accesses,
    walk,
)

FAR = 32
"""Thunks over which a kernel may move."""

LARGE = 1 << 26
"""Bytes of results of a kernel from which a launch is nothing beside the rest of its time."""

KEPT_IN_PLACE = 1 << 20
"""Bytes of a result up to which it is given up to write it over an argument."""


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel made of others: it takes their inputs, in order, their results, a workspace."""

    symbol: str
    task: str
    workspace: int


@dataclass(frozen=True, slots=True)
class HorizontalFusion:
    """The kernels that a target may run side by side, by key.

    ``workspace`` has the bytes of each; ``fits`` says whether kernels may be one, and ``join``
    makes it, or returns None if that is more than the target can run.
    """

    workspace: Mapping[str, int]
    fits: Callable[[tuple[str, ...]], bool]
    join: Callable[[tuple[str, ...]], FusedKernel | None]


def fuse_kernels(
    thunks: Sequence[Thunk],
    fusion: HorizontalFusion,
    facts: FactList,
    value: Callable[[int, str], BufferSlice],
) -> list[Thunk]:
    """Return the thunks with kernels joined; ``value`` makes a new value of so many bytes."""
    waiting = list(thunks)
    done: list[Thunk] = []
    while waiting:
        first = waiting.pop(0)
        match first:
            case KernelThunk() if _may_fuse(first, fusion):
                row = _abreast(first, waiting, fusion)
                moved = (*row.ahead, *row.parts[1:])
                waiting = [t for t in waiting if not any(t is x for x in moved)]
                done += [*row.ahead, *_joined(row.parts, fusion, facts, value)]
            case WhileThunk(condition=condition, body=body):
                inner = fuse_kernels(body, fusion, facts, value)
                before = fuse_kernels(condition, fusion, facts, value)
                done.append(first._replace(condition=tuple(before), body=tuple(inner)))
            case ConditionalThunk(branches=branches):
                parts = (tuple(fuse_kernels(b, fusion, facts, value)) for b in branches)
                done.append(first._replace(branches=tuple(parts)))
            case _:
                done.append(first)
    return done


def _may_fuse(thunk: Thunk, fusion: HorizontalFusion) -> bool:
    if not isinstance(thunk, KernelThunk) or thunk.task not in fusion.workspace:
        return False
    if sum(s.bytes for s in accesses(thunk)[1]) >= LARGE:
        return False
    return not thunk.in_place or thunk.args[-thunk.outputs].bytes <= KEPT_IN_PLACE


@dataclass(slots=True)
class _Abreast:
    """A kernel, those of later ones that may run beside it, and what they move over.

    Copies that only later parts need go ``ahead`` of all; those in ``copies`` might.
    """

    parts: list[KernelThunk]
    ahead: list[CopyThunk] = field(default_factory=list)
    copies: list[CopyThunk] = field(default_factory=list)
    passed: list[Thunk] = field(default_factory=list)

    def take(self, thunk: Thunk, fusion: HorizontalFusion) -> None:
        """Make a thunk a part, or pass it."""
        free = not any(_meet(thunk, x) for x in (*self.parts, *self.passed))
        before = [c for c in self.copies if _meet(thunk, c)]
        if isinstance(thunk, CopyThunk):
            (self.copies if free and not before else self.passed).append(thunk)
        elif isinstance(thunk, KernelThunk) and free and self.joins(thunk, fusion):
            self.parts.append(thunk)
            self.ahead += before
            self.copies = [c for c in self.copies if not any(c is x for x in before)]
        else:
            self.passed.append(thunk)

    def joins(self, thunk: KernelThunk, fusion: HorizontalFusion) -> bool:
        """True if a kernel fits beside the parts."""
        fits = fusion.fits
        return _may_fuse(thunk, fusion) and fits(tuple(t.task for t in (*self.parts, thunk)))


def _abreast(first: KernelThunk, after: Sequence[Thunk], fusion: HorizontalFusion) -> _Abreast:
    """Return a kernel with those of later ones that may run beside it."""
    row = _Abreast([first])
    for thunk in after[:FAR]:
        if not isinstance(thunk, KernelThunk | CopyThunk | ConditionalThunk):
            break
        row.take(thunk, fusion)
    return row


def _meet(later: Thunk, earlier: Thunk) -> bool:
    """True if one of two thunks writes what the other one accesses."""
    reads, writes = _accesses(later)
    read, written = _accesses(earlier)
    return overlaps(writes, (*read, *written)) or overlaps(reads, written)


def _accesses(thunk: Thunk) -> tuple[list[BufferSlice], list[BufferSlice]]:
    """Return the slices that a thunk, or one inside it, reads and writes."""
    read: list[BufferSlice] = []
    written: list[BufferSlice] = []
    for own in map(accesses, walk((thunk,))):
        read += own[0]
        written += own[1]
    return read, written


def overlaps(some: Sequence[BufferSlice], others: Sequence[BufferSlice]) -> bool:
    """True if any two slices share a byte; arguments are never memory of results."""
    return any(
        a.memory == b.memory
        and a.index == b.index
        and a.offset < b.offset + b.reach
        and b.offset < a.offset + a.reach
        for a in some
        for b in others
    )


def _joined(
    parts: Sequence[KernelThunk],
    fusion: HorizontalFusion,
    facts: FactList,
    value: Callable[[int, str], BufferSlice],
) -> Sequence[KernelThunk]:
    fused = fusion.join(tuple(t.task for t in parts)) if len(parts) > 1 else None
    if fused is None:
        return parts
    read: list[BufferSlice] = []
    written: list[BufferSlice] = []
    for t in parts:
        inputs = len(t.args) - t.outputs
        read += t.args[:inputs]
        written += t.args[inputs : len(t.args) - bool(fusion.workspace[t.task])]
    name = ", ".join(t.name for t in parts)
    if fused.workspace:
        written.append(value(fused.workspace, name))
    number = facts.together([t.facts for t in parts])
    args = (*read, *written)
    return [KernelThunk(fused.symbol, args, len(written), fused.task, name, (), number)]
