"""Compile kernels in several processes: this one and helpers take jobs from one queue.

LLVM holds one lock, and lowering is Python, so threads do not help. A helper is a fresh interpreter
(a fork would copy threads and locks in an unknown state) that takes a second to import the
compiler, so it may be started before the jobs are known; this process works all the while, and ends
a helper that is not ready when the jobs are. One that fails or dies costs nothing but time: its job
is done here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from time import perf_counter
from typing import Any

from ...ir.errors import ArtifactError
from ...ir.target import HERE, Target
from ...schedule.language.trace import Trace
from ..plan.code.kernel import KernelCode, PackCode, Sharing
from ..targets.cpu.backend import has_shared_runtime, keep_shared_runtime
from ..targets.registry import backend, codec
from ..targets.workers import workers
from .compile_group import LoweredGroup, compile_text

JOBS_PER_HELPER = 6  # fewer jobs do not pay for starting one


@dataclass(frozen=True, slots=True)
class CompileJob:
    """A group to compile: canonical HLO text, the kernel's symbol, its schedule if it has one, and
    its outputs that nothing reads soon.
    """

    text: str
    symbol: str
    trace: Trace | None
    streamed: tuple[int, ...] = ()


@dataclass
class Queue:
    """Jobs to be done, and their results so far."""

    target: Target
    jobs: Mapping[str, CompileJob]
    waiting: deque[str]
    done: dict[str, KernelCode] = field(default_factory=dict)
    timings: list[dict[str, float]] = field(default_factory=list)

    def take(self) -> str | None:
        """Return the next job's key, or None when all have been taken."""
        try:
            return self.waiting.popleft()
        except IndexError:
            return None


@contextmanager
def started_helpers(target: Target, jobs: int) -> Iterator[list[Helper]]:
    """Start the helpers for an estimated number of jobs; they are stopped at the end."""
    helpers = [Helper(shares=n == 0) for n in range(_useful_helpers(target, jobs))]
    try:
        yield helpers
    finally:
        for helper in helpers:
            helper.stop()


def compile_all(
    jobs: Mapping[str, CompileJob],
    target: Target,
    timings: dict[str, float],
    started: Sequence[Helper] = (),
    kept: dict[str, LoweredGroup] | None = None,
) -> tuple[dict[str, KernelCode], dict[str, Exception]]:
    """Return object code by key, and the errors of the jobs that failed.

    ``started`` are the helpers to use first; others are started if there are jobs for more.
    ``kept`` gets the groups that are lowered in this process, as from ``compile_text``.
    ``timings`` gets the wall time, distributed over the stages in proportion to their CPU time.
    """
    start = perf_counter()
    longest_first = sorted(jobs, key=lambda key: -len(jobs[key].text))
    queue = Queue(target, jobs, deque(longest_first))
    errors: dict[str, Exception] = {}
    wanted = _useful_helpers(target, len(jobs))
    helpers = [*started[:wanted], *(Helper(shares=n == 0) for n in range(len(started), wanted))]
    try:
        for helper in helpers:
            helper.feed(queue)
        _compile_here(queue, errors, kept)
        for helper in helpers:
            helper.wait()
        for helper in helpers:
            helper.stop()
        _compile_here(queue, errors, kept)  # what a helper gave back
    finally:
        for helper in helpers:
            helper.stop()
    busy = sum(sum(spent.values()) for spent in queue.timings) or 1.0
    share = (perf_counter() - start) / busy
    for spent in queue.timings:
        for stage, seconds in spent.items():
            timings[stage] = timings.get(stage, 0.0) + seconds * share
    return queue.done, errors


def _useful_helpers(target: Target, jobs: int) -> int:
    useful = backend(target).weight * jobs // JOBS_PER_HELPER
    return max(0, min(workers() - 1, useful)) if sys.executable else 0


