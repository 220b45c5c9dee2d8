"""The state of a fleet: its workers, the jobs to be done, and who does them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ..measure.protocol import Job, Outcome

AHEAD = 1  # requests that wait at each worker, so that it is never idle
ALLOWANCE = 60.0  # seconds that an answer may take besides the limits of the job
GREETING = 60.0  # seconds for a worker to say what it is
LARGEST = 1 << 30  # bytes of the built models of a race

State: TypeAlias = Literal["asked", "fit", "out"]


@dataclass(eq=False, slots=True)
class WorkerState:
    """A worker, or an executor's workers together.

    ``asked``: it has been asked what it is; ``out``: it is not used. ``attempts`` are the numbers
    of what it has to do, ``heard`` is when it last answered, ``until`` until when it gets nothing.
    ``refusals`` and ``faults`` count since its last good answer.
    """

    name: str
    title: str
    slots: int
    heard: float
    state: State = "asked"
    why: str = ""
    attempts: dict[int, None] = field(default_factory=dict)
    done: int = 0
    refusals: int = 0
    faults: int = 0
    until: float = 0.0

    def free(self, now: float) -> bool:
        """True if it can take another request."""
        fit = self.state == "fit" and now >= self.until
        return fit and len(self.attempts) < self.slots + AHEAD

    def begun(self, number: int) -> bool:
        """True if it may have begun an attempt: those that came first are done first."""
        return number in list(self.attempts)[: self.slots]


@dataclass(eq=False, slots=True)
class Assignment:
    """A job to be done. ``away`` are the numbers of its attempts, ``lost`` why others failed."""

    job: Job
    models: tuple[bytes, ...] = ()
    away: set[int] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    silent: bool = True
    done: bool = False

    def failed(self) -> tuple[Job, tuple[Outcome, ...]]:
        """Return the outcome of a job that no worker finished."""
        status = "timeout" if self.silent else "crash"
        note = f"no worker finished it: {'; '.join(dict.fromkeys(self.lost))}"
        return self.job, (Outcome(status, note=note[:300]),) * len(self.job.candidates)


@dataclass(eq=False, slots=True)
class Attempt:
    """An attempt at an assignment (None: the question what the worker is).

    Once ``given_up`` nobody waits for it, but its answer is still taken.
    """

    number: int
    assignment: Assignment | None
    worker: WorkerState
    began: float
    cancel: Callable[[], object] = lambda: None
    given_up: bool = False

    @property
    def limit(self) -> float:
        """The seconds within which its worker has to answer anything.

        Waiting for a machine's lock is part of the allowance: another worker may be free.
        """
        if self.assignment is None:
            return GREETING
        limits, count = self.assignment.job.limits, len(self.assignment.job.candidates)
        return ALLOWANCE + limits.start + limits.load + count * (limits.build + 2 * limits.run)


def models_of(job: Job) -> tuple[bytes, ...]:
    """Return the built models that a job races; ``ValueError`` if they are too large to send."""
    places = [Path(c.bundle) for c in job.candidates if c.bundle]
    size = sum(p.stat().st_size for p in places)
    if size > LARGEST:
        most = f"{LARGEST >> 20} at most are sent to a worker"
        raise ValueError(f"its builds have {size >> 20} MiB, {most}")
    return tuple(p.read_bytes() for p in places)
