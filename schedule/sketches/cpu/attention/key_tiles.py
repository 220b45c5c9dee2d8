"""Scores whose keys lie one after the other: register tiles of keys with the terms as lanes."""

from __future__ import annotations

from dataclasses import dataclass

from .....ir.loop.notes import FETCH
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.lookup import below, block_node, extent, own_loops


@dataclass(frozen=True, slots=True)
class KeyTile:
    """A register tile: ``rows`` x ``keys`` vectors of ``lanes`` partial sums.

    ``unroll`` vectors of terms are a step; keys are prefetched ``fetch`` bytes ahead.
    """

    rows: int
    keys: int
    lanes: int
    unroll: int
    fetch: int


def loops_below(sch: Schedule, block: str, at: LoopRef, count: int) -> list[LoopRef]:
    """Return the ``count`` loops of a block inside ``at``, the first of which may be over one row.

    A loop that is missing because it would run once is made.
    """
    loops = below(sch, block, at)
    while len(loops) < count:
        loops = [sch.add_unit_loop(block), *loops]
        sch.reorder(*loops)
    return loops[-count:]


def tile_keys(sch: Schedule, product: str, writer: str, at: LoopRef, tile: KeyTile) -> None:
    """Compute a product inside ``at``, a few keys and queries at a time, each stored by ``writer``.

    Both operands are read as vectors of terms, so that keys need no transpose. Each score is a
    vector of partial sums, which are added up at the end.
    """
    terms = sch.get_loops(product)[-1]
    lane = sch.split(terms, [None, min(tile.lanes, extent(sch, terms))])[-1]
    partial = sch.rfactor(lane, -1).name
    for name in (product, partial):
        sch.set_scope(name, 0, "register")
    row, column = loops_below(sch, writer, at, 2)
    columns, key = sch.split(column, [None, min(tile.keys, extent(sch, column))])
    rows, each = sch.split(row, [None, min(tile.rows, extent(sch, row))])
    sch.reorder(columns, rows, each, key)
    for name in (product, partial):
        sch.compute_at(name, rows)
    init = _order_terms(sch, partial, rows, tile.unroll, tile.fetch)
    for name in (init, partial, product):
        sch.vectorize(below(sch, name, rows)[-1])
    for name in (init, product, writer):
        _unroll(sch, name, rows, len(below(sch, name, rows)) - (name != writer))


def _order_terms(sch: Schedule, partial: str, at: LoopRef, unroll: int, fetch: int) -> str:
    """Take the terms step by step, each for all keys and queries; return the block that begins."""
    own = own_loops(sch, partial, at)
    *_, row, key, lane, terms = (a.var for a in block_node(sch, partial).axes)
    steps = own.get(terms) or sch.add_unit_loop(partial)
    tile = [own[v] for v in (row, key, lane) if v in own]
    outer = [steps]
    if unroll > 1 and extent(sch, steps) > unroll:
        outer = list(sch.split(steps, [None, unroll]))
    sch.reorder(*outer, *tile)
    if fetch:
        sch.annotate(outer[0], FETCH.key, fetch)
    init = sch.decompose_reduction(partial, outer[0])
    for loop in (*outer[1:], *tile[:-1]):
        sch.unroll(loop)
    return init.name


def _unroll(sch: Schedule, block: str, at: LoopRef, count: int) -> None:
    """Unroll the first ``count`` loops of a block inside ``at``."""
    for loop in below(sch, block, at)[:count]:
        sch.unroll(loop)
