"""Execution of a job in a measuring child: build the kernel, check its results, time it.

Every candidate is checked before it is timed, and again afterwards. Building and checking share the
machine's lock with other builders; timing holds it exclusively.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from ...ir.errors import DeviceError, NestwrightError
from ...ir.target import Target
from ...schedule.excess_error import excess_error
from ...schedule.sketches.generate import generate
from ...schedule.space.analyze import work_share
from ...schedule.space.space import Sketch
from ..log.records import LIBRARY_SKETCH, Json
from ..tasks.programs import Program
from .candidates import Rejected, in_short, make_schedule
from .check import Say, Wrong, check, check_again, race_in
from .host.lock import MachineLock
from .library import library_trace
from .machine import Machine, Runnable, meter
from .models import race_models
from .protocol import Candidate, Job, Outcome, Phase
from .reference import Reference, load_reference
from .timing import ROUNDS, Call, Turns, Yardstick, read_off

T = TypeVar("T")
Judge: TypeAlias = Callable[[Runnable, Reference, Say, float], T]

MARGIN = 3  # times its estimate that the error of a schedule may be
KEPT = 4  # programs whose inputs and sketches stay in memory


@dataclass(slots=True)
class LoadedTask:
    """A loaded task: program, sketches, buffers on the machine, reference results."""

    program: Program
    target: Target
    sketches: dict[str, Sketch]
    machine: Machine
    reference: Reference
    yardstick: Yardstick = field(default_factory=Yardstick)


@dataclass(slots=True)
class Built:
    """A candidate compiled and checked.

    ``excess`` is the error that it may add to rounding, ``share`` the part of the task's
    multiply-adds that it does.
    """

    run: Runnable
    trace: list[Json]
    seconds: float
    excess: float = 0.0
    share: float = 1.0
    error: float = 0.0

    def outcome(self, runs: Sequence[float], drift: float = 1.0) -> Outcome:
        """Return its outcome with the timed runs."""
        facts = dict(self.run.facts)
        return Outcome(
            "ok", tuple(runs), self.trace, self.error, "", self.seconds, drift, facts=facts
        )


class Harness:
    """Serves jobs.

    ``tell`` is called with each phase, so that the parent can enforce time limits, and knows the
    candidate at fault if this process dies.
    """

    def __init__(self, tell: Callable[[Phase], object]) -> None:
        self._tell_phase = tell
        self._current: int | None = None
        self._loaded: OrderedDict[tuple[str, str, int], LoadedTask] = OrderedDict()
        self._lock = MachineLock()

    def run(self, job: Job) -> tuple[Outcome, ...]:
        """Return the outcome of each candidate of the job."""
        count = len(job.candidates)
        self._about(None)
        self._enter("load")
        try:
            if job.kind == "models":
                return race_models(job, self._enter, self._lock)
            loaded = self._load(job)
            match job.kind:
                case "measure":
                    return tuple(self._measure(job, loaded, n) for n in range(count))
                case "compile":
                    return tuple(self._compile_only(job, loaded, n) for n in range(count))
                case "race":
                    return self._race(job, loaded)
                case _:
                    return (Outcome("invalid", note=f"job kind {job.kind}"),) * count
        except DeviceError as e:  # the device is in an undefined state now
            fault = Outcome("crash", note=in_short(e), fault=True)
            lost = Outcome("lost", note="another candidate broke the device")
            culprit = self._current
            return tuple(fault if culprit in (None, n) else lost for n in range(count))
        except NestwrightError as e:
            return (Outcome("build", note=in_short(e)),) * count

    def _about(self, candidate: int | None) -> None:
        """Set the candidate that the following phases are about."""
        self._current = candidate

    def _enter(self, phase: str, doing: str = "") -> None:
        self._tell_phase(Phase(phase, self._current, doing))

    def _running(self, doing: str) -> None:
        self._enter("run", doing)

    def _load(self, job: Job) -> LoadedTask:
        """Return the job's program, loaded beside other builders but never beside a timed run."""
        name = (job.key, job.target, job.seed)
        if name not in self._loaded:
            while len(self._loaded) >= KEPT:
                self._loaded.popitem(last=False)
            self._enter("wait")
            with self._lock.building():
                self._enter("load")
                self._loaded[name] = _load(job)
        self._loaded.move_to_end(name)
        return self._loaded[name]

    def _measure(self, job: Job, loaded: LoadedTask, number: int) -> Outcome:
        self._about(number)
        try:
            built = self._build(loaded, job.candidates[number])
        except Rejected as e:
            return e.outcome
        call, machine, floor = built.run.call, loaded.machine, job.floor * built.share
        self._enter("wait")
        with self._lock.timing(), machine.alone():
            self._enter("run")
            reading = read_off(
                call,
                machine.clock,
                loaded.yardstick,
                job.incumbent,
                job.fill,
                floor,
                machine.sample,
                machine.regain,
            )
        try:
            self._check_again(loaded, built)
        except Rejected as e:
            return e.outcome
        if reading is None:
            note = f"timed below {floor:.3g} s, the least that this machine can take"
            return Outcome("invalid", (), built.trace, built.error, note, built.seconds)
        loaded.yardstick.offer(call, reading[0])
        return built.outcome(*reading)

    def _compile_only(self, job: Job, loaded: LoadedTask, number: int) -> Outcome:
        """Return the compiler's facts about a candidate without running it."""
        self._about(number)
        self._enter("wait")
        with self._lock.building():
            self._enter("build")
            try:
                return Outcome(
                    "ok", facts=dict(self._compile(loaded, job.candidates[number]).run.facts)
                )
            except Rejected as e:
                return e.outcome

    def _build(self, loaded: LoadedTask, c: Candidate) -> Built:
        """Schedule, compile and check a candidate; raise ``Rejected`` if one of these fails."""
        self._enter("wait")
        with self._lock.building():
            self._enter("build")
            built = self._compile(loaded, c)
            built.error = self._judged(loaded, built, check)
            return built

    def _check_again(self, loaded: LoadedTask, built: Built) -> None:
        """Check again after timing; raise ``Rejected`` if that fails."""
        self._enter("wait")
        with self._lock.building():
            self._judged(loaded, built, check_again)

    def _judged(self, loaded: LoadedTask, built: Built, judge: Judge[T]) -> T:
        """Return the verdict on a candidate's results; raise ``Rejected`` if they are wrong."""
        try:
            return judge(built.run, loaded.reference, self._running, built.excess)
        except Wrong as e:
            outcome = Outcome("wrong", (), built.trace, 0.0, str(e), built.seconds)
            raise Rejected(outcome) from None

    def _compile(self, loaded: LoadedTask, c: Candidate) -> Built:
        """Schedule and compile a candidate; raise ``Rejected`` if one of these fails."""
        began = time.perf_counter()
        if c.sketch == LIBRARY_SKETCH:
            name = str(c.decisions.get("library"))
            return Built(loaded.machine.library(name), library_trace(name), 0.0)
        schedule = make_schedule(loaded.program.func, loaded.sketches, loaded.target, c)
        trace = cast("list[Json]", schedule.trace.to_json())
        if told := race_in(schedule.func):
            raise Rejected(Outcome("wrong", (), trace, note=told))
        try:
            run = loaded.machine.compile(schedule.func)
        except (MemoryError, DeviceError, Rejected):
            raise  # Rejected has its own outcome
        except Exception as e:  # a bug of the compiler must not end the tuning of everything else
            seconds = time.perf_counter() - began
            raise Rejected(Outcome("build", (), trace, note=in_short(e), build=seconds)) from None
        excess = min(loaded.target.accuracy, MARGIN * excess_error(schedule.func))
        share = work_share(loaded.program.func, schedule.func)
        return Built(run, trace, time.perf_counter() - began, excess, share)

    def _race(self, job: Job, loaded: LoadedTask) -> tuple[Outcome, ...]:
        """Race all candidates, timed in turns in alternating order."""
        outcomes: dict[int, Outcome] = {}
        built: dict[int, Built] = {}
        for number, c in enumerate(job.candidates):
            self._about(number)
            try:
                built[number] = self._build(loaded, c)
            except Rejected as e:
                outcomes[number] = e.outcome
        runs = self._raced(loaded, built, job.fill)
        for number, b in built.items():
            self._about(number)
            try:
                self._check_again(loaded, b)
                outcomes[number] = b.outcome(runs[number])
            except Rejected as e:
                outcomes[number] = e.outcome
        return tuple(outcomes[n] for n in range(len(job.candidates)))

    def _raced(
        self, loaded: LoadedTask, built: dict[int, Built], fill: float
    ) -> dict[int, list[float]]:
        """Return the seconds per call of each, timed in turns.

        The parent is told of each candidate only during its warm-up, when a bad one crashes or
        hangs: reports at every turn would wake the parent during timing.
        """
        self._about(None)
        self._enter("wait")
        calls = [self._named(n, b.run.call) for n, b in built.items()]
        with self._lock.timing(), loaded.machine.alone():
            self._enter("run")
            machine = loaded.machine
            turns = Turns(calls, machine.clock, fill / ROUNDS, machine.sample, machine.regain)
            self._about(None)
            self._enter("run", "in a race")
            for _ in range(ROUNDS):
                turns.round()
        return dict(zip(built, turns.runs, strict=True))

    def _named(self, number: int, call: Call) -> Call:
        """Wrap a candidate's call in a race so that its first call is reported to the parent."""
        told = False

        def named(times: int) -> None:
            nonlocal told
            if not told:
                told = True
                self._about(number)
                self._enter("run", "in a race")
            call(times)

        return named


def _load(job: Job) -> LoadedTask:
    target = Target.parse(job.target)
    program = Program(job.form, job.text, target.vectors)
    sketches = {s.name: s for s in generate(program.func, target)}
    reference = load_reference(program, target, job.seed, Path(job.reference))
    machine = meter(target).machine(program, reference.ordinary.arguments, target, job.reuse)
    return LoadedTask(program, target, sketches, machine, reference)
