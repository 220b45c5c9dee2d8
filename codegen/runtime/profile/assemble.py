"""A profile from measured times and what a bundle knows of its thunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...plan.bundle import Bundle
from ...plan.facts import facts_of, from_json, own_cost
from ...plan.loaded import Times
from ...plan.nodes import (
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    LibraryThunk,
    Thunk,
    WhileThunk,
    children,
)
from ...plan.notes import FACTS
from ...plan.signature import is_bounded
from .data import Profile
from .figures import CALL, CONTROL, COPY, KERNEL, LIBRARY, ProfileRow


def assembled(bundle: Bundle, times: Times, memory: dict[str, int]) -> Profile:
    """Return the profile of a model, from times of its calls and its ``memory_analysis``."""
    plan, facts = bundle.plan, from_json(bundle.notes.get(FACTS, ""))
    rows: list[ProfileRow] = []
    for number, (thunk, depth) in enumerate(_deep(plan.thunks, 0)):
        time = times.thunks.get(number)
        if time is None:
            continue
        known, cost = facts_of(thunk, facts), own_cost(thunk, facts)
        row = ProfileRow(
            name=thunk.name,
            kind=_kind(thunk),
            seconds=time.seconds,
            calls=time.calls,
            flops=cost.flops,
            transcendentals=cost.transcendentals,
            bytes=cost.bytes,
            group=known.group,
            task=thunk.task if isinstance(thunk, KernelThunk) else "",
            members=known.members,
            schedule=known.schedule,
            record=known.record,
            depth=depth,
            busy=time.busy,
            parts=time.parts,
        )
        rows.append(row)
    if times.outside is not None:
        rows.append(ProfileRow(CALL, CALL, times.outside, 1))
    return Profile(
        name=bundle.name,
        target=bundle.target.spec,
        threads=bundle.target.threads,
        rounds=times.rounds,
        seconds=times.whole,
        probed=times.probed,
        timing=times.timing,
        rows=tuple(rows),
        events=times.events,
        lost=times.lost,
        costs=dict(bundle.costs),
        memory=memory,
        bounded=is_bounded((*plan.params, *plan.results)),
        simulated=bundle.target.row.simulated,
    )


def _deep(thunks: Sequence[Thunk], depth: int) -> Iterator[tuple[Thunk, int]]:
    """Yield thunks as ``nodes.walk`` does, each with the number of those around it."""
    for thunk in thunks:
        yield thunk, depth
        for inner in children(thunk):
            yield from _deep(inner, depth + 1)


def _kind(thunk: Thunk) -> str:
    match thunk:
        case KernelThunk():
            return KERNEL
        case CopyThunk():
            return COPY
        case LibraryThunk():
            return LIBRARY
        case WhileThunk() | ConditionalThunk():
            return CONTROL
