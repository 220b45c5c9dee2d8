"""Numbered cases in forked children: a crash, a hang or an excess of memory costs one case.

Every case is drawn from its number alone, so that a finding is a number, and can be repeated.
"""

from __future__ import annotations

import mmap
import os
import pickle
import resource
import select
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TypeAlias

CPU_SECONDS = 20  # for one case
WAIT = 120  # seconds of wall time without progress, after which a child is taken to hang
MEMORY = 6 << 30  # bytes of address space of a child
BATCH = 250  # cases of one child
KEPT = 5000  # findings that are kept

Case: TypeAlias = Callable[[int], str]
"""The outcome of case number n: ``right``, ``refused`` ...; ``BAD...`` is a finding."""


@dataclass
class Tally:
    """Outcomes of a campaign's cases: how many of each kind, and the failures."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0
    peak: int = 0  # bytes of memory of the largest child

    def add(self, number: int, outcome: str) -> None:
        """Count one case."""
        kind = outcome.partition(":")[0]
        self.counts[kind] += 1
        if kind.startswith("BAD") and len(self.findings) < KEPT:
            self.findings.append((number, outcome))

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {kind}" for kind, n in self.counts.most_common())
        total = sum(self.counts.values())
        return f"{total} cases in {self.seconds:.0f} s: {counts}; {self.peak >> 20} MiB at most"


def run(
    case: Case,
    numbers: range,
    jobs: int = 1,
    batch: int = BATCH,
    watch: Callable[[Tally], object] = lambda told: None,
) -> Tally:
    """Run the cases of ``numbers``, in ``jobs`` children at a time.

    ``watch`` sees the counts after every batch. Ctrl-C ends a campaign early: what was counted by
    then comes back.
    """
    told, began = Tally(), time.monotonic()
    children: list[Child] = []
    try:
        _work(case, numbers, jobs, batch, told, children, watch)
    except KeyboardInterrupt:
        for child in children:
            child.kill()
    told.findings.sort()
    told.seconds = time.monotonic() - began
    return told


def _work(
    case: Case,
    numbers: range,
    jobs: int,
    batch: int,
    told: Tally,
    children: list[Child],
    watch: Callable[[Tally], object],
) -> None:
    waiting = _batches(numbers, batch)
    children += [c for c in (_next(case, waiting) for _ in range(jobs)) if c is not None]
    while children:
        ready, _, _ = select.select([c.pipe for c in children], [], [], 1.0)
        for child in list(children):
            if child.pipe in ready:
                child.read()
            ended = child.ended()
            if not ended and not child.hangs():
                continue
            children.remove(child)
            rest = child.finish(told, killed=not ended)
            if rest:
                children.append(Child(case, rest))
            elif (one := _next(case, waiting)) is not None:
                children.append(one)
            watch(told)


def _batches(numbers: range, batch: int) -> Iterator[range]:
    for start in range(0, len(numbers), batch):
        yield numbers[start : start + batch]


def _next(case: Case, waiting: Iterator[range]) -> Child | None:
    numbers = next(waiting, None)
    return None if numbers is None else Child(case, numbers)


class Child:
    """A forked process that works off some cases and tells of each through a pipe."""

    def __init__(self, case: Case, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self._progress = mmap.mmap(-1, 8)
        self.pipe, out = os.pipe()
        self._data = b""
        self._closed = False
        self._last = (-1, time.monotonic())
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self.pipe)
            try:
                self._work(case, out)
            finally:
                os._exit(0)
        os.close(out)

    def _work(self, case: Case, out: int) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, _over_time)
        told: list[tuple[int, str]] = []
        for done, number in enumerate(self.numbers):
            self._progress[:8] = struct.pack("<Q", done)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            try:
                outcome = case(number)
            except BaseException as error:
                outcome = f"BAD {type(error).__name__}: {error}"[:2000]
            signal.setitimer(signal.ITIMER_PROF, 0)
            told.append((number, outcome))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        data = pickle.dumps((told, peak))  # from our own child, through our own pipe
        while data:
            data = data[os.write(out, data) :]

    def read(self) -> None:
        """Take what the child wrote."""
        found = os.read(self.pipe, 1 << 20)
        self._closed = not found
        self._data += found

    def ended(self) -> bool:
        """True if the child has closed its pipe."""
        return self._closed

    def hangs(self) -> bool:
        """True if nothing has happened for long."""
        at = self._at()
        if at != self._last[0]:
            self._last = at, time.monotonic()
        return time.monotonic() - self._last[1] > WAIT

    def _at(self) -> int:
        return int(struct.unpack("<Q", self._progress[:8])[0])

    def kill(self) -> None:
        """End the child; its cases are not counted."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self.pipe)

    def finish(self, told: Tally, killed: bool) -> Sequence[int]:
        """Count what the child did. The cases that are left, if it died over one."""
        if killed:
            os.kill(self._pid, signal.SIGKILL)
        os.close(self.pipe)
        _, status = os.waitpid(self._pid, 0)
        if self._data:
            results, peak = pickle.loads(self._data)
            told.peak = max(told.peak, peak)
            for number, outcome in results:
                told.add(number, outcome)
            return ()
        at = self._at()
        how = "hang" if killed else _death(status)
        told.add(self.numbers[at], f"BAD {how}")
        # What came before it is run again: its outcomes died with the child.
        return (*self.numbers[:at], *self.numbers[at + 1 :])


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"death by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit {os.WEXITSTATUS(status)}"


def _over_time(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"over {CPU_SECONDS} s of CPU time")
