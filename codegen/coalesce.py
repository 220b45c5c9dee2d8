"""Copies that need not be: a value is made where it would be copied to.

Time is that of ``memory.lifetimes``: a step per thunk, one for a loop's test, one for its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .memory import lifetimes, place
from .plan import BufferSlice, ConditionalThunk, CopyThunk, Thunk, WhileThunk, accesses


def coalesce(
    thunks: Sequence[Thunk], sizes: Mapping[int, int], fixed: frozenset[int]
) -> tuple[Thunk, ...]:
    """``a = f(); copy a -> b``  ->  ``b = f()``, where nothing touches b while a lives.

    Values in ``fixed`` have a home of their own and are never a source that gives up its place.
    """
    touches = _touches(thunks)
    ends = {v: life.end for v, life in lifetimes(thunks, sizes).items()}
    renamed: dict[int, int] = {}
    dropped: set[int] = set()
    for now, thunk in enumerate(_steps(thunks)):
        if not isinstance(thunk, CopyThunk):
            continue
        a, b = thunk.source, thunk.target
        if a.memory != "value" or b.memory != "value":
            continue
        source, target = _final(renamed, a.index), _final(renamed, b.index)
        whole = sizes[source] == sizes[target] == a.bytes
        if source == target:
            dropped.add(now)
            continue
        alive = range(touches[source][0], now)
        blocked = any(t in alive for t in touches[target])
        if not whole or source in fixed or ends[source] != now or blocked:
            continue
        renamed[source] = target
        dropped.add(now)
        touches[target] = sorted({*touches[source], *touches[target]})
        ends[target] = max(ends[target], ends[source])
    return _rename(thunks, renamed, dropped)


def _steps(thunks: Sequence[Thunk]) -> Iterator[Thunk | None]:
    """One item per step of ``memory.lifetimes``'s time."""
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


def _touches(thunks: Sequence[Thunk]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for now, thunk in enumerate(_steps(thunks)):
        if thunk is not None:
            for s in {s for part in accesses(thunk) for s in part if s.memory == "value"}:
                found[s.index].append(now)
    return found


def _final(renamed: Mapping[int, int], value: int) -> int:
    while value in renamed:
        value = renamed[value]
    return value


def _rename(
    thunks: Sequence[Thunk], renamed: Mapping[int, int], dropped: set[int]
) -> tuple[Thunk, ...]:
    where = {v: BufferSlice("value", 0, 0, _final(renamed, v)) for v in (*_touches(thunks),)}
    steps = iter(enumerate(_steps(thunks)))

    def keep(part: Sequence[Thunk]) -> tuple[Thunk, ...]:
        kept: list[Thunk] = []
        for thunk in part:
            match thunk:
                case WhileThunk(condition=condition, body=body):
                    first = keep(condition)
                    next(steps)
                    kept.append(replace(thunk, condition=first, body=keep(body)))
                    next(steps)
                case ConditionalThunk(branches=branches):
                    next(steps)
                    kept.append(replace(thunk, branches=tuple(map(keep, branches))))
                    next(steps)
                case _:
                    if next(steps)[0] not in dropped:
                        kept.append(thunk)
        return tuple(kept)

    return place(keep(thunks), where)
