"""Evaluation of candidates without the machine: schedules are lowered, their time is estimated.

The estimate is the sketch's analytic cost. A schedule that cannot be lowered for the target, or
needs too many registers, threads or shared memory, fails as it would on the machine.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from ...codegen.driver.prepack import split_packs
from ...codegen.targets.registry import lower
from ...ir.errors import NestwrightError
from ...ir.target import Target
from ...schedule.sketches.generate import generate
from ...schedule.space.space import Choices, Sketch
from ..log.records import DEFAULT_SKETCH, Json
from ..tasks.programs import Program
from .candidates import Rejected, in_short, make_schedule
from .protocol import Candidate, Job, Measurer, Outcome, Watch

KEPT = 64  # programs whose sketches stay in memory


@dataclass(frozen=True, slots=True)
class _ScheduledTask:
    """A program and its sketches for a target."""

    program: Program
    target: Target
    sketches: dict[str, Sketch]


class Estimator(Measurer):
    """A measurer that estimates in this process instead of measuring in child processes."""

    def __init__(self) -> None:
        self._works: OrderedDict[tuple[str, str], _ScheduledTask] = OrderedDict()

    def run(
        self, jobs: Iterable[Job], until: float = math.inf, watch: Watch | None = None
    ) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        """Yield each job with the estimates of its candidates."""
        for job in jobs:
            work = self._work(job)
            yield job, tuple(_estimate(work, c) for c in job.candidates)

    def _work(self, job: Job) -> _ScheduledTask:
        name = job.key, job.target
        if name not in self._works:
            while len(self._works) >= KEPT:
                self._works.popitem(last=False)
            target = Target.parse(job.target)
            program = Program(job.form, job.text, target.vectors)
            sketches = {s.name: s for s in generate(program.func, target)}
            self._works[name] = _ScheduledTask(program, target, sketches)
        self._works.move_to_end(name)
        return self._works[name]

    def close(self) -> None:
        """Forget the programs."""
        self._works.clear()


def _estimate(work: _ScheduledTask, c: Candidate) -> Outcome:
    try:
        schedule = make_schedule(work.program.func, work.sketches, work.target, c)
    except Rejected as e:
        return e.outcome
    trace = cast("list[Json]", schedule.trace.to_json())
    try:
        lower(split_packs(schedule.func)[0], work.target)
    except NestwrightError as e:
        return Outcome("build", (), trace, note=in_short(e))
    seconds = _seconds(work, c)
    if not 0 < seconds < math.inf:
        return Outcome("invalid", (), trace, note=f"{c.sketch} has no estimate for it")
    return Outcome("estimated", (seconds,), trace)


def _seconds(work: _ScheduledTask, c: Candidate) -> float:
    """Return the cost by the candidate's sketch; the default schedule is the first sketch's.

    Infinite for a schedule written by hand, of which nothing is known.
    """
    if c.sketch == DEFAULT_SKETCH:
        first = next(iter(work.sketches.values()))
        return float(first.cost(first.default))
    sketch = work.sketches.get(c.sketch)
    return math.inf if sketch is None else float(sketch.cost(cast(Choices, dict(c.decisions))))
