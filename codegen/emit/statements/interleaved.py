"""Stores of a few unrolled iterations whose lanes interleave: whole vectors instead of scatters.

Operands of which an instruction takes several neighbors for each lane are packed so: iteration n of
d computes element ``d * i + n`` in lane i.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.dtypes import index
from ....ir.loop.affine import steps
from ....ir.loop.build import as_int
from ....ir.loop.nodes import For, Kind, Scope, Store, Var
from ....ir.loop.visit import loads_in
from ..access import store_element
from ..expr import Emitter
from ..llvm.core import IRValue
from ..small_strides import mixed, picked

HALVING = (2, 4)  # iterations that interleave in halves of one vector
ODD = (3, 5, 6, 7)  # those that interleave in as many vectors


@dataclass(frozen=True, slots=True)
class _Interleaved:
    """``depth`` iterations of ``near`` store neighbors, ``depth`` elements apart in the lanes."""

    store: Store
    near: Var
    depth: int
    lane: Var
    count: int


def store_interleaved(em: Emitter, s: For) -> bool:
    """Emit ``for n in unroll(d): for i in lanes: x[d i + n] = v(n, i)``; False if not that."""
    tile = _tile(s)
    if tile is None or em.lanes is not None or em.device is not None or not _is_plain(tile):
        return False
    full = em.target.lanes(tile.store.buffer.dtype)
    store, width = _store_vectors, full
    if tile.depth in HALVING:
        store, width = _store_piece, full // tile.depth
    if width < 2:
        return False
    for start in range(0, tile.count, width):
        active = min(width, tile.count - start)
        store(em, tile, start, active, max(2, 1 << (active - 1).bit_length()))
    em.function.forget(tile.store.buffer)
    return True


def _tile(s: For) -> _Interleaved | None:
    match s:
        case For(
            kind=Kind.UNROLLED, body=For(kind=Kind.VECTOR, body=Store() as store) as inner
        ) if as_int(s.extent) in (*HALVING, *ODD):
            depth, count = as_int(s.extent), as_int(inner.extent)
            return _Interleaved(store, s.var, depth, inner.var, count) if depth and count else None
        case _:
            return None


def _is_plain(tile: _Interleaved) -> bool:
    """True if the elements are as far apart as said, in memory that no term reads."""
    buffer, (at,) = tile.store.buffer, tile.store.index
    if buffer.scope is Scope.REGISTER or buffer.dtype.kind == "pred":
        return False
    if steps(at, tile.near, tile.lane) != (1, tile.depth):
        return False
    return not any(x.buffer is buffer for x in loads_in(tile.store.value))


def _store_piece(em: Emitter, tile: _Interleaved, start: int, active: int, lanes: int) -> None:
    """Store what ``active`` of ``lanes`` lanes from ``start`` on compute in all iterations."""
    depth, rows = tile.depth, _rows(em, tile, start, active, lanes)
    _store_part(em, tile, 0, active * depth, _interleaved(em, rows))


def _store_vectors(em: Emitter, tile: _Interleaved, start: int, active: int, lanes: int) -> None:
    """Do so by vectors of as many lanes: each has elements of all iterations."""
    depth, rows = tile.depth, _rows(em, tile, start, active, lanes)
    for first in range(0, active * depth, lanes):
        places = [divmod(first + k, depth)[::-1] for k in range(lanes)]
        _store_part(em, tile, first, active * depth - first, picked(em, rows, places))


def _rows(em: Emitter, tile: _Interleaved, start: int, active: int, lanes: int) -> list[IRValue]:
    """Return what each iteration computes in the lanes from ``start`` on; the first are active."""
    rows = []
    with em.over(em.lanes_from(tile.lane, em.const(start, index), lanes, active)):
        for n in range(tile.depth):
            em.env[tile.near] = em.const(n, index)
            rows.append(em.broadcast(em.value(tile.store.value), lanes))
    em.env[tile.lane] = em.const(start, index)
    return rows


def _store_part(em: Emitter, tile: _Interleaved, first: int, left: int, row: IRValue) -> None:
    """Store a vector from element ``first`` on, of which ``left`` are left."""
    with em.over(em.lanes_from(tile.near, em.const(first, index), row.lanes, left)):
        store_element(em, tile.store.buffer, tile.store.index[0], row)


def _interleaved(em: Emitter, rows: list[IRValue]) -> IRValue:
    """Return element 0 of each row, then element 1 of each, and so on."""
    while len(rows) > 1:
        half, lanes = len(rows) // 2, rows[0].lanes
        order = [k // 2 + lanes * (k % 2) for k in range(2 * lanes)]
        rows = [mixed(em, a, b, order) for a, b in zip(rows[:half], rows[half:], strict=True)]
    return rows[0]
