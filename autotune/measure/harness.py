"""What a measuring child does for a job: build the kernel, check its result, time it.

The result of every candidate is compared with the interpreter's before it is timed. Building shares
the machine's lock with other builders; timing holds it alone.
"""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from ...codegen.kernel import Kernel, compile_func
from ...ir.accuracy import relative_error
from ...ir.dtypes import to_numpy
from ...ir.errors import NestwrightError
from ...ir.loop.nodes import Buffer
from ...ir.target import Target
from ...schedule.sketches.generate import generate
from ...schedule.sketches.space import Sketch
from ..programs import Program
from ..records import Json
from .candidates import Rejected, in_short, make_schedule
from .lock import MachineLock
from .protocol import Candidate, Job, Outcome
from .timing import Yardstick, clock_for, race, time_call

Array: TypeAlias = np.ndarray[Any, Any]

ALIGNMENT = 64  # bytes
KEPT = 4  # programs whose inputs and sketches stay in memory
COPIES = 32  # most sets of buffers that timing rotates through


@dataclass(slots=True)
class Loaded:
    """A program made ready: its sketches, sets of buffers to rotate through, the right result."""

    program: Program
    target: Target
    sketches: dict[str, Sketch]
    sets: list[list[Array]]
    expected: list[Array]
    yardstick: Yardstick = field(default_factory=Yardstick)


@dataclass(slots=True)
class Built:
    """A candidate compiled and checked."""

    kernel: Kernel
    trace: list[Json]
    error: float
    seconds: float


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
        except NestwrightError as e:
            return (Outcome("build", note=in_short(e)),) * len(job.candidates)
        match job.kind:
            case "measure":
                return tuple(self._measure(job, loaded, c) for c in job.candidates)
            case "race":
                return self._race(job, loaded)
            case _:
                return (Outcome("invalid", note=f"job kind {job.kind}"),) * len(job.candidates)

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
        call, clock = _caller(built.kernel, loaded), clock_for(loaded.target.threads)
        self._enter("wait")
        with self._lock.timing():
            self._enter("run")
            before = loaded.yardstick.drift(clock)
            runs = time_call(call, clock, job.incumbent * before, job.fill)
            # What slowed only one of the two was an interruption, and may have missed the runs.
            drift = min(before, loaded.yardstick.drift(clock)) if before > 1 else 1.0
        loaded.yardstick.offer(call, min(runs) / drift)
        return Outcome("ok", runs, built.trace, built.error, "", built.seconds, drift)

    def _build(self, loaded: Loaded, c: Candidate) -> Built:
        """Schedule, compile, run once and compare; ``Rejected`` where one of these fails."""
        self._enter("wait")
        with self._lock.building():
            self._enter("build")
            return self._compile(loaded, c)

    def _compile(self, loaded: Loaded, c: Candidate) -> Built:
        began = time.perf_counter()
        schedule = make_schedule(loaded.program.func, loaded.sketches, loaded.target, c)
        trace = cast("list[Json]", schedule.trace.to_json())
        try:
            kernel = compile_func(schedule.func, loaded.target)
        except MemoryError:
            raise
        except Exception as e:  # a bug of the compiler must not end the tuning of everything else
            seconds = time.perf_counter() - began
            raise Rejected(Outcome("build", (), trace, note=in_short(e), build=seconds)) from None
        seconds = time.perf_counter() - began
        self._enter("run")
        return Built(kernel, trace, _check(kernel, loaded, trace, seconds), seconds)

    def _race(self, job: Job, loaded: Loaded) -> tuple[Outcome, ...]:
        """Every candidate in turn, again and again, in alternating order."""
        outcomes: dict[int, Outcome] = {}
        built: dict[int, Built] = {}
        for number, c in enumerate(job.candidates):
            try:
                built[number] = self._build(loaded, c)
            except Rejected as e:
                outcomes[number] = e.outcome
        calls = {n: _caller(b.kernel, loaded) for n, b in built.items()}
        self._enter("wait")
        with self._lock.timing():
            self._enter("run")
            runs = race(calls, clock_for(loaded.target.threads), job.fill)
        for number, b in built.items():
            outcomes[number] = Outcome("ok", tuple(runs[number]), b.trace, b.error, "", b.seconds)
        return tuple(outcomes[n] for n in range(len(job.candidates)))


def _load(job: Job) -> Loaded:
    program = Program(job.form, job.text)
    target = Target.parse(job.target)
    sketches = {s.name: s for s in generate(program.func, target)}
    arguments = program.arguments(job.seed)
    expected = _expected(program, arguments, Path(job.reference))
    return Loaded(program, target, sketches, _rotation(program, arguments, target), expected)


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


def aligned(size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A zeroed array of ``size`` bytes that starts at a multiple of ``ALIGNMENT``."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def _buffer(b: Buffer) -> Array:
    return aligned(math.prod(b.shape) * b.dtype.bytes, b.shape, to_numpy(b.dtype))


def _rotation(program: Program, arguments: Sequence[Array], target: Target) -> list[list[Array]]:
    """Aligned sets of all parameters, enough of them that a set has left L2 when its turn comes."""
    size = sum(math.prod(b.shape) * b.dtype.bytes for b in program.func.params)
    caches = 8 * target.l2 * target.threads  # every thread has one of its own
    copies = max(1, min(COPIES, math.ceil(caches / max(1, size))))
    if size < target.l1:
        copies = 1  # what is this small is hot in the model too: its producer just ran
    sets = []
    for _ in range(copies):
        buffers = [_buffer(b) for b in program.func.params]
        for buffer, value in zip(buffers, arguments, strict=False):
            buffer[...] = value
        sets.append(buffers)
    return sets


def _check(kernel: Kernel, loaded: Loaded, trace: list[Json], seconds: float) -> float:
    """Run once and compare; the error relative to the root mean square of the result."""
    count = len(loaded.program.outputs)
    outputs = loaded.sets[0][-count:]
    for out in outputs:
        out.reshape(-1).view(np.uint8).fill(0xA5)  # so that an element never written shows
    kernel.run(_pointers(loaded.sets[0]))
    if loaded.program.difference(outputs, loaded.expected) > 1:
        errors = zip(outputs, loaded.expected, strict=True)
        worst = max(float(np.mean(a != b)) if a.shape == b.shape else 1.0 for a, b in errors)
        note = f"differs from the interpreter in {worst:.1%} of its elements"
        raise Rejected(Outcome("wrong", (), trace, note=note, build=seconds))
    pairs = zip(outputs, loaded.expected, strict=True)
    return max((relative_error(a, b) for a, b in pairs if b.dtype.kind not in "biu"), default=0.0)


def _pointers(buffers: Sequence[Array]) -> list[int]:
    return [b.ctypes.data for b in buffers]


def _caller(kernel: Kernel, loaded: Loaded) -> Callable[[int], None]:
    """A function that runs the kernel so many times, on one set of buffers after the other."""
    work = aligned(kernel.compiled.workspace, (kernel.compiled.workspace,), np.dtype(np.uint8))
    extra = [work.ctypes.data] if work.size else []
    bound = [kernel.bind(_pointers(s)) for s in loaded.sets]
    sets = [(*pointers, *extra) for pointers, _ in bound]
    entry = kernel.entry

    def call(times: int, held: object = (kernel, work, bound, loaded.sets)) -> None:
        # What is held: the code and the memory behind the bare addresses.
        for n in range(times):
            entry(*sets[n % len(sets)])

    return call
