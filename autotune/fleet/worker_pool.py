"""Pools of workers that a fleet measures on; any ``concurrent.futures.Executor`` makes one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from typing import Protocol, TypeAlias, runtime_checkable

from ...ir.errors import ArgumentError, FleetError
from . import work

Answer: TypeAlias = bytes | BaseException
Done: TypeAlias = Callable[[Answer], object]
"""Called from any thread with a reply, or with why there is none."""
Cancel: TypeAlias = Callable[[], object]

ANYONE = ""
"""The worker of a pool that does not tell its workers apart."""
UNKNOWN = 4  # workers of an executor that does not say how many it has


@runtime_checkable
class WorkerPool(Protocol):
    """The workers that there are now, and a way to give them requests."""

    def workers(self) -> Mapping[str, int]:
        """Return each worker and how many requests it carries out at a time.

        Raises ``FleetError`` if there is no way to know any more.
        """

    def title(self, worker: str) -> str:
        """Return a worker's name for users."""

    def submit(self, worker: str, packet: bytes, models: tuple[bytes, ...], done: Done) -> Cancel:
        """Give a request to a worker; ``done`` is called once. Returns how to cancel it.

        Raises ``FleetError`` if nothing can be submitted any more.
        """

    def close(self) -> None:
        """Release what belongs to the pool, never the caller's executor or cluster."""


class ExecutorPool:
    """An executor of the user's, taken for one worker that carries out several requests."""

    def __init__(
        self,
        executor: Executor,
        slots: int | None = None,
        perform: Callable[..., bytes] | None = None,
    ) -> None:
        """``slots`` is the number of its workers, if it is not known otherwise.

        ``perform`` carries out a request, by default ``work.perform``.
        """
        if not callable(getattr(executor, "submit", None)):
            raise ArgumentError(
                f"executor={executor!r}",
                "it is not a concurrent.futures.Executor",
                hint="a ThreadPoolExecutor, a ProcessPoolExecutor, or a Dask Client.get_executor()",
            )
        self._executor = executor
        self._perform = perform or work.perform
        found = slots or getattr(executor, "_max_workers", None)
        self._slots = found if isinstance(found, int) and found > 0 else UNKNOWN

    def workers(self) -> Mapping[str, int]:
        """Return one worker that stands for all."""
        return {ANYONE: self._slots}

    def title(self, worker: str) -> str:
        """Return the executor's type."""
        return f"the {type(self._executor).__name__}"

    def submit(self, worker: str, packet: bytes, models: tuple[bytes, ...], done: Done) -> Cancel:
        """Submit a request; the executor chooses who carries it out."""
        try:
            future = self._executor.submit(self._perform, packet, *models)
        except RuntimeError as e:  # it is broken, or has been shut down
            raise FleetError(f"{self.title(worker)} takes no more jobs", in_words(e)) from None
        future.add_done_callback(lambda f: done(answer_of(f)))
        return future.cancel

    def close(self) -> None:
        """End the measuring children that the executor's threads left in this process."""
        work.release()


def answer_of(future: Future[bytes]) -> Answer:
    """Return a finished future's result or exception."""
    if future.cancelled():
        return CancelledError("cancelled")
    return future.exception() or future.result()


def in_words(error: BaseException) -> str:
    """Return the first line of an error's first cause, with its type."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).splitlines()
    name = type(error).__name__
    return f"{name}: {lines[0][:200]}".replace(os.path.expanduser("~"), "~") if lines else name
