"""Coalesce values: drop avoidable copies, and let outputs overwrite dead inputs.

Time is that of ``memory.lifetimes``: a step per thunk, one for a loop's test, one for its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .memory import lifetimes, place
from .nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    Thunk,
    WhileThunk,
    accesses,
    children,
)


def coalesce(
    thunks: Sequence[Thunk], sizes: Mapping[int, int], fixed: frozenset[int]
) -> tuple[Thunk, ...]:
    """Rewrite ``a = f(); copy a -> b``  ->  ``b = f()``, where nothing accesses b while a is live.

    Also ``b = f(a)``  ->  ``a = f(a)``, where a dies and f can work in place. Values in ``fixed``
    have a location of their own and are never merged into another value.
    """
    steps = tuple(_steps(thunks))
    ends = {v: life.end for v, life in lifetimes(thunks, sizes).items()}
    merger = _Merger(steps, sizes, fixed, _access_steps(steps), ends)
    dropped: set[int] = set()
    for now, thunk in enumerate(steps):
        if isinstance(thunk, CopyThunk) and merger.merge(thunk.source, thunk.target, now):
            dropped.add(now)
    for now, thunk in enumerate(steps):
        if isinstance(thunk, KernelThunk) and thunk.in_place:
            output = thunk.args[-thunk.outputs]
            _ = any(
                merger.may_overwrite(thunk, i) and merger.merge(thunk.args[i], output, now)
                for i in thunk.in_place
            )
    return _rename(thunks, steps, merger.renamed, dropped)


def copies_left(loop: WhileThunk, state: Sequence[BufferSlice], sizes: Mapping[int, int]) -> int:
    """Return how many copies are left in the body of a loop where its thunks are coalesced.

    Its ``state`` has values before the loop, and keeps its places.
    """
    fixed = frozenset(s.index for s in state if s.memory == "value")
    *_, kept = coalesce([*(CopyThunk(s, s) for s in state), loop], sizes, fixed)
    return sum(isinstance(t, CopyThunk) for part in children(kept) for t in part)


@dataclass
class _Merger:
    """The merges so far, the steps that access each value, and the last step that needs it.

    A value that another is merged into is needed at that step: its last one stays.
    """

    steps: tuple[Thunk | None, ...]
    sizes: Mapping[int, int]
    fixed: frozenset[int]
    touches: dict[int, list[int]]
    ends: dict[int, int]
    renamed: dict[int, int] = field(default_factory=dict)

    def final(self, value: int) -> int:
        """Return the value that a value was merged into, itself if none."""
        while value in self.renamed:
            value = self.renamed[value]
        return value

    def merge(self, a: BufferSlice, b: BufferSlice, now: int) -> bool:
        """Merge the value of ``a``, last needed at step ``now``, into ``b``; True if that is
        possible.
        """
        if a.memory != "value" or b.memory != "value":
            return False
        source, target = self.final(a.index), self.final(b.index)
        if source == target:
            return True
        whole = self.sizes[source] == self.sizes[target] == a.bytes
        if not whole or source in self.fixed or self.ends[source] != now:
            return False
        start = self.touches[source][0]
        for t in self.touches[target]:
            if start <= t < now and not (t == start and self.in_place(t, source, target)):
                return False
        self.renamed[source] = target
        self.touches[target] = sorted({*self.touches[source], *self.touches[target]})
        return True

    def may_overwrite(self, thunk: KernelThunk, argument: int) -> bool:
        """True if the kernel reads this argument's value only through arguments that it may
        overwrite.

        And the output has not already been merged with another argument.
        """
        read, output = self.ends_of(thunk)
        places = {i for i, v in enumerate(read) if v == read[argument]}
        return output not in read and places <= set(thunk.in_place)

    def ends_of(self, thunk: KernelThunk) -> tuple[list[int], int]:
        """Return the values that a kernel reads, and the first that it writes; -1 for others."""
        values = [self.final(s.index) if s.memory == "value" else -1 for s in thunk.args]
        return values[: -thunk.outputs], values[-thunk.outputs]

    def in_place(self, step: int, source: int, target: int) -> bool:
        """True if this step computes ``source`` from ``target`` and can do so in place."""
        thunk = self.steps[step]
        if isinstance(thunk, CopyThunk):
            ends = thunk.source, thunk.target
            return all(s.memory == "value" for s in ends) and (
                [self.final(s.index) for s in ends] == [target, source]
            )
        if not isinstance(thunk, KernelThunk) or not thunk.in_place:
            return False
        read, output = self.ends_of(thunk)
        places = {i for i, v in enumerate(read) if v == target}
        return output == source and places <= set(thunk.in_place)


def _steps(thunks: Sequence[Thunk]) -> Iterator[Thunk | None]:
    """Yield one item per step of ``memory.lifetimes``'s time."""
    for thunk in thunks:
        match thunk:
            case WhileThunk(condition=condition, body=body):
                yield from _steps(condition)
                yield thunk
                yield from _steps(body)
                yield None
            case ConditionalThunk(branches=branches):
                yield thunk
                for branch in branches:
                    yield from _steps(branch)
                yield None
            case _:
                yield thunk


def _access_steps(steps: Sequence[Thunk | None]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for now, thunk in enumerate(steps):
        if thunk is not None:
            for s in {s for part in accesses(thunk) for s in part if s.memory == "value"}:
                found[s.index].append(now)
    return found


def _rename(
    thunks: Sequence[Thunk],
    steps: Sequence[Thunk | None],
    renamed: Mapping[int, int],
    dropped: set[int],
) -> tuple[Thunk, ...]:
    def final(value: int) -> int:
        while value in renamed:
            value = renamed[value]
        return value

    where = {v: BufferSlice("value", 0, 0, final(v)) for v in _access_steps(steps)}
    number = iter(range(len(steps)))

    def is_dropped(step: int, thunk: Thunk) -> bool:
        if step in dropped or not isinstance(thunk, CopyThunk):
            return step in dropped
        a, b = thunk.source, thunk.target
        return a.memory == b.memory == "value" and final(a.index) == final(b.index)

    def keep(part: Sequence[Thunk]) -> tuple[Thunk, ...]:
        kept: list[Thunk] = []
        for thunk in part:
            match thunk:
                case WhileThunk(condition=condition, body=body):
                    first = keep(condition)
                    next(number)
                    kept.append(thunk._replace(condition=first, body=keep(body)))
                    next(number)
                case ConditionalThunk(branches=branches):
                    next(number)
                    kept.append(thunk._replace(branches=tuple(map(keep, branches))))
                    next(number)
                case _:
                    if not is_dropped(next(number), thunk):
                        kept.append(thunk)
        return tuple(kept)

    return place(keep(thunks), where)
