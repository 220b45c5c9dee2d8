"""A few measuring children at work on a stream of jobs.

With one thread per kernel, children are pinned to cores of their own and build while another one
times; the machine's lock keeps timed runs alone. Kernels of several threads need the whole
machine: then there is one child, and building and timing alternate.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

from .protocol import Job, Outcome
from .worker import CHILD, Worker


def slots(threads: int, workers: int | None) -> tuple[int | None, ...]:
    """The core of each child (None: not pinned) for kernels of so many threads."""
    cores = sorted(os.sched_getaffinity(0))
    if threads > 1:
        return (None,) * max(1, workers or 1)
    count = max(1, min(len(cores), workers or 2))
    return tuple(cores[:count])


class Pool:
    """Runs jobs on its children. Use as a context manager: leaving it kills them."""

    def __init__(
        self, threads: int = 1, workers: int | None = None, command: Sequence[str] = CHILD
    ) -> None:
        self.workers = tuple(Worker(command, core, threads) for core in slots(threads, workers))

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        """Each job with its outcomes, as they come in; jobs are drawn when a child is free."""
        waiting = iter(jobs)
        exhausted = False
        while True:
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
            yield from self._collect(busy)

    def _collect(self, busy: list[Worker]) -> list[tuple[Job, tuple[Outcome, ...]]]:
        nearest = min(w.deadline for w in busy) - time.monotonic()
        ready, _, _ = select.select(busy, [], [], max(0.0, min(nearest + 0.01, 1.0)))
        done = [r for w in ready if (r := w.receive()) is not None]
        done += [r for w in busy if w.job is not None and (r := w.expire()) is not None]
        return done

    def close(self) -> None:
        """Kill the children."""
        for worker in self.workers:
            worker.kill()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
