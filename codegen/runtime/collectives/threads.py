"""A communicator between threads of one process: all devices of a program without MPI."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Condition
from time import monotonic

from ....ir.arrays import Array, as_bytes
from ....ir.errors import CommunicationError
from .communicator import SECONDS, require_seconds, silent


@dataclass(eq=False)
class _Hub:
    """Messages on their way, by sender, receiver and tag, and the ranks that have failed."""

    mail: dict[tuple[int, int, int], deque[Array]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    changed: Condition = field(default_factory=Condition)


@dataclass(frozen=True)
class ThreadCommunicator:
    """One of ``size`` ranks, each used by a thread of its own; see ``Communicator``."""

    rank: int
    size: int
    seconds: float
    hub: _Hub = field(repr=False)

    def exchange(
        self, sends: Mapping[int, Array], receives: Mapping[int, Array], tag: int, what: str
    ) -> None:
        """Send and receive; see ``Communicator``."""
        end = monotonic() + self.seconds
        with self.hub.changed:
            for to, array in sends.items():
                box = self.hub.mail.setdefault((self.rank, to, tag), deque())
                box.append(as_bytes(array).copy())
            self.hub.changed.notify_all()
            for of, array in receives.items():
                as_bytes(array)[:] = self._received(of, tag, what, end)

    def _received(self, of: int, tag: int, what: str, end: float) -> Array:
        """Wait for a message; the lock is held."""
        key = (of, self.rank, tag)
        while not self.hub.mail.get(key):
            if of in self.hub.failed:
                raise CommunicationError(f"rank {of} has failed", f"rank {self.rank} is in {what}")
            left = end - monotonic()
            if left <= 0:
                raise silent(self.rank, [of], what, self.seconds)
            self.hub.changed.wait(left)
        return self.hub.mail[key].popleft()

    def fail(self) -> None:
        """Tell the others that this rank sends nothing any more."""
        with self.hub.changed:
            self.hub.failed.add(self.rank)
            self.hub.changed.notify_all()


def thread_communicators(size: int, seconds: float = SECONDS) -> tuple[ThreadCommunicator, ...]:
    """Return the communicators of ``size`` ranks, one for each of as many threads."""
    hub, limit = _Hub(), require_seconds(seconds)
    return tuple(ThreadCommunicator(rank, size, limit, hub) for rank in range(size))
