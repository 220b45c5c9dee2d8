"""Progress reports and the result of tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ...ir.html import facts, table
from ..log.records import Json, Verdict
from ..log.units import duration

SHOWN = 20  # tasks in a notebook


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The state of one task. Times are seconds per call, None before the first.

    ``curve`` holds (number of the trial within the task, best time after it).
    """

    key: str
    name: str
    kind: str
    weight: float
    flops: float
    bytes: float
    trials: int
    default_seconds: float | None
    best_seconds: float | None
    sketch: str = ""
    decisions: Mapping[str, Json] = field(default_factory=dict)
    curve: tuple[tuple[int, float], ...] = ()

    @property
    def speedup(self) -> float:
        """Default over best; 1 if either is unknown."""
        if not self.default_seconds or not self.best_seconds:
            return 1.0
        return self.default_seconds / self.best_seconds


@dataclass(frozen=True, slots=True)
class Progress:
    """A progress report of tuning.

    ``event`` is start, trial, best, race, model, wait, note or done; ``task`` names the task it is
    about ("" for none); ``text`` describes it in one line. ``phase`` is measuring, racing groups or
    racing the whole model. ``workers`` describes those of a fleet ("" without). ``left`` bounds the
    seconds left, None if unknown.
    ``default_seconds`` and ``best_seconds`` are sums over the tasks, weighted by how often
    each runs in the model.
    """

    event: str
    task: str
    text: str
    trials: int
    budget: int
    failures: Mapping[str, int]
    elapsed: float
    left: tuple[float, float] | None
    default_seconds: float
    best_seconds: float
    tasks: tuple[TaskResult, ...]
    phase: str = ""
    workers: str = ""


Listener: TypeAlias = Callable[[Progress], object]


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The result of tuning. ``stopped`` is why it ended: budget, time, exhausted, nothing to tune.

    ``trials`` counts those in the log for these tasks, ``measured`` those of this call. ``verdict``
    is the outcome of racing the whole model, tuned against default; None if it was not raced.
    """

    model: str
    target: str
    log: Path
    tasks: tuple[TaskResult, ...]
    trials: int
    measured: int
    seconds: float
    stopped: str
    failures: Mapping[str, int]
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None

    @property
    def speedup(self) -> float:
        """Default over tuned, of the whole model if it was raced, else of the sum of its tasks."""
        if self.verdict is not None:
            return self.verdict.speedup
        before, after = totals(self.tasks)
        return before / after if after else 1.0

    def _repr_html_(self) -> str:
        found = {
            "tuned": f"{self.model} for {self.target}",
            "speedup": f"{self.speedup:.2f}",
            "trials": f"{self.trials}, {self.measured} of them now, in {self.seconds:.1f} s",
            "ended by": self.stopped,
            "log": self.log.name,
            "notes": "; ".join(self.notes) or "none",
        }
        heavy = sorted(self.tasks, key=lambda t: -t.weight * (t.best_seconds or 0.0))
        rows = [
            (
                t.name,
                f"{t.weight:g}",
                duration(t.default_seconds),
                duration(t.best_seconds),
                f"{t.speedup:.2f}",
            )
            for t in heavy[:SHOWN]
        ]
        if more := len(heavy) - len(rows):
            rows.append((f"{more} more", "", "", "", ""))
        return facts(found) + table(("group", "times", "default", "best", "gain"), rows)


def totals(tasks: tuple[TaskResult, ...]) -> tuple[float, float]:
    """Return (default, best) seconds in one run of the model, over tasks with both known."""
    known = [t for t in tasks if t.default_seconds and t.best_seconds]
    before = sum(t.weight * (t.default_seconds or 0.0) for t in known)
    after = sum(t.weight * (t.best_seconds or 0.0) for t in known)
    return before, after


class TuningInterrupted(KeyboardInterrupt):
    """Ctrl-C during tuning; the text says what is kept and how to resume."""
