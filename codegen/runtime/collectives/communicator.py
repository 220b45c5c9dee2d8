"""``Communicator``: the one operation on which all collectives are built, and what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ....ir.arrays import Array
from ....ir.errors import ArgumentError, CommunicationError

SECONDS = 120.0
"""How long an exchange waits for the other processes, unless told otherwise."""

TAGS = 1 << 15
"""Exchanges are told apart by a number below this, which every MPI has."""


class Communicator(Protocol):
    """The processes that run a program together, one a device. ``rank`` is this one's number."""

    @property
    def rank(self) -> int:
        """The number of this process, and of the device that it runs."""

    @property
    def size(self) -> int:
        """The number of processes."""

    def exchange(
        self, sends: Mapping[int, Array], receives: Mapping[int, Array], tag: int, what: str
    ) -> None:
        """Send an array to each of some ranks, and fill arrays with what some ranks send.

        Arrays are C-contiguous, of any type; both sides know their sizes, which are not 0. Messages
        of one pair of ranks and one ``tag`` keep their order. Returns when all have been sent and
        received. ``CommunicationError``, which names ``what`` was under way, if a rank does not
        answer in time or has failed; no later exchange succeeds then.
        """


def require_seconds(seconds: object) -> float:
    """Return a time limit; ``ArgumentError`` if it is not a positive number."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise ArgumentError(f"seconds={seconds!r}", "expected a positive number")
    return float(seconds)


def silent(rank: int, waiting: list[int], what: str, seconds: float) -> CommunicationError:
    """Return the error of a rank that others have kept waiting."""
    others = ", ".join(map(str, waiting))
    return CommunicationError(
        f"rank {rank} waits for rank{'s' * (len(waiting) > 1)} {others} in {what}",
        f"nothing came within {seconds:g} seconds",
        hint="that process has died, or took another branch, or needs more time: see its output",
    )
