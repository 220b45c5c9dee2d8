"""The tuning loop: default schedules, rounds on the most promising tasks, then races.

Each group's fastest schedules are raced against its default, then the whole model with its groups'
winners against the default model. The budget counts the trials of these tasks, including those
already in the log. A trial is logged as soon as it is measured, so tuning can be killed at any time
and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from ...codegen.driver.build import PreparedModule
from ...ir.errors import FleetError, MeasureError
from ...ir.scratch import Scratch
from ...schedule.language.trace import Trace
from ..cost.model import CostModel
from ..log.contents import Log
from ..log.journal import LogWriter
from ..log.records import DEFAULT_SKETCH, Trial
from ..log.units import counted
from ..measure.host.lock import MachineLock
from ..measure.machine import meter_row
from ..measure.protocol import Candidate, Job, Measurer, Outcome, Underway
from ..search.rounds import ROUNDS, next_round
from ..search.strategy import Proposal
from .budget import Budget, advice
from .compose import TimeUp
from .jobs import JobMaker, candidate
from .modelrace import ModelRacer, Unraceable, composition
from .offers import candidates, complaints
from .plan import TuningPlan
from .progress import Listener, TuneResult, TuningInterrupted
from .reporter import Reporter
from .state import TuningState
from .taskstate import TaskState

T = TypeVar("T")

FINALISTS = 5  # of a race: readings of one schedule are a few percent apart


class Tuner:
    """One call of ``tune``: it measures, adds to ``state`` what it finds, and reports it."""

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
        self.pool = pool
        self.builder = builder
        self.budget = Budget(plan.seconds) if budget is None else budget
        self.state = TuningState(plan, writer, self.budget, whole=builder is not None)
        self.reporter = Reporter(self.state, listener)
        learns = plan.strategy == "native" and not plan.estimate
        self.model = CostModel(plan.seed) if learns else None
        self._lock = MachineLock(waiting=self.reporter.held_up)
        self._scratch = Scratch("tune")
        with self._beside():
            self.state.begin()
        self._jobs = JobMaker(plan.target, plan.seed, self._scratch.path)
        if not plan.estimate:
            self._jobs.know_peaks(plan.peaks)
        self.state.resume(log)
        self._fit()

    def _beside(self) -> AbstractContextManager[None]:
        """Return a context for computing in this process, during which nothing is timed."""
        return nullcontext() if self.plan.estimate else self._lock.building()

    def close(self) -> None:
        """Remove the scratch files."""
        self._scratch.close()
        self._lock.close()

    def run(self) -> TuneResult:
        """Tune until the trials or the time are used up, then race."""
        state, reporter = self.state, self.reporter
        tasks, trials = counted(len(state.tasks), "task"), counted(state.trials, "trial")
        reporter.tell("start", "", f"{tasks}, {trials} in the log")
        offers = complaints(self.plan.tasks, self.plan.target)
        of_model = self.model.note if self.model is not None else ""
        for text in filter(None, (*self.plan.notes, *offers, of_model)):
            reporter.note(text)
        try:
            stopped = self._search()
            self._race_groups()
            self._race_model()
        except KeyboardInterrupt:
            raise TuningInterrupted(f"interrupted; {state.kept}") from None
        except (FleetError, MeasureError) as e:
            raise type(e)(e.what, e.why, e.where, state.kept) from None
        for text in filter(None, (s.complaint for s in state.tasks)):
            reporter.note(text)
        never = [s.task.name for s in state.tasks if s.default is None]
        pace, wanted = self.budget.pace, self.plan.trials
        for text in advice(stopped, state.trials, wanted, pace, never, len(state.tasks)):
            reporter.note(text)
        result = state.result(stopped, reporter.notes)
        reporter.tell("done", "", f"stopped: {stopped}")
        return result

    def _search(self) -> str:
        """Measure until the budget, the time or the space is exhausted; return which of them."""
        state, plan = self.state, self.plan
        if not state.tasks:
            return "nothing to tune"
        self.reporter.phase = "measuring"
        self.budget.start()
        self._measure_defaults()
        self._measure_offers()
        self._measure_seeds()
        while state.trials < plan.trials:
            if state.search_seconds <= 0:
                return "time"
            full, left = ROUNDS[plan.target.row.work], plan.trials - state.trials
            promises = [(s.gain(), len(s.trials)) for s in state.tasks]
            chosen = next_round(promises, full, self.pool.slots, plan.trials, left)
            if not chosen:
                return "exhausted"
            self._round([(state.tasks[n], size) for n, size in chosen])
        return "budget"

    def _measure_defaults(self) -> None:
        """Measure the default schedules that the log does not have."""
        fresh = [s for s in self.state.tasks if s.default is None]
        default = Candidate(DEFAULT_SKETCH, {})
        self._measure_each([(s, default) for s in self._afforded(fresh)], "default")

    def _measure_offers(self) -> None:
        """Measure the library functions that are offered for tasks, whatever the budget."""
        target = self.plan.target
        offers = [(s, c) for s in self.state.tasks for c in candidates(s.task, target, s.libraries)]
        for trial in self._measure_each(offers, "library"):
            if not trial.ran:
                self.reporter.note(f"{trial.note}; our kernel is used")

    def _measure_seeds(self) -> None:
        """Measure what won elsewhere for groups like these, unless the log has it already."""
        wanted = [
            (s, self._candidate(s, Proposal(p, "seed")))
            for s in self.state.tasks
            for p in self.plan.seeds.get(s.task.key, ())
            if s.task.space.valid(p) and p not in map(s.point, s.trials)
        ]
        self._measure_each(self._afforded(wanted), "seed")

    def _afforded(self, wanted: Sequence[T]) -> Sequence[T]:
        """Return the first of these, as many as the budget has trials left."""
        return wanted[: max(0, self.plan.trials - self.state.trials)]

    def _measure_each(
        self, pairs: Sequence[tuple[TaskState, Candidate]], source: str
    ) -> list[Trial]:
        by_key = {s.task.key: s for s, _ in pairs}

        def record(job: Job, outcomes: tuple[Outcome, ...]) -> Trial:
            return self._record(by_key[job.key], job.candidates[0], outcomes[0], source)

        return self._measure(self._single_jobs(pairs), record)

    def _single_jobs(self, pairs: Iterable[tuple[TaskState, Candidate]]) -> Iterator[Job]:
        """Yield a job for each candidate, while there is time to search."""
        for s, c in pairs:
            if self.state.search_seconds > 0:
                yield self._job(s, "measure", (c,))

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
        self.reporter.wait("choosing what to measure")
        about: dict[int, tuple[TaskState, Candidate, str, float | None]] = {}
        for s, n in chosen:
            proposals = self._proposals(s, n)
            with self._beside():
                told = s.predict([p.point for p in proposals], self.model)
            for p, seconds in zip(proposals, told, strict=True):
                c = self._candidate(s, p)
                about[id(c)] = s, c, p.source, seconds

        def record(job: Job, outcomes: tuple[Outcome, ...]) -> Trial:
            state, c, source, seconds = about[id(job.candidates[0])]
            return self._record(state, c, outcomes[0], source, seconds)

        trials = self._measure(self._single_jobs((s, c) for s, c, *_ in about.values()), record)
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
                self.model.fit([s.sample for s in self.state.tasks])

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
        """Add a trial and report it."""
        trial, better = self.state.add_trial(state, c, outcome, source, predicted)
        what = f"{trial.cost * 1e6:.1f} us" if trial.ran else trial.status
        self.reporter.tell("best" if better else "trial", state.task.name, f"{source}: {what}")
        return trial

    def _race_groups(self) -> None:
        """Race the default against the fastest schedules of each group with a new candidate."""
        if self.plan.estimate:
            return
        self.reporter.phase = "racing groups"
        states = sorted((s for s in self.state.tasks if s.needs_race), key=lambda s: -s.hope())
        by_key = {s.task.key: s for s in states}
        jobs = (self._race_job(s) for s in states if self.state.has_time_to_race)
        self._measure(jobs, lambda job, outcomes: self._settle(by_key[job.key], job, outcomes))

    def _race_job(self, state: TaskState) -> Job:
        assert state.default is not None
        runners = [state.default, *state.finalists(FINALISTS)]
        candidates = tuple(Candidate(t.sketch, t.decisions, t.trace) for t in runners)
        return self._job(state, "race", candidates)

    def _settle(self, state: TaskState, job: Job, outcomes: tuple[Outcome, ...]) -> None:
        """Add the winner of a race and report it."""
        best = self.state.add_race(state, job.candidates, outcomes)
        if best is None:
            why = f"race without a result ({outcomes[0].note})"
            self.reporter.note(f"{state.task.name}: {why}")
            return
        kept = best.sketch == DEFAULT_SKETCH
        text = "the default is kept" if kept else f"{best.default_seconds / best.seconds:.2f}x"
        self.reporter.tell("race", state.task.name, text)

    def _race_model(self) -> None:
        """Race the model with its groups' winners against the default, unless already done."""
        state, reporter = self.state, self.reporter
        if self.plan.estimate or self.builder is None or not state.tasks or state.is_decided:
            return
        reporter.phase = "racing the whole model"
        reporter.wait("building it by default and tuned")
        winners = [w for s in state.tasks if (w := s.winner) is not None]
        tuned = {w.workload: w for w in winners if w.sketch != DEFAULT_SKETCH}
        promising = sorted(state.tasks, key=lambda s: -s.hope())
        changed = [s.task.key for s in promising if s.task.key in tuned]
        traces = {key: Trace.from_json(tuned[key].trace) for key in changed}
        try:
            made = composition(self._racer(self.builder, traces), changed, self.budget)
        except (Unraceable, TimeUp) as e:
            reporter.note(f"the whole model was not raced: {e}")
            return
        verdict = state.add_verdict(made, winners)
        dropped = len(changed) - len(made.kept)
        text = f"{verdict.speedup:.2f}x" if made.kept else "the default is kept"
        more = f", {counted(dropped, 'winner')} dropped" if dropped else ""
        more += " for lack of time to try them" if dropped and made.cut else ""
        reporter.tell("model", "", f"whole model: {text}{more}")

    def _racer(self, builder: PreparedModule, traces: Mapping[str, Trace]) -> ModelRacer:
        return ModelRacer(
            builder,
            traces,
            self.pool,
            self._lock,
            self._scratch.path,
            self.plan.seed,
            self.budget.until,
            self._watch,
        )

    def _watch(self, underway: Underway) -> None:
        self.reporter.watch(underway, self._lock.strangers)
