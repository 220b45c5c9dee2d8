"""A plan's thunks as the host of a GPU runs them: straight-line segments, and decisions between
them.

A segment needs no decision, so it can be recorded once and replayed. A decision is a value that the
device computes and the host reads. Where a segment ends with one, the value is copied to the host
at the end of the segment itself; a loop's next test belongs to the segment of its body. So there is
one wait per decision, and no other. A loop with a known trip count needs no decision. A library
call is computed by the host, so it ends the segment before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...plan.nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    LibraryThunk,
    Thunk,
    WhileThunk,
    children,
)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Kernels and copies in order; at the end ``decision``, if there is one, is read."""

    thunks: tuple[KernelThunk | CopyThunk, ...]
    decision: BufferSlice | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """Run ``body`` while the pred that was read last is true; ``body`` reads it anew."""

    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """Run ``body`` ``times`` times, without a decision."""

    body: tuple[Step, ...]
    times: int


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Run the branch selected by the value that was read last: a pred if ``pred``, else an s32."""

    branches: tuple[tuple[Step, ...], ...]
    pred: bool


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Call a host function: its operands are copied to the host, its results back."""

    thunk: LibraryThunk


INLINED = 64  # kernels and copies of a counted loop that become part of the run around it

Step: TypeAlias = Segment | Call | Loop | Repeat | Branch


def steps(thunks: Sequence[Thunk], decision: BufferSlice | None = None) -> tuple[Step, ...]:
    """Return the steps of thunks; the last one reads ``decision`` if there is one."""
    found: list[Step] = []
    straight: list[Thunk] = []
    for thunk in thunks:
        match thunk:
            case WhileThunk(body=body, trips=int(trips)):
                if len(body) * trips <= INLINED and not any(map(_breaks, body)):
                    straight += body * trips
                    continue
                found += steps(straight)
                found.append(Repeat(steps(body), trips))
                straight = []
            case WhileThunk(condition=condition, predicate=predicate, body=body):
                found += steps((*straight, *condition), predicate)
                found.append(Loop(steps((*body, *condition), predicate)))
                straight = []
            case ConditionalThunk(selector=selector, branches=branches):
                found += steps(straight, selector)
                inner = tuple(steps(branch) for branch in branches)
                found.append(Branch(inner, selector.bytes == 1))
                straight = []
            case LibraryThunk():
                found += steps(straight)
                found.append(Call(thunk))
                straight = []
            case _:
                straight.append(thunk)
    if straight or decision is not None:
        plain = tuple(t for t in straight if isinstance(t, KernelThunk | CopyThunk))
        found.append(Segment(plain, decision))
    return tuple(found)


def _breaks(thunk: Thunk) -> bool:
    """True if this thunk cannot be part of a segment."""
    return bool(children(thunk)) or isinstance(thunk, LibraryThunk)


def chosen(branches: int, pred: bool, selector: int) -> int:
    """Return the branch that a selector selects: the first for a true pred; the last if out of
    range.
    """
    if pred:
        return 0 if selector else branches - 1
    return selector if 0 <= selector < branches else branches - 1