def _compile_here(
    queue: Queue, errors: dict[str, Exception], kept: dict[str, LoweredGroup] | None
) -> None:
    timings: dict[str, float] = {}
    queue.timings.append(timings)
    while (key := queue.take()) is not None:
        job = queue.jobs[key]
        try:
            queue.done[key] = compile_text(
                job.text, job.symbol, queue.target, job.trace, timings, job.streamed, kept
            )
        except Exception as error:
            errors[key] = error


class Helper:
    """A child process, and the thread that feeds it once there is a queue.

    One that ``shares`` compiles what all executables share while it waits, if that is missing here.
    """

    def __init__(self, shares: bool) -> None:
        paths = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            process_group=0,  # a terminal's Ctrl-C is for this process, which then ends it
        )
        self._thread: Thread | None = None
        self._idle = Event()
        self._idle.set()
        with suppress(OSError):  # its end is noticed when it is to answer
            self._send({"shared": shares and not has_shared_runtime(Target.parse(HERE))})

    def feed(self, queue: Queue) -> None:
        """Take jobs from the queue, as soon as the child has imported the compiler."""
        self._thread = Thread(target=self._feed, args=(queue,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when the child has no job: it is done, or has failed and its job is back in the
        queue.
        """
        self._idle.wait()

    def _feed(self, queue: Queue) -> None:
        try:
            if self._is_ready():
                while self._does_one(queue):
                    pass
        finally:
            self._idle.set()

    def _does_one(self, queue: Queue) -> bool:
        """Do a job; False if there is none, or if it is given back."""
        self._idle.clear()
        key = queue.take()
        if key is None:
            return False
        try:
            kernel = self.ask(queue, queue.jobs[key])
        except (OSError, ValueError, LookupError, ArtifactError):
            kernel = None
        if kernel is None:
            queue.waiting.append(key)
            return False
        queue.done[key] = kernel
        self._idle.set()
        return True

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def _header(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline() or b"{}")
        return found

    def _pieces(self, sizes: Sequence[int]) -> list[bytes] | None:
        """Return the bytes that follow a header; None if they end early."""
        assert self.process.stdout is not None
        pieces = [self.process.stdout.read(size) for size in sizes]
        return pieces if [len(p) for p in pieces] == list(sizes) else None

    def _is_ready(self) -> bool:
        """Wait for the child's first answer, with what executables share if it was asked for."""
        try:
            objects = self._pieces(self._header()["sizes"])
            if objects:
                keep_shared_runtime(Target.parse(HERE), objects)
        except (OSError, ValueError, LookupError):
            return False
        return objects is not None

    def ask(self, queue: Queue, job: CompileJob) -> KernelCode | None:
        """Return the child's kernel for a job; None if it has none or its answer is damaged."""
        message = {
            "text": job.text,
            "symbol": job.symbol,
            "target": queue.target.spec,
            "trace": None if job.trace is None else job.trace.to_json(),
            "accuracy": None if job.trace is None else job.trace.accuracy,
            "bypassing": job.streamed,
        }
        self._send(message)
        header = self._header()
        if "parts" not in header:
            return None
        lengths = [size for _, size in header["parts"]] + [p[-1] for p in header["packs"]]
        pieces = self._pieces(lengths)
        if pieces is None:
            return None
        queue.timings.append(header["timings"])
        names = [name for name, _ in header["parts"]]
        found = dict(zip(names, pieces, strict=False))
        code = codec(queue.target).join(found, queue.target)
        packs = tuple(
            PackCode(index, symbol, size, piece)
            for (index, symbol, size, _), piece in zip(
                header["packs"], pieces[len(names) :], strict=True
            )
        )
        updates = tuple((o, i) for o, i in header["updates"])
        sharing, sizes = Sharing(tuple(header["in_place"]), updates), tuple(header["buffers"])
        return KernelCode(code, sizes, header["workspace"], sharing, packs, header["traced"])

    def stop(self) -> None:
        """End the child, whatever it does; a second time, nothing is left to do."""
        self.process.kill()
        if self._thread is not None:
            self._thread.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
