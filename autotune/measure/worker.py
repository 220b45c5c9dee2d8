"""The tuner's side of one measuring child: start it, talk to it, kill it when it hangs.

When a child dies, the fault is that of the candidate which it was at. A fresh child does the rest
of the job.
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

from .protocol import MAX_MESSAGE, OUT_OF_MEMORY, Job, Outcome, Phase, decode_reply, encode_job

CHILD = (sys.executable, "-m", "nestwright.autotune.measure.child")


def child_environment(threads: int, core: int | None = None) -> dict[str, str]:
    """The environment of a child of this process with so many threads, on that core if any."""
    quiet = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    own = {"NESTWRIGHT_NUM_THREADS": str(threads), "NESTWRIGHT_MEASURE_PARENT": str(os.getpid())}
    pinned = {} if core is None else {"NESTWRIGHT_MEASURE_CORE": str(core)}
    return os.environ | quiet | own | pinned


class Worker:
    """One slot. Its child lives on from job to job, until it crashes or has to be killed."""

    def __init__(
        self, command: Sequence[str] = CHILD, core: int | None = None, threads: int = 1
    ) -> None:
        self.command = tuple(command)
        self.job: Job | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        # A file, so that no child blocks on a full pipe; open as long as the worker.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._phase = Phase("load")
        self._deadline = 0.0
        self._left: list[int] = []  # numbers of the job's candidates that the child has to judge
        self._found: dict[int, Outcome] = {}  # what became of the others
        self._threads, self._core = threads, core

    def fileno(self) -> int:
        """The descriptor to wait on for replies."""
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def deadline(self) -> float:
        """When the running phase is over time, in seconds of ``time.monotonic``."""
        return self._deadline

    @property
    def phase(self) -> str:
        """What the child is at: load, build, wait or run."""
        return self._phase.name

    def submit(self, job: Job) -> None:
        """Hand a job to the child, which is started where none runs."""
        self.job = job
        self._left, self._found = list(range(len(job.candidates))), {}
        self._hand_over()

    def _hand_over(self) -> None:
        """Give the child what is left of the job."""
        assert self.job is not None
        if self._process is None or self._process.poll() is not None:
            self._spawn()
        self._enter(Phase("load"))
        candidates = tuple(self.job.candidates[n] for n in self._left)
        try:
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(encode_job(replace(self.job, candidates=candidates)))
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the end of its output tells what happened

    def receive(self) -> tuple[Job, tuple[Outcome, ...]] | None:
        """Read what the child wrote; the job's outcomes once they are all there, or its death."""
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
                self._enter(reply)
            elif reply[0] == self.job.number:
                return self._answer(reply[1])
        return None

    def _answer(self, outcomes: tuple[Outcome, ...]) -> tuple[Job, tuple[Outcome, ...]] | None:
        """Take a reply; the job's outcomes if that was all."""
        if len(outcomes) != len(self._left):
            self.kill()
            return self._finish(Outcome("crash", note="the child answered something else"))
        faults = [n for n, o in enumerate(outcomes) if o.fault]
        if faults:
            self.kill()  # a fresh child, with a fresh device context, does what is left
            if len(faults) < len(outcomes):
                self._phase = replace(self._phase, candidate=faults[0])
                return self._finish(outcomes[faults[0]])
        self._found |= dict(zip(self._left, outcomes, strict=True))
        return self._done()

    def expire(self) -> tuple[Job, tuple[Outcome, ...]] | None:
        """Kill the child if its phase is over time; then the job's outcomes."""
        if self.job is None or time.monotonic() < self._deadline:
            return None
        limit = self.job.limits.of(self._phase.name)
        self.kill()
        return self._finish(Outcome("timeout", note=f"killed after {limit:g} s of {self._at()}"))

    def kill(self) -> None:
        """End the child at once, with whatever it started."""
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
        """End the child for good."""
        self.kill()
        self._errors.close()

    def _spawn(self) -> None:
        self.kill()
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(self._threads, self._core),
            start_new_session=True,  # Ctrl-C is for the tuner, which then ends its children
        )

    def _enter(self, phase: Phase) -> None:
        assert self.job is not None
        self._phase = phase
        self._deadline = time.monotonic() + self.job.limits.of(phase.name)

    def _at(self) -> str:
        """What the child was doing, in words."""
        phase = self._phase
        return f"{phase.name} {phase.doing}" if phase.doing else phase.name

    def _post_mortem(self) -> Outcome:
        assert self._process is not None
        phase = self._at()
        code = self._process.wait()
        self.kill()
        if code == OUT_OF_MEMORY:
            return Outcome("oom", note=f"out of memory in {phase}")
        if code == -signal.SIGKILL:
            return Outcome("oom", note=f"killed by the system in {phase}")
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        said = self._last_words()
        return Outcome("crash", note=f"{how} in {phase}{': ' if said else ''}{said}")

    def _last_words(self) -> str:
        """The last line that the child wrote to its error stream."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def _finish(self, outcome: Outcome) -> tuple[Job, tuple[Outcome, ...]] | None:
        """Record what ended the child: of the candidate that it was at, or of all that were left.

        The job's outcomes if that was all; else a fresh child is given the rest, and None.
        """
        number = self._phase.candidate
        if number is None or not 0 <= number < len(self._left):
            self._found |= dict.fromkeys(self._left, outcome)
            return self._done()
        self._found[self._left.pop(number)] = outcome
        if not self._left:
            return self._done()
        self._hand_over()
        return None

    def _done(self) -> tuple[Job, tuple[Outcome, ...]]:
        assert self.job is not None
        job, self.job = self.job, None
        return job, tuple(self._found[n] for n in range(len(job.candidates)))
