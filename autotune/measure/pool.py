"""A pool of measuring child processes that work on a stream of jobs.

Children build concurrently, one per core, and time one after the other: the machine's lock gives
timed runs exclusive use. Single-threaded kernels are timed on a core reserved for their child.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Iterable, Iterator, Sequence

from .protocol import Job, Measurer, Outcome, Underway, Watch
from .worker import CHILD, Worker

TELL = 1.0  # seconds between two calls of a watch
MOST = 4  # default limit of children; more would wait for each other


def slots(threads: int, workers: int | None) -> tuple[int | None, ...]:
    """Return the core that each child is pinned to (None: any), for kernels with ``threads``."""
    cores = sorted(os.sched_getaffinity(0))
    count = workers or min(len(cores), MOST)
    return tuple(cores[n % len(cores)] if threads == 1 else None for n in range(count))


class Pool(Measurer):
    """Runs jobs on child processes; leaving it kills them. One candidate is timed at a time."""

    def __init__(
        self, threads: int = 1, workers: int | None = None, command: Sequence[str] = CHILD
    ) -> None:
        self._told = time.monotonic()
        self.workers = tuple(Worker(command, core, threads) for core in slots(threads, workers))

    def run(
        self, jobs: Iterable[Job], until: float = math.inf, watch: Watch | None = None
    ) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        """Yield each job with its outcomes as they arrive; a job is drawn when a child is free.

        At ``until``, a time of ``time.monotonic``, unfinished jobs are abandoned and have no
        outcome. ``watch`` is called about every second with the phase of each child.
        """
        waiting = iter(jobs)
        exhausted = False
        while True:
            if time.monotonic() >= until:
                self._give_up()
                return
            for worker in self.workers:
                if worker.job is None and not exhausted:
                    job = next(waiting, None)
                    if job is None:
                        exhausted = True
                    else:
                        worker.submit(job)
            busy = [w for w in self.workers if w.job is not None]
            if not busy:
                return
            yield from self._collect(busy, until)
            if watch is not None and time.monotonic() - self._told > TELL:
                self._told = time.monotonic()
                watch(Underway([(w.job, w.phase) for w in busy if w.job is not None]))

    def _give_up(self) -> None:
        """Kill the children that are working."""
        for worker in self.workers:
            if worker.job is not None:
                worker.kill()
                worker.job = None

    def _collect(self, busy: list[Worker], until: float) -> list[tuple[Job, tuple[Outcome, ...]]]:
        nearest = min(until, *(w.deadline for w in busy)) - time.monotonic()
        ready, _, _ = select.select(busy, [], [], max(0.0, min(nearest + 0.01, 1.0)))
        done = [r for w in ready if (r := w.receive()) is not None]
        done += [r for w in busy if w.job is not None and (r := w.expire()) is not None]
        return done

    def close(self) -> None:
        """Kill the children."""
        for worker in self.workers:
            worker.close()
