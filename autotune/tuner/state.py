"""The state of a call of ``tune``: trials, races and the verdict, as they enter the log."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from ..log.contents import Log
from ..log.journal import LogWriter, stamped
from ..log.records import Best, Trial, Verdict
from ..log.units import counted
from ..measure.compare import SpeedComparison
from ..measure.protocol import Candidate, Outcome
from ..search.strategy import Strategy
from ..tasks.extract import Task
from .budget import Budget
from .compose import Composition
from .finish import winner_of_race
from .plan import TuningPlan, make_strategy
from .progress import TuneResult
from .taskstate import TaskState


class TuningState:
    """The states of the tasks and of the model; whatever is added is logged first.

    ``whole`` is true if the model is raced as a whole, after its groups.
    """

    def __init__(
        self, plan: TuningPlan, writer: LogWriter, budget: Budget, whole: bool = False
    ) -> None:
        """The tasks and what the log knows of them come later: ``begin`` and ``resume``."""
        self.plan = plan
        self.writer = writer
        self.budget = budget
        self.whole = whole
        self.tasks: list[TaskState] = []
        self.verdict: Verdict | None = None
        self.measured = 0
        self._model = plan.model_record()

    def begin(self) -> None:
        """Start the search of each task."""
        plan = self.plan
        self.tasks = [
            TaskState(t, plan.target, _strategy(plan, t), not plan.estimate) for t in plan.tasks
        ]

    def resume(self, log: Log) -> None:
        """Take what a log has of these tasks, and log what it lacks of the context of trials."""
        plan = self.plan
        if plan.device not in log.devices:
            self.writer.append(plan.device_record())
        if self._model.id not in {m.id for m in log.models}:
            self.writer.append(self._model)
        for t in plan.tasks:
            if t.key not in log.workloads:
                self.writer.append(t.workload)
        self._take(log)

    def _take(self, log: Log) -> None:
        plan, tasks = self.plan, {s.task.key: s for s in self.tasks}
        foreign = set()  # measured on another class of machines, whose times do not compare
        for t in log.trials:
            if t.machine and plan.machine and t.machine != plan.machine:
                foreign.add(t.id)
            elif t.device == plan.device and t.workload in tasks:
                tasks[t.workload].add(t)
        for b in log.bests:
            if b.device == plan.device and b.workload in tasks and b.trial not in foreign:
                tasks[b.workload].race = b
        for v in log.verdicts:
            if (v.model, v.device) == (self._model.id, plan.device):
                self.verdict = v

    @property
    def trials(self) -> int:
        """The number of trials of these tasks, including those from the log."""
        return sum(len(s.trials) for s in self.tasks)

    @property
    def failures(self) -> Counter[str]:
        """The number of trials that failed, by the way in which they did."""
        return sum((s.failures for s in self.tasks), Counter())

    @property
    def kept(self) -> str:
        """A line on the trials that remain if tuning ends here, and on how to resume it."""
        count = counted(self.trials, "trial")
        kept = f"{count} {'is' if self.trials == 1 else 'are'} kept in {self.writer.path}"
        return f"{kept}; run the same command again to resume"

    @property
    def to_race(self) -> tuple[int, int]:
        """The number of groups to race, and of groups in the model to race (0: none)."""
        if self.plan.estimate:
            return 0, 0
        return sum(s.needs_race for s in self.tasks), len(self.tasks) if self.whole else 0

    @property
    def search_seconds(self) -> float:
        """The seconds left for searching, with time reserved for the races."""
        return self.budget.left - self.budget.reserve(*self.to_race)

    @property
    def has_time_to_race(self) -> bool:
        """True if there is time for another race of a group, and then for that of the model."""
        return self.budget.left > self.budget.reserve(0, self.to_race[1])

    @property
    def is_decided(self) -> bool:
        """True if the model was raced after its groups, and not for lack of time cut short."""
        newest = max((s.newest for s in self.tasks), default=0.0)
        return self.verdict is not None and self.verdict.ts >= newest and not self.verdict.cut

    def add_trial(
        self,
        task: TaskState,
        c: Candidate,
        outcome: Outcome,
        source: str,
        predicted: float | None = None,
    ) -> tuple[Trial, bool]:
        """Add the outcome of a candidate; return the trial, and if it is the fastest so far."""
        plan = self.plan
        trial = stamped(
            Trial(
                workload=task.task.key,
                device=plan.device,
                sketch=c.sketch,
                decisions=c.decisions,
                status=outcome.status,
                source=source,
                runs=outcome.runs,
                trace=outcome.trace,
                seed=plan.seed,
                note=outcome.note,
                tool=dict(plan.tool),
                ts=time.time(),
                drift=outcome.drift,
                code=outcome.facts,
                machine=plan.machine,
                predicted=predicted,
            )
        )
        self.writer.append(trial)
        self.measured += 1
        self.budget.trial_done()
        return trial, task.add(trial)

    def add_race(
        self, task: TaskState, runners: Sequence[Candidate], outcomes: Sequence[Outcome]
    ) -> Best | None:
        """Add the winner of a race; None if the default, the first of the ``runners``, failed."""
        best = winner_of_race(task.trials, self.plan.device, runners, outcomes)
        if best is not None:
            task.race = stamped(best)
            self.writer.append(task.race)
        return best

    def add_verdict(self, made: Composition, winners: Iterable[Best]) -> Verdict:
        """Add which of the groups' winners the model keeps, and how much faster it is with them."""
        picks = tuple((w.workload, w.trial if w.workload in made.kept else "") for w in winners)
        found = made.found or SpeedComparison((), ())
        runs = found.runs, found.default_runs
        self.verdict = stamped(
            Verdict(self._model.id, self.plan.device, picks, *runs, made.cut, time.time())
        )
        self.writer.append(self.verdict)
        return self.verdict

    def result(self, stopped: str, notes: Iterable[str]) -> TuneResult:
        """Return the result of the call; ``stopped`` is why it ended."""
        return TuneResult(
            model=self.plan.model,
            target=self.plan.target.key,
            log=self.writer.path,
            tasks=tuple(s.result() for s in self.tasks),
            trials=self.trials,
            measured=self.measured,
            seconds=self.budget.elapsed,
            stopped=stopped,
            failures=self.failures,
            notes=tuple(notes),
            verdict=self.verdict,
        )


def _strategy(plan: TuningPlan, task: Task) -> Strategy:
    """Return a task's strategy, with a seed of its own."""
    digest = hashlib.sha256(f"{plan.seed} {task.key}".encode()).digest()
    return make_strategy(plan.strategy, task.space, int.from_bytes(digest[:6], "big"))
