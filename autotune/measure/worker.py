"""The tuner's side of a measuring child: start it, exchange messages, kill it when it hangs.

If a child dies, the candidate that it was working on is at fault. A fresh child continues the job.
No candidate is at fault if a child does not get as far as its job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from threading import Thread
from typing import IO

from ...ir.errors import MeasureError
from ...ir.library.functions import for_children
from .host import placement
from .protocol import (
    LIBRARIES,
    MAX_MESSAGE,
    OUT_OF_MEMORY,
    Job,
    Outcome,
    Phase,
    decode_reply,
    encode_job,
)

CHILD = (sys.executable, "-m", "nestwright.autotune.measure.child")
ENDING = 10.0  # seconds that a child may take to end once its output is closed
STARTING = ("start", "wait")  # phases of a child that has no job yet
STARTS = 2  # children in succession that may fail to start
AT_ONCE = 4096  # bytes that an empty pipe takes on any system, though nobody reads


def child_environment(
    threads: int, core: int | None = None, libraries: str | None = None
) -> dict[str, str]:
    """Return the environment of a child with ``threads`` threads, pinned to ``core`` if given.

    ``libraries`` is what it needs to call library functions, by default those of this process.
    """
    library = for_children() if libraries is None else libraries
    own_threads = str(threads) if library else "1"  # nothing else is to wait in a child
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    quiet = dict.fromkeys(names, own_threads) | {LIBRARIES: library}
    own = {"NESTWRIGHT_NUM_THREADS": str(threads), "NESTWRIGHT_MEASURE_PARENT": str(os.getpid())}
    priority = {placement.VARIABLE: "on" if placement.wanted() else "off"}  # checked here
    pinned = {} if core is None else {"NESTWRIGHT_MEASURE_CORE": str(core)}
    return os.environ | quiet | own | priority | pinned


class Worker:
    """A slot for a child, which serves many jobs until it crashes or is killed."""

    def __init__(
        self,
        command: Sequence[str] = CHILD,
        core: int | None = None,
        threads: int = 1,
        libraries: str | None = None,
    ) -> None:
        """``core``, ``threads`` and ``libraries`` are as for ``child_environment``."""
        self.command = tuple(command)
        self.job: Job | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        # A file, so that a child never blocks on a full pipe; open as long as the worker.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._phase = Phase("start")
        self._started = False  # the child has got as far as a job
        self._failed_starts = 0
        self._deadline = 0.0
        self._left: list[int] = []  # numbers of the job's candidates without an outcome
        self._found: dict[int, Outcome] = {}  # outcomes of the others
        self._given = threads, core, libraries

    def fileno(self) -> int:
        """Return the descriptor to wait on for replies."""
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def deadline(self) -> float:
        """The time limit of the current phase, a time of ``time.monotonic``."""
        return self._deadline

    @property
    def phase(self) -> str:
        """The phase of the child: start, load, build, wait or run."""
        return self._phase.name

    def submit(self, job: Job) -> None:
        """Send a job to the child, starting one if necessary."""
        self.job = job
        self._left, self._found = list(range(len(job.candidates))), {}
        self._hand_over()

    def _hand_over(self) -> None:
        """Send the remaining candidates of the job to the child."""
        assert self.job is not None
        fresh = self._process is None or self._process.poll() is not None
        if fresh:
            self._spawn()
        self._enter(Phase("start" if fresh else "load"))
        candidates = tuple(self.job.candidates[n] for n in self._left)
        data = encode_job(replace(self.job, candidates=candidates))
        assert self._process is not None and self._process.stdin is not None
        if len(data) <= AT_ONCE:
            _write(self._process.stdin, data)
        else:  # a child that does not read must not stop the tuner
            Thread(target=_write, args=(self._process.stdin, data), daemon=True).start()

    def receive(self) -> tuple[Job, tuple[Outcome, ...]] | None:
        """Read from the child; return the job's outcomes once it is complete or the child died.

        Raises ``MeasureError`` if one child after the other cannot start.
        """
        assert self.job is not None
        data = os.read(self.fileno(), 1 << 20)
        if not data:
            return self._finish(self._post_mortem())
        self._pending += data
        if len(self._pending) > MAX_MESSAGE:
            self.kill()
            return self._finish(Outcome("crash", note="the child wrote too much"))
        while b"\n" in self._pending:
            line, _, self._pending = self._pending.partition(b"\n")
            try:
                reply = decode_reply(line)
            except ValueError as e:
                self.kill()
                return self._finish(Outcome("crash", note=str(e)))
            if isinstance(reply, Phase):
                self._note_start(reply)
                self._enter(reply)
            elif reply[0] == self.job.number:
                return self._answer(reply[1])
        return None

    def _answer(self, outcomes: tuple[Outcome, ...]) -> tuple[Job, tuple[Outcome, ...]] | None:
        """Process a reply; return the job's outcomes if it is complete."""
        if len(outcomes) != len(self._left):
            self.kill()
            return self._finish(Outcome("crash", note="the child's reply does not match the job"))
        faults = [n for n, o in enumerate(outcomes) if o.fault]
        if faults:
            self.kill()  # a fresh child with a fresh device context does the rest
            if len(faults) < len(outcomes):
                self._phase = replace(self._phase, candidate=faults[0])
                return self._finish(outcomes[faults[0]])
        self._found |= dict(zip(self._left, outcomes, strict=True))
        return self._done()

    def _note_start(self, phase: Phase) -> None:
        if phase.name not in STARTING:
            self._started, self._failed_starts = True, 0

    def expire(self) -> tuple[Job, tuple[Outcome, ...]] | None:
        """Kill the child if its phase exceeds the limit; return the job's outcomes if complete.

        Raises ``MeasureError`` as ``receive``.
        """
        if self.job is None or time.monotonic() < self._deadline:
            return None
        limit = self.job.limits.of(self._phase.name)
        self.kill()
        return self._finish(Outcome("timeout", note=f"killed after {limit:g} s of {self._at()}"))

    def kill(self) -> None:
        """Kill the child and its process group."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process = None
        self._pending = b""

    def close(self) -> None:
        """Kill the child and release the worker."""
        self.kill()
        self._errors.close()

    def _spawn(self) -> None:
        self.kill()
        self._errors.seek(0)
        self._errors.truncate()
        self._started = False
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(*self._given),
            start_new_session=True,  # only the tuner handles Ctrl-C, and ends its children
        )

    def _enter(self, phase: Phase) -> None:
        assert self.job is not None
        self._phase = phase
        self._deadline = time.monotonic() + self.job.limits.of(phase.name)

    def _at(self) -> str:
        """Describe the child's phase in words."""
        phase = self._phase
        return f"{phase.name} {phase.doing}" if phase.doing else phase.name

    def _post_mortem(self) -> Outcome:
        assert self._process is not None
        phase = self._at()
        try:
            code = self._process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.kill()
            return Outcome("timeout", note=f"it closed its output and did not end in {phase}")
        self.kill()
        if code == OUT_OF_MEMORY:
            return Outcome("oom", note=f"out of memory in {phase}")
        if code == -signal.SIGKILL:
            return Outcome("oom", note=f"killed by the system in {phase}")
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        said = self._last_words()
        return Outcome("crash", note=f"{how} in {phase}{': ' if said else ''}{said}")

    def _last_words(self) -> str:
        """Return the last line that the child wrote to stderr."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def _finish(self, outcome: Outcome) -> tuple[Job, tuple[Outcome, ...]] | None:
        """Record an outcome that ended the child, for its candidate or for all remaining ones.

        Returns the job's outcomes if it is complete; else None, and a fresh child gets the rest.
        """
        if not self._started:
            self._start_again(outcome)
            return None
        number = self._phase.candidate
        if number is None or not 0 <= number < len(self._left):
            self._found |= dict.fromkeys(self._left, outcome)
            return self._done()
        self._found[self._left.pop(number)] = outcome
        if not self._left:
            return self._done()
        self._hand_over()
        return None

    def _start_again(self, outcome: Outcome) -> None:
        """Give the job to another child, after one that had not got as far as a candidate."""
        self._failed_starts += 1
        if self._failed_starts >= STARTS:
            raise MeasureError("a measuring process cannot start", outcome.note)
        self._hand_over()

    def _done(self) -> tuple[Job, tuple[Outcome, ...]]:
        assert self.job is not None
        job, self.job = self.job, None
        return job, tuple(self._found[n] for n in range(len(job.candidates)))


def _write(pipe: IO[bytes], data: bytes) -> None:
    """Write to a child; if it has ended, or is being killed, the end of its output tells that."""
    with contextlib.suppress(BrokenPipeError, ValueError):
        pipe.write(data)
        pipe.flush()
