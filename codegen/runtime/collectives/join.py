"""Binding a program to its processes: as many as it has devices, all with the same program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from ....ir.errors import ArgumentError, CommunicationError
from ....ir.library.call import to_json
from ...plan.bundle import Bundle
from ...plan.nodes import KernelThunk, LibraryThunk, Plan, WhileThunk, walk
from ...plan.notes import DEVICES
from .communicator import SECONDS, Communicator
from .mpi import MpiCommunicator, is_mpi

_TAG = 0
_BYTES = 32  # of a digest


def joined(bundle: Bundle, communicator: object, seconds: float | None = None) -> Communicator:
    """Return the communicator on which a program runs, once all ranks have the same program.

    ``communicator`` is one of ``mpi4py``, or has the methods of ``Communicator``. All ranks call
    this together. ``CommunicationError``, on every rank alike, if the program is written for
    another number of devices than there are ranks, or if ranks run different programs.
    """
    found: Any = communicator
    if is_mpi(communicator):
        found = MpiCommunicator(communicator, SECONDS if seconds is None else seconds)
    if not hasattr(found, "exchange"):
        what = f"{type(communicator).__name__} is not a communicator"
        raise ArgumentError(what, hint="pass mpi4py.MPI.COMM_WORLD, or a part of it")
    _require_same(bundle, found)
    require_count(bundle, found.size)
    same: Communicator = found
    return same


def devices(bundle: Bundle) -> tuple[int, int]:
    """Return the numbers of replicas and of partitions that a program is written for."""
    words = bundle.notes.get(DEVICES, "1,1").split(",")
    good = len(words) == 2 and all(w.isdecimal() and len(w) < 7 for w in words)
    return (int(words[0]), int(words[1])) if good else (1, 1)


def require_count(bundle: Bundle, size: int) -> None:
    """Require as many processes as the program has devices."""
    replicas, partitions = devices(bundle)
    count = replicas * partitions
    if size != count:
        many = f"replica_count={replicas}, num_partitions={partitions}"
        raise CommunicationError(
            f"{bundle.name} is written for {count} device{'s' * (count > 1)} ({many})",
            f"{size} processes run it" if size > 1 else "1 process runs it",
            hint=f"start it with `mpiexec -n {count}`"
            if count > 1
            else "start it without mpiexec, or give a program for several devices",
        )


def exchanges(plan: Plan) -> bool:
    """True if a plan has collectives."""
    return any(isinstance(t, LibraryThunk) and t.call.is_collective for t in walk(plan.thunks))


def fingerprint(bundle: Bundle) -> Mapping[str, bytes]:
    """Return digests of what all ranks must have in common, by what it is.

    Constants are not part of it: each rank may have weights of its own.
    """
    plan = bundle.plan
    collectives = [
        to_json(t.call)
        for t in walk(plan.thunks)
        if isinstance(t, LibraryThunk) and t.call.is_collective
    ]
    arrays = [[str(s), list(s.order)] for s in (*plan.params, *plan.results)]
    facts = {
        "numbers of devices": list(devices(bundle)),
        "arguments and results": arrays,
        "collectives or replica groups": collectives,
        "computation": list(map(_step, walk(plan.thunks))),
    }
    return {what: sha256(json.dumps(fact).encode()).digest() for what, fact in facts.items()}


def _step(thunk: object) -> list[object]:
    match thunk:
        case KernelThunk(task=task):
            return ["kernel", task]
        case WhileThunk(trips=trips):
            return ["while", trips]
        case _:
            return [type(thunk).__name__]


def _require_same(bundle: Bundle, communicator: Communicator) -> None:
    """Exchange fingerprints; raise the same error on every rank if any differs from rank 0's."""
    own = fingerprint(bundle)
    mine = np.frombuffer(b"".join(own.values()), np.uint8).reshape(len(own), _BYTES)
    found = np.zeros((communicator.size, *mine.shape), np.uint8)
    found[communicator.rank] = mine
    others = [r for r in range(communicator.size) if r != communicator.rank]
    if others:
        receives = {r: found[r] for r in others}
        communicator.exchange(dict.fromkeys(others, mine), receives, _TAG, "the start")
    differs = (found != found[0]).any(axis=2)
    for what, column in zip(own, differs.T, strict=True):
        if column.any():
            ranks = ", ".join(map(str, np.flatnonzero(column)))
            raise CommunicationError(
                f"rank{'s' * int(column.sum() > 1)} {ranks} and rank 0 run different programs",
                f"their {what} differ",
                bundle.name,
                "give all ranks the same model, built with the same options for the same target",
            )
