"""The tuning loop: default schedules, rounds on the most promising tasks, then races.

Each group's fastest schedules are raced against its default, then the whole model with its groups'
winners against the default model. The budget counts the trials of these tasks, including those
already in the log. A trial is logged as soon as it is measured, so tuning can be killed at any time
and resumed.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from ...codegen.driver.build import PreparedModule
from ...ir.errors import FleetError, MeasureError
from ...ir.scratch import Scratch
from ...schedule.language.trace import Trace
from ..cost.model import CostModel
from ..log.contents import Log
from ..log.journal import LogWriter, stamped
from ..log.records import DEFAULT_SKETCH, Best, Trial, Verdict
from ..log.units import counted
from ..measure.compare import SpeedComparison
from ..measure.host.lock import MachineLock
from ..measure.machine import meter_row
from ..measure.protocol import Candidate, Job, Measurer, Outcome, Underway
from ..search.rounds import ROUNDS, next_round
from ..search.strategy import Proposal, Strategy
from ..tasks.extract import Task
from .budget import Budget, advice
from .compose import TimeUp
from .finish import winner_of_race
from .jobs import JobMaker, candidate
from .modelrace import ModelRacer, Unraceable, composition
from .offers import candidates, complaints
from .plan import TuningPlan, make_strategy
from .progress import Listener, Progress, TuneResult, TuningInterrupted, totals
from .taskstate import TaskState

T = TypeVar("T")

FINALISTS = 5  # of a race: readings of one schedule are a few percent apart
DOING = {
    "start": "starting a process for",
    "load": "preparing",
    "build": "building",
    "wait": "about to time",
    "run": "timing",
    "away": "measuring",
}


class Tuner:
    """One call of ``tune``: the states of the tasks, the measurer, the log."""

    def __init__(
        self,
        plan: TuningPlan,
        writer: LogWriter,
        log: Log,
        pool: Measurer,
        listener: Listener | None,
        builder: PreparedModule | None = None,
        budget: Budget | None = None,
    ) -> None:
        """``builder`` builds the whole model, if there is one; ``budget`` is running already."""
        self.plan = plan
        self.writer = writer
        self.pool = pool
        self.listener = listener
        self.builder = builder
        self.budget = Budget(plan.seconds) if budget is None else budget
        self.device = plan.device
        learns = plan.strategy == "native" and not plan.estimate
        self.model = CostModel(plan.seed) if learns else None
        self.measured = 0
        self.phase = "starting"
        self.workers = ""  # of a fleet, described
        self.notes: list[str] = []
        self.verdict: Verdict | None = None
        self.states: list[TaskState] = []  # before the lock, whose wait tells of them
        self._lock = MachineLock(waiting=self._held_up)
        self._scratch = Scratch("tune")
        with self._beside():
            self.states = [
                TaskState(t, plan.target, self._strategy(t), not plan.estimate) for t in plan.tasks
            ]
        self._jobs = JobMaker(plan.target, plan.seed, self._scratch.path)
        if not plan.estimate:
            self._jobs.know_peaks(plan.peaks)
        self._model = plan.model_record()
        self._record_context(log)
        self._resume(log)

    def _beside(self) -> AbstractContextManager[None]:
        """Return a context for computing in this process, during which nothing is timed."""
        return nullcontext() if self.plan.estimate else self._lock.building()

    def _strategy(self, task: Task) -> Strategy:
        digest = hashlib.sha256(f"{self.plan.seed} {task.key}".encode()).digest()
        return make_strategy(self.plan.strategy, task.space, int.from_bytes(digest[:6], "big"))

    def _record_context(self, log: Log) -> None:
        """Log the device, the model and the workloads, unless the log has them already."""
        plan = self.plan
        if self.device not in log.devices:
            self.writer.append(plan.device_record())
        if self._model.id not in {m.id for m in log.models}:
            self.writer.append(self._model)
        for t in plan.tasks:
            if t.key not in log.workloads:
                self.writer.append(t.workload)

    def _resume(self, log: Log) -> None:
        states = {s.task.key: s for s in self.states}
        foreign = set()  # measured on another class of machines, whose times do not compare
        for t in log.trials:
            if t.machine and self.plan.machine and t.machine != self.plan.machine:
                foreign.add(t.id)
            elif t.device == self.device and t.workload in states:
                states[t.workload].add(t)
        for b in log.bests:
            if b.device == self.device and b.workload in states and b.trial not in foreign:
                states[b.workload].race = b
        for v in log.verdicts:
            if (v.model, v.device) == (self._model.id, self.device):
                self.verdict = v
        self._fit()

    def close(self) -> None:
        """Remove the scratch files."""
        self._scratch.close()
        self._lock.close()

    @property
    def trials(self) -> int:
        """The number of trials of these tasks, including those from the log."""
        return sum(len(s.trials) for s in self.states)

    def run(self) -> TuneResult:
        """Tune until the trials or the time are used up, then race."""
        self._tell(
            "start",
            "",
            f"{counted(len(self.states), 'task')}, {counted(self.trials, 'trial')} in the log",
        )
        offers = complaints(self.plan.tasks, self.plan.target)
        for text in (*self.plan.notes, *offers, self.model.note if self.model is not None else ""):
            if text:
                self._note(text)
        try:
            stopped = self._search()
            self._race_all()
            self._race_model()
        except KeyboardInterrupt:
            raise TuningInterrupted(f"interrupted; {self._kept()}") from None
        except (FleetError, MeasureError) as e:
            raise type(e)(e.what, e.why, e.where, self._kept()) from None
        for text in filter(None, (s.complaint for s in self.states)):
            self._note(text)
        never = [s.task.name for s in self.states if s.default is None]
        for text in advice(
            stopped, self.trials, self.plan.trials, self.budget.pace, never, len(self.states)
        ):
            self._note(text)
        result = self._result(stopped)
        self._tell("done", "", f"stopped: {stopped}")
        return result

    def _search(self) -> str:
        """Measure until the budget, the time or the space is exhausted; return which of them."""
        if not self.states:
            return "nothing to tune"
        self.phase = "measuring"
        self.budget.start()
        fresh = [s for s in self.states if s.default is None]
        default = Candidate(DEFAULT_SKETCH, {})
        first = fresh[: max(0, self.plan.trials - self.trials)]
        self._measure_each([(s, default) for s in first], "default")
        target = self.plan.target
        offers = [(s, c) for s in self.states for c in candidates(s.task, target, s.libraries)]
        for trial in self._measure_each(offers, "library"):
            if not trial.ran:
                self._note(f"{trial.note}; our kernel is used")
        self._measure_seeds()
        while self.trials < self.plan.trials:
            if self._time_left() <= 0:
                return "time"
            full, left = ROUNDS[target.row.work], self.plan.trials - self.trials
            promises = [(s.gain(), len(s.trials)) for s in self.states]
            chosen = next_round(promises, full, self.pool.slots, self.plan.trials, left)
            if not chosen:
                return "exhausted"
            self._round([(self.states[n], size) for n, size in chosen])
        return "budget"

    def _measure_seeds(self) -> None:
        """Measure what won elsewhere for groups like these, unless the log has it already."""
        wanted = [
            (s, self._candidate(s, Proposal(p, "seed")))
            for s in self.states
            for p in self.plan.seeds.get(s.task.key, ())
            if s.task.space.valid(p) and p not in map(s.point, s.trials)
        ]
        self._measure_each(wanted[: max(0, self.plan.trials - self.trials)], "seed")

    def _time_left(self) -> float:
        """Return the seconds left for searching, with time reserved for the races."""
        return self.budget.left - self.budget.reserve(*self._to_race())

    def _to_race(self) -> tuple[int, int]:
        """Return the number of groups to race, and of groups in the model to race (0: none)."""
        if self.plan.estimate:
            return 0, 0
        return sum(s.needs_race for s in self.states), len(self.states) if self.builder else 0

    def _measure_each(
        self, pairs: Sequence[tuple[TaskState, Candidate]], source: str
    ) -> list[Trial]:
        by_key = {s.task.key: s for s, _ in pairs}

        def jobs() -> Iterator[Job]:
            for s, c in pairs:
                if self._time_left() > 0:
                    yield self._job(s, "measure", (c,))

        def record(job: Job, outcomes: tuple[Outcome, ...]) -> Trial:
            return self._record(by_key[job.key], job.candidates[0], outcomes[0], source)

        return self._measure(jobs(), record)

    def _measure(
        self, jobs: Iterable[Job], take: Callable[[Job, tuple[Outcome, ...]], T]
    ) -> list[T]:
        """Run jobs and return the results of ``take`` on their outcomes as they arrive."""
        found: list[T] = []
        for job, outcomes in self.pool.run(jobs, self.budget.until, self._watch):
            with self._beside():
                found.append(take(job, outcomes))
        return found

    def _round(self, chosen: Sequence[tuple[TaskState, int]]) -> None:
        """Measure some candidates of each of these tasks, and learn from all of them."""
        before = {s.task.key: s.seconds for s, _ in chosen}
        self._watched("choosing what to measure")
        about: dict[int, tuple[TaskState, Candidate, str, float | None]] = {}
        for s, n in chosen:
            proposals = self._proposals(s, n)
            with self._beside():
                told = s.predict([p.point for p in proposals], self.model)
            for p, seconds in zip(proposals, told, strict=True):
                c = self._candidate(s, p)
                about[id(c)] = s, c, p.source, seconds

        def jobs() -> Iterator[Job]:
            for s, c, *_ in about.values():
                if self._time_left() > 0:
                    yield self._job(s, "measure", (c,))

        def record(job: Job, outcomes: tuple[Outcome, ...]) -> Trial:
            state, c, source, seconds = about[id(job.candidates[0])]
            return self._record(state, c, outcomes[0], source, seconds)

        trials = self._measure(jobs(), record)
        with self._beside():
            for s, _ in chosen:
                key = s.task.key
                s.learn([t for t in trials if t.workload == key], before[key], self.model)
        self._fit()

    def _proposals(self, state: TaskState, size: int) -> list[Proposal]:
        """Return what to measure of a task in a round.

        On a GPU more candidates are compiled than measured, since the compiler knows how many
        registers a kernel takes, which determines its occupancy.
        """
        ahead = 1 if self.plan.estimate else meter_row(self.plan.target).ahead
        with self._beside():
            proposals = state.propose(ahead * size, self.model)
        if ahead == 1:
            return proposals
        jobs = [self._job(state, "compile", (self._candidate(state, p),)) for p in proposals]
        told = dict(self._measure(jobs, lambda job, outcomes: (job.number, outcomes[0])))
        late = Outcome("timeout", note="there was no time left")
        pairs = [(p, told.get(job.number, late)) for p, job in zip(proposals, jobs, strict=True)]
        compiled = [(p, outcome.facts) for p, outcome in pairs if outcome.status == "ok"]
        failed = [p for p, outcome in pairs if outcome.status != "ok"]
        chosen = state.choose(compiled, size, self.model)
        for p in failed[size - len(chosen) :]:
            state.strategy.release(p.point)
        return [*chosen, *failed[: size - len(chosen)]]

    def _candidate(self, state: TaskState, proposal: Proposal) -> Candidate:
        return candidate(state.task.space, proposal.point)

    def _fit(self) -> None:
        if self.model is not None:
            with self._beside():
                self.model.fit([s.sample for s in self.states])

    def _job(self, state: TaskState, kind: str, candidates: tuple[Candidate, ...]) -> Job:
        return self._jobs.job(state.task, kind, candidates, state.seconds)

    def _record(
        self,
        state: TaskState,
        c: Candidate,
        outcome: Outcome,
        source: str,
        predicted: float | None = None,
    ) -> Trial:
        trial = stamped(
            Trial(
                workload=state.task.key,
                device=self.device,
                sketch=c.sketch,
                decisions=c.decisions,
                status=outcome.status,
                source=source,
                runs=outcome.runs,
                trace=outcome.trace,
                seed=self.plan.seed,
                note=outcome.note,
                tool=dict(self.plan.tool),
                ts=time.time(),
                drift=outcome.drift,
                code=outcome.facts,
                machine=self.plan.machine,
                predicted=predicted,
            )
        )
        self.writer.append(trial)
        self.measured += 1
        self.budget.trial_done()
        better = state.add(trial)
        what = f"{trial.cost * 1e6:.1f} us" if trial.ran else trial.status
        self._tell("best" if better else "trial", state.task.name, f"{source}: {what}")
        return trial

    def _race_all(self) -> None:
        """Race the default against the fastest schedules of each group with a new candidate."""
        if self.plan.estimate:
            return
        self.phase = "racing groups"
        states = sorted((s for s in self.states if s.needs_race), key=lambda s: -s.hope())
        by_key = {s.task.key: s for s in states}
        jobs = (self._race_job(s) for s in states if self._time_to_race())
        self._measure(jobs, lambda job, outcomes: self._settle(by_key[job.key], job, outcomes))

    def _time_to_race(self) -> bool:
        """True if there is time for another race, and then for that of the whole model."""
        return self.budget.left > self.budget.reserve(0, self._to_race()[1])

    def _race_job(self, state: TaskState) -> Job:
        assert state.default is not None
        runners = [state.default, *state.finalists(FINALISTS)]
        candidates = tuple(Candidate(t.sketch, t.decisions, t.trace) for t in runners)
        return self._job(state, "race", candidates)

    def _settle(self, state: TaskState, job: Job, outcomes: tuple[Outcome, ...]) -> None:
        """Record the winner of a race: the default, unless another is clearly faster."""
        best = winner_of_race(state.trials, self.device, job.candidates, outcomes)
        if best is None:
            self._note(f"{state.task.name}: race without a result ({outcomes[0].note})")
            return
        state.race = stamped(best)
        self.writer.append(state.race)
        kept = best.sketch == DEFAULT_SKETCH
        text = "the default is kept" if kept else f"{best.default_seconds / best.seconds:.2f}x"
        self._tell("race", state.task.name, text)

    def _race_model(self) -> None:
        """Race the model with its groups' winners against the default, unless already done."""
        if self.plan.estimate or self.builder is None or not self.states or self._is_decided():
            return
        self.phase = "racing the whole model"
        self._watched("building it by default and tuned")
        winners = {s.task.key: w for s in self.states if (w := s.winner) is not None}
        promising = sorted(self.states, key=lambda s: -s.hope())
        tuned = {k for k, w in winners.items() if w.sketch != DEFAULT_SKETCH}
        changed = [s.task.key for s in promising if s.task.key in tuned]
        try:
            made = composition(self._racer(self.builder, winners, changed), changed, self.budget)
        except (Unraceable, TimeUp) as e:
            self._note(f"the whole model was not raced: {e}")
            return
        picks = tuple((k, w.trial if k in made.kept else "") for k, w in winners.items())
        found = made.found or SpeedComparison((), ())
        runs = found.runs, found.default_runs
        self.verdict = stamped(
            Verdict(self._model.id, self.device, picks, *runs, made.cut, time.time())
        )
        self.writer.append(self.verdict)
        dropped = len(changed) - len(made.kept)
        text = f"{self.verdict.speedup:.2f}x" if made.kept else "the default is kept"
        more = f", {counted(dropped, 'winner')} dropped" if dropped else ""
        more += " for lack of time to try them" if dropped and made.cut else ""
        self._tell("model", "", f"whole model: {text}{more}")

    def _is_decided(self) -> bool:
        """True if the model was raced after its groups, and not for lack of time cut short."""
        newest = max((s.newest for s in self.states), default=0.0)
        return self.verdict is not None and self.verdict.ts >= newest and not self.verdict.cut

    def _racer(
        self, builder: PreparedModule, winners: Mapping[str, Best], changed: Sequence[str]
    ) -> ModelRacer:
        return ModelRacer(
            builder,
            {k: Trace.from_json(winners[k].trace) for k in changed},
            self.pool,
            self._lock,
            self._scratch.path,
            self.plan.seed,
            self.budget.until,
            self._watch,
        )

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._tell("note", "", text)

    def _kept(self) -> str:
        count = counted(self.trials, "trial")
        kept = f"{count} {'is' if self.trials == 1 else 'are'} kept in {self.writer.path}"
        return f"{kept}; run the same command again to resume"

    def _watch(self, underway: Underway) -> None:
        """Report the phases of the children, but not while one of them is timing."""
        self.workers = underway.workers
        for text in underway.news:
            self._note(text)
        phases = {phase for _, phase in underway.jobs}
        if phases == {"wait"}:
            self._held_up(self._lock.strangers())
        elif "run" not in phases:
            named = {s.task.key: s.task.name for s in self.states}
            did = [f"{DOING[phase]} {named.get(j.key, 'the model')}" for j, phase in underway.jobs]
            self._watched(", ".join(dict.fromkeys(did)))

    def _held_up(self, strangers: tuple[int, ...]) -> None:
        """Report the processes that this tuning waits for."""
        named = ", ".join(f"process {pid}" for pid in strangers)
        self._watched(f"waiting for the machine, which {named or 'a timed run'} has")

    def _watched(self, text: str) -> None:
        self._tell("wait", "", text)

    def _left(self) -> tuple[float, float] | None:
        trials = self.plan.trials - self.trials if self.phase in ("starting", "measuring") else 0
        return self.budget.range(max(0, trials), *self._to_race())

    def _tell(self, event: str, task: str, text: str) -> None:
        if self.listener is None:
            return
        tasks = tuple(s.result() for s in self.states)
        before, after = totals(tasks)
        self.listener(
            Progress(
                event=event,
                task=task,
                text=text,
                trials=self.trials,
                budget=max(self.plan.trials, self.trials),
                failures=self._failures(),
                elapsed=self.budget.elapsed,
                left=self._left(),
                default_seconds=before,
                best_seconds=after,
                tasks=tasks,
                phase=self.phase,
                workers=self.workers,
            )
        )

    def _failures(self) -> Counter[str]:
        return sum((s.failures for s in self.states), Counter())

    def _result(self, stopped: str) -> TuneResult:
        return TuneResult(
            model=self.plan.model,
            target=self.plan.target.key,
            log=self.writer.path,
            tasks=tuple(s.result() for s in self.states),
            trials=self.trials,
            measured=self.measured,
            seconds=self.budget.elapsed,
            stopped=stopped,
            failures=self._failures(),
            notes=tuple(self.notes),
            verdict=self.verdict,
        )
