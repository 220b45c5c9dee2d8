"""What a measuring child does for a job: build the kernel, check its result, time it.

The result of every candidate is compared with the interpreter's before it is timed. Building shares
the machine's lock with other builders; timing holds it alone.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from ...ir.accuracy import relative_error
from ...ir.dtypes import to_numpy
from ...ir.errors import DeviceError, NestwrightError
from ...ir.target import Target
from ...schedule.sketches.generate import generate
from ...schedule.sketches.space import Sketch
from ..programs import Program
from ..records import Json
from .candidates import Rejected, in_short, make_schedule
from .lock import MachineLock
from .machine import Machine, Runnable
from .processor import Processor
from .protocol import Candidate, Job, Outcome
from .timing import Yardstick, race, time_call

Array: TypeAlias = np.ndarray[Any, Any]

KEPT = 4  # programs whose inputs and sketches stay in memory


@dataclass(slots=True)
class Loaded:
    """A program made ready: its sketches, its buffers on the machine, the right result."""

    program: Program
    target: Target
    sketches: dict[str, Sketch]
    machine: Machine
    expected: list[Array]
    yardstick: Yardstick = field(default_factory=Yardstick)


@dataclass(slots=True)
class Built:
    """A candidate compiled and checked."""

    run: Runnable
    trace: list[Json]
    error: float
    seconds: float

    def outcome(self, runs: Sequence[float], drift: float = 1.0) -> Outcome:
        """What became of it, timed."""
        facts = dict(self.run.facts)
        return Outcome(
            "ok", tuple(runs), self.trace, self.error, "", self.seconds, drift, facts=facts
        )


class Harness:
    """Serves jobs. ``enter`` is told each phase, so that the parent can watch the clock."""

    def __init__(self, enter: Callable[[str], object]) -> None:
        self._enter = enter
        self._loaded: OrderedDict[tuple[str, str, int], Loaded] = OrderedDict()
        self._lock = MachineLock()

    def run(self, job: Job) -> tuple[Outcome, ...]:
        """The outcome of each candidate of the job."""
        self._enter("load")
        try:
            loaded = self._load(job)
            match job.kind:
                case "measure":
                    return tuple(self._measure(job, loaded, c) for c in job.candidates)
                case "compile":
                    return tuple(self._tell(loaded, c) for c in job.candidates)
                case "race":
                    return self._race(job, loaded)
                case _:
                    return (Outcome("invalid", note=f"job kind {job.kind}"),) * len(job.candidates)
        except DeviceError as e:  # nothing on this device can be trusted any more
            return (Outcome("crash", note=in_short(e), fault=True),) * len(job.candidates)
        except NestwrightError as e:
            return (Outcome("build", note=in_short(e)),) * len(job.candidates)

    def _load(self, job: Job) -> Loaded:
        name = (job.key, job.target, job.seed)
        if name not in self._loaded:
            while len(self._loaded) >= KEPT:
                self._loaded.popitem(last=False)
            self._loaded[name] = _load(job)
        self._loaded.move_to_end(name)
        return self._loaded[name]

    def _measure(self, job: Job, loaded: Loaded, c: Candidate) -> Outcome:
        try:
            built = self._build(loaded, c)
        except Rejected as e:
            return e.outcome
        call, clock = built.run.call, loaded.machine.clock
        self._enter("wait")
        with self._lock.timing():
            self._enter("run")
            before = loaded.yardstick.drift(clock)
            runs = time_call(call, clock, job.incumbent * before, job.fill)
            # What slowed only one of the two was an interruption, and may have missed the runs.
            drift = min(before, loaded.yardstick.drift(clock)) if before > 1 else 1.0
        loaded.yardstick.offer(call, min(runs) / drift)
        return built.outcome(runs, drift)

    def _tell(self, loaded: Loaded, c: Candidate) -> Outcome:
        """What the compiler says of a candidate; nothing is run."""
        self._enter("wait")
        with self._lock.building():
            self._enter("build")
            try:
                return Outcome("ok", facts=dict(self._compile(loaded, c)[0].facts))
            except Rejected as e:
                return e.outcome

    def _build(self, loaded: Loaded, c: Candidate) -> Built:
        """Schedule, compile, run once and compare; ``Rejected`` where one of these fails."""
        self._enter("wait")
        with self._lock.building():
            self._enter("build")
            run, trace, seconds = self._compile(loaded, c)
            self._enter("run")
            return Built(run, trace, _check(run, loaded, trace, seconds), seconds)

    def _compile(self, loaded: Loaded, c: Candidate) -> tuple[Runnable, list[Json], float]:
        """A candidate's code, its trace, and the seconds that it took."""
        began = time.perf_counter()
        schedule = make_schedule(loaded.program.func, loaded.sketches, loaded.target, c)
        trace = cast("list[Json]", schedule.trace.to_json())
        try:
            run = loaded.machine.compile(schedule.func)
        except (MemoryError, DeviceError, Rejected):
            raise  # Rejected comes with an outcome of its own
        except Exception as e:  # a bug of the compiler must not end the tuning of everything else
            seconds = time.perf_counter() - began
            raise Rejected(Outcome("build", (), trace, note=in_short(e), build=seconds)) from None
        return run, trace, time.perf_counter() - began

    def _race(self, job: Job, loaded: Loaded) -> tuple[Outcome, ...]:
        """Every candidate in turn, again and again, in alternating order."""
        outcomes: dict[int, Outcome] = {}
        built: dict[int, Built] = {}
        for number, c in enumerate(job.candidates):
            try:
                built[number] = self._build(loaded, c)
            except Rejected as e:
                outcomes[number] = e.outcome
        calls = {n: b.run.call for n, b in built.items()}
        self._enter("wait")
        with self._lock.timing():
            self._enter("run")
            runs = race(calls, loaded.machine.clock, job.fill)
        for number, b in built.items():
            outcomes[number] = b.outcome(runs[number])
        return tuple(outcomes[n] for n in range(len(job.candidates)))


