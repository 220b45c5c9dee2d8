"""The state of each task during tuning, and the expected gain of its next trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.target import Target
from ...schedule.errors import ScheduleError
from ...schedule.language.schedule import Schedule
from ..cost.features import Encoder
from ..cost.model import Blend, CostModel, Sample
from ..cost.profile import profile
from ..log.contents import best_trial
from ..log.records import DEFAULT_SKETCH, LIBRARY_SKETCH, Best, Json, Trial
from ..search.space import Point
from ..search.strategy import Proposal, Strategy
from ..tasks.extract import Task
from .progress import TaskResult

REFUSED = 1e9  # estimated seconds of a schedule that cannot be made
LEAST_MERIT = 0.01  # predictions below this mean that a schedule fails
HOPELESS = 4  # trials without a success after which a task is given up
HOPE = 0.05  # share of its time that a task may save, even if it seems to be at the roofline
TRUSTED = 32  # trials after which the roofline is believed: a clock may be faster, padding skipped
RECENT = 0.3  # weight of the last round's gain relative to the potential gain


class TaskState:
    """A task being tuned: its trials, its search strategy, its training rows."""

    def __init__(
        self, task: Task, target: Target, strategy: Strategy, closely: bool = True
    ) -> None:
        """``closely``: schedules are ranked by their nests too, if the target is a processor."""
        self.task = task
        self.target = target
        self.strategy = strategy
        self._nests = closely and target.row.work == "threads"
        self._seconds: dict[Point, float] = {}
        self.encoder = Encoder(task.program.func, task.space, target, task.flops, task.bytes)
        self.sample = Sample()
        self.blend = Blend()
        self.trials: list[Trial] = []
        self.curve: list[tuple[int, float]] = []
        self.failures: Counter[str] = Counter()
        self.default: Trial | None = None
        self.best: Trial | None = None
        self.race: Best | None = None
        self.exhausted = False
        self._gain_per_trial = 0.0
        self._drop_unfit()

    @property
    def seconds(self) -> float:
        """The best time so far; infinite before the first success."""
        return self.best.cost if self.best is not None else math.inf

    @property
    def complaint(self) -> str:
        """Why the default schedule has no time, if it was tried; "" otherwise."""
        t = self.default
        if t is None or t.ran:
            return ""
        told = f"{t.status}: {t.note}" if t.note else t.status
        return f"{self.task.name}: its default schedule failed ({told})"

    @property
    def libraries(self) -> set[str]:
        """The names of the library functions tried."""
        tried = (t for t in self.trials if t.sketch == LIBRARY_SKETCH)
        return {str(t.decisions.get("library")) for t in tried}

    def add(self, trial: Trial) -> bool:
        """Add a trial, new or from the log; return True if it is the fastest so far."""
        self.trials.append(trial)
        if trial.sketch == DEFAULT_SKETCH:
            self.default = trial
        if not trial.ran:
            self.failures[trial.status] += 1
        point = self.point(trial)
        if point is not None:
            self.strategy.observe(point, trial.cost)
            self.sample.add(self.encoder.encode([point], [trial.code])[0], trial.cost)
        better = trial.cost < self.seconds
        if better:
            self.best = trial
        if math.isfinite(self.seconds):
            self.curve.append((len(self.trials), self.seconds))
        return better

    def point(self, trial: Trial) -> Point | None:
        """Return a trial's point in the space; None for unknown sketches or decisions.

        The default schedule is the default of the first sketch that fits.
        """
        if trial.sketch == DEFAULT_SKETCH:
            return next(iter(self.task.space.defaults()), None)
        return self.task.space.find(trial.sketch, trial.decisions)

    def propose(self, count: int, model: CostModel | None) -> list[Proposal]:
        """Return the points to measure next; an empty list once the space is exhausted."""
        fitted = model is not None and model.fitted

        def merit(points: Sequence[Point]) -> np.ndarray[Any, Any]:
            estimates = np.array([self.task.space.cost(p) for p in points])
            guesses = model.predict(self.encoder.encode(points)) if fitted and model else None
            return self.blend.merit(estimates, guesses)

        def closer(points: Sequence[Point]) -> np.ndarray[Any, Any]:
            guesses = model.predict(self.encoder.encode(points)) if fitted and model else None
            return self.blend.merit(self._estimates(points), guesses)

        chosen = self.strategy.propose(count, merit, closer if self._nests else None)
        self.exhausted = len(chosen) < count
        return chosen

    def predict(self, points: Sequence[Point], model: CostModel | None) -> list[float | None]:
        """Return the learned model's seconds of points, by the best so far; None without a model.

        The model tells how fast a program is relative to the fastest of its task.
        """
        if model is None or not model.fitted or not points or math.isinf(self.seconds):
            return [None] * len(points)
        merits = model.predict(self.encoder.encode(points))
        return [self.seconds / max(float(m), LEAST_MERIT) for m in merits]

    def _estimates(self, points: Sequence[Point]) -> np.ndarray[Any, Any]:
        """Return estimated seconds: by the scheduled nests, else by the sketches' closed forms."""
        if not self._nests:
            return np.array([self.task.space.cost(p) for p in points])
        return np.array([self._nest_seconds(p) for p in points])

    def _nest_seconds(self, point: Point) -> float:
        """Return the estimate of a point's nest; ``REFUSED`` if a primitive refuses."""
        known = self._seconds.get(point)
        if known is None:
            space, schedule = self.task.space, Schedule(self.task.program.func)
            try:
                space.sketches[point.sketch].apply(schedule, space.choices(point))
                known = profile(schedule.func, self.target).seconds
            except ScheduleError:
                known = REFUSED
            self._seconds[point] = known
        return known

    def choose(
        self,
        compiled: Sequence[tuple[Proposal, Mapping[str, Json]]],
        count: int,
        model: CostModel | None,
    ) -> list[Proposal]:
        """Return the most promising of compiled proposals, by the compiler's facts about them.

        The others are released to the strategy.
        """
        points = [p.point for p, _ in compiled]
        order = np.arange(len(points))
        if len(points) > count and model is not None and model.fitted:
            estimates = np.array([self.task.space.cost(p) for p in points])
            guesses = model.predict(self.encoder.encode(points, [facts for _, facts in compiled]))
            order = np.argsort(-self.blend.merit(estimates, guesses), kind="stable")
        for i in order[count:]:
            self.strategy.release(points[i])
        self.exhausted = self.exhausted and len(points) <= count
        return [compiled[i][0] for i in sorted(order[:count])]

    def _drop_unfit(self) -> None:
        """Drop the sketches whose default a primitive refuses."""
        for number, sketch in enumerate(self.task.space.sketches):
            try:
                sketch.apply(Schedule(self.task.program.func), sketch.default)
            except ScheduleError:
                self.task.space.drop(number)

    def learn(self, trials: Sequence[Trial], before: float, model: CostModel | None) -> None:
        """Update the weights of estimate and model, and the gain, after a round."""
        pairs = [(p, t.cost) for t in trials if (p := self.point(t)) is not None]
        if pairs:
            points, costs = [p for p, _ in pairs], np.array([c for _, c in pairs])
            estimates = self._estimates(points)
            fitted = model is not None and model.fitted
            rows = self.encoder.encode(points)
            self.blend.update(
                costs, estimates, model.predict(rows) if fitted and model is not None else None
            )
        if math.isfinite(before) and trials:
            self._gain_per_trial = max(0.0, before - self.seconds) / len(trials)

    def gain(self) -> float:
        """Estimate the seconds per run of the model that another trial of this task saves.

        A mix of the last round's gain and an optimistic bound, the time so far over the number of
        trials, limited by the machine's roofline (the idea is Ansor's, Zheng et al., OSDI 2020,
        section 6; the limit is ours).
        """
        hopeless = self.best is None and len(self.trials) >= HOPELESS
        if self.exhausted or hopeless:
            return 0.0
        now = self.seconds if math.isfinite(self.seconds) else 10 * self.encoder.roof
        least = HOPE * now if len(self.trials) < TRUSTED else 0.0
        hope = min(now, max(least, now - self.encoder.roof)) / max(1, len(self.trials))
        return self.task.weight * (RECENT * self._gain_per_trial + (1 - RECENT) * hope)

    def finalists(self, count: int) -> list[Trial]:
        """Return the fastest trials with different schedules, without the default, in order."""
        ran = sorted((t for t in self.trials if t.ran), key=lambda t: t.cost)
        chosen: dict[str, Trial] = {}
        for t in ran:
            if t.sketch != DEFAULT_SKETCH and t.cost < 1.25 * self.seconds:
                chosen.setdefault(repr(t.trace), t)
        return list(chosen.values())[:count]

    @property
    def needs_race(self) -> bool:
        """True if there are candidates newer than the last race."""
        if self.default is None or self.best is None or not self.finalists(1):
            return False
        return self.race is None or max(t.ts for t in self.trials) > self.race.ts

    @property
    def newest(self) -> float:
        """The time of the last trial or race, in seconds since 1970; 0 before the first."""
        last = [t.ts for t in self.trials] + ([self.race.ts] if self.race is not None else [])
        return max(last, default=0.0)

    @property
    def winner(self) -> Best | None:
        """The best schedule of this task: the winner of its race, else of its trials."""
        ran = [t for t in self.trials if t.ran]
        return self.race or (best_trial(ran) if ran else None)

    def hope(self) -> float:
        """Return the seconds per run of the model that the winner saves, as measured."""
        found = self.winner
        return 0.0 if found is None else self.task.weight * (found.default_seconds - found.seconds)

    def result(self) -> TaskResult:
        """Return the task's state for a report."""
        t = self.task
        default = self.default.cost if self.default and self.default.ran else None
        best = self.best.cost if self.best else None
        sketch = self.best.sketch if self.best else ""
        decisions = dict(self.best.decisions) if self.best else {}
        if self.race is not None:
            default, best = self.race.default_seconds, self.race.seconds
            sketch, decisions = self.race.sketch, dict(self.race.decisions)
        return TaskResult(
            key=t.key,
            name=t.name,
            kind=t.kind,
            weight=t.weight,
            flops=t.flops,
            bytes=t.bytes,
            trials=len(self.trials),
            default_seconds=default,
            best_seconds=best,
            sketch=sketch,
            decisions=decisions,
            curve=tuple(self.curve),
        )
