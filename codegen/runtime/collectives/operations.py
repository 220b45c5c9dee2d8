"""The collectives of a plan, by a communicator.

Reductions combine the values of a group in the order of its ranks, element by element, on whichever
rank does it, so results are the same on all ranks, and the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.arrays import Array
from ....ir.errors import CommunicationError
from ....ir.lazy import resolve
from ....ir.library.call import COLLECTIVE, LibraryCall
from ....ir.reducers import in_order
from .communicator import Communicator

DIRECT = 1 << 15
"""Bytes up to which every rank sends an operand of ``all-reduce`` whole, in one round, and not in
pieces of which each rank reduces one."""

_COMBINE = "....ir.hlo.interp.group:combine"


@dataclass(frozen=True)
class _Site:
    """One call on one rank. ``group`` are the ranks that take part, in order."""

    call: LibraryCall
    operands: Sequence[Array]
    results: Sequence[Array]
    communicator: Communicator
    tag: int
    group: tuple[int, ...] = ()

    @property
    def place(self) -> int:
        """The number of this rank in the group."""
        return self.group.index(self.communicator.rank)

    @property
    def dimension(self) -> int:
        """The dimension along which arrays are cut or joined."""
        found = self.call.attributes.get("dimension", 0)
        return found if isinstance(found, int) else 0

    def swap(self, sends: Mapping[int, Array], receives: Mapping[int, Array]) -> None:
        """Exchange arrays with others by rank; one for this rank itself is copied."""
        me = self.communicator.rank
        if me in receives:
            np.copyto(receives[me], sends[me])
        landing = {r: _landing(a) for r, a in receives.items() if r != me and a.nbytes}
        given = {r: np.ascontiguousarray(a) for r, a in sends.items() if r != me and a.nbytes}
        if given or landing:
            self.communicator.exchange(given, landing, self.tag, _told(self.call))
        for r, a in landing.items():
            if a is not receives[r]:
                np.copyto(receives[r], a)

    def reduced(self, values: Sequence[Array]) -> Array:
        """Combine values, which are in the order of the group."""
        if op := self.call.attributes.get("reducer"):
            return in_order(str(op), values)
        combine = resolve(_COMBINE, __package__)
        total = values[0]
        for value in values[1:]:
            total = combine(self.call.backend_config, total, value)
        return np.asarray(total)


def run(
    call: LibraryCall,
    operands: Sequence[Array],
    results: Sequence[Array],
    communicator: Communicator | None,
    tag: int,
) -> None:
    """Compute a collective's results on this rank. Calls of a plan differ in ``tag``."""
    if communicator is None:
        raise CommunicationError(
            f"{_told(call)} exchanges values with other devices",
            "this call runs on one",
            hint="executable.on(communicator) runs on several; so does `mpiexec -n N nestwright "
            "run MODEL`",
        )
    group = _group(call, communicator.rank)
    _OPERATIONS[call.opcode](_Site(call, operands, results, communicator, tag, group))


def _group(call: LibraryCall, rank: int) -> tuple[int, ...]:
    groups: Any = call.attributes.get("groups", ())
    return next((g for g in groups if rank in g), (rank,))


def _told(call: LibraryCall) -> str:
    return f"{call.opcode} `{call.attributes.get(COLLECTIVE, '')}`"


def _landing(target: Array) -> Array:
    return target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)


def _all_reduce(site: _Site) -> None:
    for operand, result in zip(site.operands, site.results, strict=True):
        if operand.nbytes <= DIRECT:
            values = [np.empty_like(operand) for _ in site.group]
            received = dict(zip(site.group, values, strict=True))
            site.swap(dict.fromkeys(site.group, operand), received)
            np.copyto(result, site.reduced(values))
            continue
        count = len(site.group)
        own = _reduced_piece(site, np.array_split(operand.reshape(-1), count))
        pieces = dict(zip(site.group, np.array_split(result.reshape(-1), count), strict=True))
        site.swap(dict.fromkeys(site.group, own), pieces)


def _reduced_piece(site: _Site, pieces: Sequence[Array]) -> Array:
    """Send each rank its piece, and combine the pieces that are this rank's."""
    own = pieces[site.place]
    values = [np.empty(own.shape, own.dtype) for _ in pieces]
    sends = dict(zip(site.group, pieces, strict=True))
    site.swap(sends, dict(zip(site.group, values, strict=True)))
    return site.reduced(values)


def _reduce_scatter(site: _Site) -> None:
    for operand, result in zip(site.operands, site.results, strict=True):
        pieces = np.split(operand, len(site.group), site.dimension)
        np.copyto(result, _reduced_piece(site, pieces))


def _all_gather(site: _Site) -> None:
    for operand, result in zip(site.operands, site.results, strict=True):
        places = np.split(result, len(site.group), site.dimension)
        sends = dict.fromkeys(site.group, operand)
        site.swap(sends, dict(zip(site.group, places, strict=True)))


def _all_to_all(site: _Site) -> None:
    """One array in pieces, or an array for each rank."""
    sends, places = site.operands, site.results
    if len(sends) == 1 != len(site.group):
        count, d = len(site.group), site.dimension
        sends, places = np.split(sends[0], count, d), np.split(places[0], count, d)
    site.swap(dict(zip(site.group, sends, strict=True)), dict(zip(site.group, places, strict=True)))


def _broadcast(site: _Site) -> None:
    first, me = site.group[0], site.communicator.rank
    for operand, result in zip(site.operands, site.results, strict=True):
        if me == first:
            site.swap(dict.fromkeys(site.group, operand), {me: result})
        else:
            site.swap({}, {first: result})


def _permute(site: _Site) -> None:
    me, pairs = site.communicator.rank, _pairs(site.call)
    for operand, result in zip(site.operands, site.results, strict=True):
        sources = [a for a, b in pairs if b == me]
        if not sources:
            result.fill(0)
        site.swap({b: operand for a, b in pairs if a == me}, dict.fromkeys(sources, result))


def _pairs(call: LibraryCall) -> Sequence[tuple[int, int]]:
    found: Any = call.attributes.get("pairs", ())
    return found if isinstance(found, tuple) else ()


def _number(site: _Site) -> None:
    site.results[0].fill(site.communicator.rank)


_OPERATIONS: Mapping[str, Callable[[_Site], None]] = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "collective-broadcast": _broadcast,
    "collective-permute": _permute,
    "partition-id": _number,
}
"""By opcode; a plan has no other collectives (``ir.hlo.passes.prepare.flatten_devices``)."""