def _load(job: Job) -> Loaded:
    program = Program(job.form, job.text)
    target = Target.parse(job.target)
    sketches = {s.name: s for s in generate(program.func, target)}
    arguments = program.arguments(job.seed)
    expected = _expected(program, arguments, Path(job.reference))
    return Loaded(program, target, sketches, _machine(program, arguments, target), expected)


def _machine(program: Program, arguments: Sequence[Array], target: Target) -> Machine:
    """The machine of a target, with sets of the program's buffers on it."""
    if target.kind == "cuda":
        from .device import Device  # what it brings is an extra

        return Device(program, arguments, target)
    return Processor(program, arguments, target)


def _expected(program: Program, arguments: Sequence[Array], path: Path) -> list[Array]:
    """The interpreter's result: from the file if an earlier job left it there, else computed."""
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            raw = [file[f"arr_{n}"] for n in range(len(program.outputs))]
        return [
            r.view(to_numpy(b.dtype)).reshape(b.shape)
            for r, b in zip(raw, program.outputs, strict=True)
        ]
    expected = [np.array(x, order="C") for x in program.expect(arguments)]
    temporary = path.with_name(f"{path.stem}.{os.getpid()}.tmp.npz")
    np.savez(temporary, *(x.reshape(-1).view(np.uint8) for x in expected))
    temporary.replace(path)
    return expected


def _check(run: Runnable, loaded: Loaded, trace: list[Json], seconds: float) -> float:
    """Run once and compare; the error relative to the root mean square of the result."""
    outputs = run.results()
    if loaded.program.difference(outputs, loaded.expected, loaded.target.tf32) > 1:
        errors = zip(outputs, loaded.expected, strict=True)
        worst = max(float(np.mean(a != b)) if a.shape == b.shape else 1.0 for a, b in errors)
        note = f"differs from the interpreter in {worst:.1%} of its elements"
        raise Rejected(Outcome("wrong", (), trace, note=note, build=seconds))
    pairs = zip(outputs, loaded.expected, strict=True)
    return max((relative_error(a, b) for a, b in pairs if b.dtype.kind not in "biu"), default=0.0)
