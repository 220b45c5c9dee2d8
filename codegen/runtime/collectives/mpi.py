"""A communicator between processes, by MPI: ``mpi4py`` with any MPI that it finds.

Only messages from rank to rank are MPI's; it adds nothing up, as the order in which an MPI reduces
is its own business. Waiting polls, so that a time limit and Ctrl-C end it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ....ir.arrays import Array, as_bytes
from ....ir.errors import CommunicationError
from .communicator import SECONDS, TAGS, require_seconds, silent

HINT = "pip install 'nestwright[mpi]' brings mpi4py, an MPI and its mpiexec"
LAUNCHED = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")
"""Variables that launchers of MPI set in the processes that they start."""

_BUSY, _NAP = 0.05, 100e-6
"""Seconds for which waiting only yields to other threads, and of each sleep after that.

MPI moves data while it is polled, so sleeps are short.
"""


class MpiCommunicator:
    """The ranks of an ``mpi4py`` communicator, in messages of our own; see ``Communicator``.

    All ranks must make it together. ``CommunicationError`` if one does not within ``seconds``.
    """

    def __init__(self, communicator: Any, seconds: float = SECONDS) -> None:
        self.seconds = require_seconds(seconds)
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self._broken: CommunicationError | None = None
        self._held: list[Any] = []
        own, request = communicator.Idup()
        self._own = own
        self._wait([request], list(range(self.size)), "the start")

    def exchange(
        self, sends: Mapping[int, Array], receives: Mapping[int, Array], tag: int, what: str
    ) -> None:
        """Send and receive; see ``Communicator``."""
        if self._broken is not None:
            raise self._broken
        arriving = {r: self._own.Irecv(as_bytes(a), r, tag % TAGS) for r, a in receives.items()}
        leaving = {r: self._own.Isend(as_bytes(a), r, tag % TAGS) for r, a in sends.items()}
        self._held = [sends, receives]
        ranks = [*arriving, *leaving]
        self._wait([*arriving.values(), *leaving.values()], ranks, what)
        self._held = []

    def _wait(self, requests: Sequence[Any], ranks: Sequence[int], what: str) -> None:
        """Wait for requests; on failure their memory is kept, as MPI may still write to it."""
        began = time.monotonic()
        try:
            while not type(requests[0]).Testall(list(requests)):
                waited = time.monotonic() - began
                if waited > self.seconds:
                    late = [r for r, q in zip(ranks, requests, strict=False) if not q.Test()]
                    raise silent(self.rank, sorted(set(late)), what, self.seconds)
                time.sleep(0 if waited < _BUSY else _NAP)
        except CommunicationError as error:
            self._broken = error
            raise
        except RuntimeError as error:  # MPI.Exception
            self._broken = CommunicationError(f"rank {self.rank} failed in {what}", str(error))
            raise self._broken from error


def is_mpi(value: object) -> bool:
    """True for a communicator of ``mpi4py``, which is not imported for that."""
    return hasattr(value, "Get_rank") and hasattr(value, "Idup")


def launched() -> bool:
    """True if a launcher of MPI, such as ``mpiexec``, started this process."""
    return any(name in os.environ for name in LAUNCHED)


def world() -> Any:
    """Return MPI's communicator of all processes; ``CommunicationError`` if there is no mpi4py."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # it raises the latter if it finds no MPI
        what = "this process was started by an MPI launcher and cannot use MPI"
        raise CommunicationError(what, str(error), hint=HINT) from error
    return MPI.COMM_WORLD
