"""Why a winner won: its decisions put back to the default's one at a time, and measured.

All variants of a group race in one job of a measuring child, so that each round's times belong
together. A decision whose change makes no valid schedule with the others is told, not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..ir.target import Target
from ..schedule.space.space import Sketch
from .log.records import DEFAULT_SKETCH, Json, canonical
from .measure.protocol import Candidate, Job, Limits, Measurer, Outcome
from .search.space import Space
from .tasks.extract import Task
from .tuner.jobs import race_of

FILL = 0.1  # seconds of timing for each variant
LIMITS = Limits(run=120.0)
WHOLE, SKETCH = "all decisions", "sketch"
INVALID = "not a valid schedule with the other decisions"


@dataclass(frozen=True, slots=True)
class WonSchedule:
    """A task and the schedule that won: its sketch, decisions and trace."""

    task: Task
    sketch: str
    decisions: Mapping[str, Json]
    trace: list[Json]


@dataclass(frozen=True, slots=True)
class Reverted:
    """The winner with one decision put back from ``winner`` to ``default``, or two at once.

    ``runs`` are seconds per call, round by round as the winner's; without runs ``note`` says why.
    """

    decision: str
    winner: Json
    default: Json
    runs: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The winner's seconds per call of each round, and its variants; ``note`` if it failed.

    The first variant is the default schedule, with all decisions put back.
    """

    runs: tuple[float, ...]
    variants: tuple[Reverted, ...]
    note: str = ""


def attribute(
    won: Sequence[WonSchedule],
    target: Target,
    measurer: Measurer,
    folder: Path,
    seed: int = 0,
    until: float = math.inf,
) -> dict[str, Attribution]:
    """Return for each task by its key what the winner's decisions buy.

    ``folder`` is for files of the measuring child. Tasks for which there is no time before
    ``until``, a time of ``time.monotonic``, are left out.
    """
    plans = [_planned(w) for w in won]
    jobs = (_job(n, p, target, folder, seed) for n, p in enumerate(plans))
    return {
        job.key: _read(plans[job.number], outcomes) for job, outcomes in measurer.run(jobs, until)
    }


@dataclass(frozen=True, slots=True)
class _Plan:
    """A winner, its variants, and the candidate of each that is valid."""

    won: WonSchedule
    variants: tuple[Reverted, ...]
    candidates: tuple[Candidate | None, ...]


def _planned(won: WonSchedule) -> _Plan:
    default = Candidate(DEFAULT_SKETCH, {})
    usual = _usual(won.task.space)
    sketch = _sketch(won.task.space, won.sketch)
    name = WHOLE if sketch is not None and sketch is usual else SKETCH
    whole = Reverted(name, won.sketch, usual.name if usual else DEFAULT_SKETCH)
    found = [(whole, default), *(_reverted(won, sketch) if sketch is not None else ())]
    return _Plan(won, tuple(v for v, _ in found), tuple(c for _, c in found))


def _usual(space: Space) -> Sketch | None:
    """Return the sketch of the default schedule."""
    return next((space.sketches[p.sketch] for p in space.defaults()), None)


def _sketch(space: Space, name: str) -> Sketch | None:
    return next((s for s in space.sketches if s.name == name), None)


def _reverted(won: WonSchedule, sketch: Sketch) -> Iterator[tuple[Reverted, Candidate | None]]:
    """Yield a variant for every decision that is not the sketch's default.

    One that is not valid alone is put back together with the first other one that makes it so.
    """
    other = [
        n for n, v in sketch.default.items() if canonical(won.decisions.get(n)) != canonical(v)
    ]
    done: set[frozenset[str]] = set()
    for name in other:
        for names in ((name,), *((name, n) for n in other if n != name)):
            changed = {**won.decisions, **{n: sketch.default[n] for n in names}}
            point = won.task.space.find(sketch.name, changed)
            if point is not None and won.task.space.valid(point):
                if frozenset(names) not in done:
                    yield _variant(won, sketch, names), Candidate(sketch.name, changed)
                done.add(frozenset(names))
                break
        else:
            yield replace(_variant(won, sketch, (name,)), note=INVALID), None


def _variant(won: WonSchedule, sketch: Sketch, names: tuple[str, ...]) -> Reverted:
    chosen: list[Json] = [won.decisions.get(n) for n in names]
    default: list[Json] = [sketch.default[n] for n in names]
    if len(names) == 1:
        return Reverted(names[0], chosen[0], default[0])
    return Reverted(" and ".join(names), chosen, default)


def _job(number: int, plan: _Plan, target: Target, folder: Path, seed: int) -> Job:
    won = plan.won
    winner = Candidate(won.sketch, won.decisions, won.trace)
    candidates = (winner, *(c for c in plan.candidates if c is not None))
    job = race_of(number, won.task, target, candidates, folder, seed, LIMITS)
    return replace(job, fill=FILL)


def _read(plan: _Plan, outcomes: Sequence[Outcome]) -> Attribution:
    """Return the variants with their times."""
    winner, *others = outcomes
    left = iter(others)
    variants = tuple(
        variant if candidate is None else _timed(variant, next(left))
        for variant, candidate in zip(plan.variants, plan.candidates, strict=True)
    )
    failed = "" if winner.status == "ok" else f"{winner.status}: {winner.note}"
    return Attribution(winner.runs, variants, failed)


def _timed(variant: Reverted, outcome: Outcome) -> Reverted:
    note = "" if outcome.status == "ok" else f"{outcome.status}: {outcome.note}"
    return Reverted(variant.decision, variant.winner, variant.default, outcome.runs, note)
