"""Kernels that need nothing of each other become one, where launches cost time.

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
class Joint:
    """A kernel made of others: it takes their inputs, in order, their results, a workspace."""

    symbol: str
    task: str
    workspace: int


@dataclass(frozen=True, slots=True)
class Joints:
    """The kernels that a target may run side by side, by key.

    ``workspace`` has the bytes of each; ``fits`` says whether kernels may be one, and ``join``
    makes it, or returns None if that is more than the target can run.
    """

    workspace: Mapping[str, int]
    fits: Callable[[tuple[str, ...]], bool]
    join: Callable[[tuple[str, ...]], Joint | None]


def side_by_side(
    thunks: Sequence[Thunk],
    joints: Joints,
    facts: FactList,
    value: Callable[[int, str], BufferSlice],
) -> list[Thunk]:
    """Return the thunks with kernels joined; ``value`` makes a new value of so many bytes."""
    waiting = list(thunks)
    done: list[Thunk] = []
    while waiting:
        first = waiting.pop(0)
        match first:
            case KernelThunk() if _may_join(first, joints):
                row = _abreast(first, waiting, joints)
                moved = (*row.ahead, *row.parts[1:])
                waiting = [t for t in waiting if not any(t is x for x in moved)]
                done += [*row.ahead, *_joined(row.parts, joints, facts, value)]
            case WhileThunk(condition=condition, body=body):
                inner = side_by_side(body, joints, facts, value)
                before = side_by_side(condition, joints, facts, value)
                done.append(first._replace(condition=tuple(before), body=tuple(inner)))
            case ConditionalThunk(branches=branches):
                parts = (tuple(side_by_side(b, joints, facts, value)) for b in branches)
                done.append(first._replace(branches=tuple(parts)))
            case _:
                done.append(first)
    return done


def _may_join(thunk: Thunk, joints: Joints) -> bool:
    if not isinstance(thunk, KernelThunk) or thunk.task not in joints.workspace:
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

    def take(self, thunk: Thunk, joints: Joints) -> None:
        """Make a thunk a part, or pass it."""
        free = not any(_meet(thunk, x) for x in (*self.parts, *self.passed))
        before = [c for c in self.copies if _meet(thunk, c)]
        if isinstance(thunk, CopyThunk):
            (self.copies if free and not before else self.passed).append(thunk)
        elif isinstance(thunk, KernelThunk) and free and self.joins(thunk, joints):
            self.parts.append(thunk)
            self.ahead += before
            self.copies = [c for c in self.copies if not any(c is x for x in before)]
        else:
            self.passed.append(thunk)

    def joins(self, thunk: KernelThunk, joints: Joints) -> bool:
        """True if a kernel fits beside the parts."""
        fits = joints.fits
        return _may_join(thunk, joints) and fits(tuple(t.task for t in (*self.parts, thunk)))


def _abreast(first: KernelThunk, after: Sequence[Thunk], joints: Joints) -> _Abreast:
    """Return a kernel with those of later ones that may run beside it."""
    row = _Abreast([first])
    for thunk in after[:FAR]:
        if not isinstance(thunk, KernelThunk | CopyThunk | ConditionalThunk):
            break
        row.take(thunk, joints)
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
    joints: Joints,
    facts: FactList,
    value: Callable[[int, str], BufferSlice],
) -> Sequence[KernelThunk]:
    joint = joints.join(tuple(t.task for t in parts)) if len(parts) > 1 else None
    if joint is None:
        return parts
    read: list[BufferSlice] = []
    written: list[BufferSlice] = []
    for t in parts:
        inputs = len(t.args) - t.outputs
        read += t.args[:inputs]
        written += t.args[inputs : len(t.args) - bool(joints.workspace[t.task])]
    name = ", ".join(t.name for t in parts)
    if joint.workspace:
        written.append(value(joint.workspace, name))
    number = facts.together([t.facts for t in parts])
    args = (*read, *written)
    return [KernelThunk(joint.symbol, args, len(written), joint.task, name, (), number)]
