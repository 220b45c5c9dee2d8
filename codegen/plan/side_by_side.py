"""Kernels that need nothing of each other become one, where launches cost time.

A kernel moves up to an earlier one if nothing from there on makes what it reads, or accesses what
it writes. Values have no places yet, so the arena keeps apart what is then live at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .facts import FactList
from .nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    Thunk,
    WhileThunk,
    accesses,
)

FAR = 32
"""Thunks over which a kernel may move."""

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
                found = _beside(first, waiting, joints)
                waiting = [t for t in waiting if not any(t is x for x in found[1:])]
                done += _joined(found, joints, facts, value) if len(found) > 1 else found
            case WhileThunk(condition=condition, body=body):
                inner = side_by_side(body, joints, facts, value)
                before = side_by_side(condition, joints, facts, value)
                done.append(replace(first, condition=tuple(before), body=tuple(inner)))
            case ConditionalThunk(branches=branches):
                parts = (tuple(side_by_side(b, joints, facts, value)) for b in branches)
                done.append(replace(first, branches=tuple(parts)))
            case _:
                done.append(first)
    return done


def _may_join(thunk: Thunk, joints: Joints) -> bool:
    if not isinstance(thunk, KernelThunk) or thunk.task not in joints.workspace:
        return False
    return not thunk.in_place or thunk.args[-1].bytes <= KEPT_IN_PLACE


def _beside(first: KernelThunk, after: Sequence[Thunk], joints: Joints) -> tuple[KernelThunk, ...]:
    """Return a kernel and those of later ones that may run beside it, in order."""
    found: tuple[KernelThunk, ...] = (first,)
    passed: list[Thunk] = []
    for thunk in after[:FAR]:
        if not isinstance(thunk, KernelThunk | CopyThunk):
            break
        if isinstance(thunk, KernelThunk) and _fits(thunk, found, passed, joints):
            found = (*found, thunk)
        else:
            passed.append(thunk)
    return found


def _fits(
    thunk: KernelThunk, found: Sequence[KernelThunk], passed: Sequence[Thunk], joints: Joints
) -> bool:
    if not _may_join(thunk, joints) or any(_meet(thunk, x) for x in (*found, *passed)):
        return False
    return joints.fits(tuple(t.task for t in (*found, thunk)))


def _meet(later: Thunk, earlier: Thunk) -> bool:
    """True if one of two thunks writes what the other one accesses."""
    reads, writes = accesses(later)
    read, written = accesses(earlier)
    return overlaps(writes, (*read, *written)) or overlaps(reads, written)


def overlaps(some: Sequence[BufferSlice], others: Sequence[BufferSlice]) -> bool:
    """True if any two slices share a byte; arguments are never memory of results."""
    return any(
        a.memory == b.memory
        and a.index == b.index
        and a.offset < b.offset + b.bytes
        and b.offset < a.offset + a.bytes
        for a in some
        for b in others
    )


def _joined(
    parts: Sequence[KernelThunk],
    joints: Joints,
    facts: FactList,
    value: Callable[[int, str], BufferSlice],
) -> Sequence[KernelThunk]:
    joint = joints.join(tuple(t.task for t in parts))
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
