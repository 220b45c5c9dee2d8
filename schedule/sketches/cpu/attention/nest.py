"""Attention in one kernel: some rows of scores at a time, from the queries to the values.

A *piece* is a tile of query rows of one head; pieces run in parallel. The scores of a piece are
computed in register tiles, and stay in cache for the maxima, the exponentials, their sums and the
product with the values, whose epilogue stores the result. Where keys are many, a row is taken in
*parts*: their exponentials are relative to the maximum of the part, and sums and products of the
parts are scaled when they are put together (``rescale``, an online softmax).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .....ir.loop.notes import FETCH, IN_TILES
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo
from ....space.attention import (
    Attention,
    SoftmaxParts,
    in_order,
    is_full,
    merged_parts,
    pieces,
    take_parts,
)
from ....space.lookup import below, extent
from ....space.space import Choices
from ..nests.fallback import schedule_fallback
from ..nests.lane_sums import reduce_columns
from .key_tiles import KeyTile, loops_below, tile_keys
from .panels import LaneProducts, OperandPanel, copy_narrow, copy_operand, key_dims, pack


def apply_attention(
    k: Attention, sch: Schedule, c: Choices, target: Target, pairs: LaneProducts | None = None
) -> None:
    """Schedule an attention with the given decisions, by the instructions ``pairs`` if given."""
    for info in k.others:
        schedule_fallback(sch, info, target)
    parts = None
    if c["part"]:
        assert k.exponential is not None
        parts = take_parts(sch, k.exponential, int(c["part"]))
    scope = "global" if pairs is not None and pairs.tiled else "register"
    host = _host(k, sch, parts, scope)
    at = pieces(k, sch, host, int(c["tile"]))
    for name in reversed(in_order(k, parts)):
        if name != host:
            sch.compute_at(name, at)
    inside = at if parts is None else merged_parts(k, sch, parts, int(c["part"]), at)
    lanes = target.lanes(k.dtype)
    writer = _score_tiles(k, sch, c, inside, lanes, pairs)
    for info in k.stages:
        if info.name != writer:
            _schedule_stage(k, sch, c, info, parts, (at, inside), lanes)
    _value_tiles(k, sch, c, parts, (at, inside), host, lanes, pairs)
    if c["parallel"]:
        sch.parallel(at)
    if parts is not None and k.shown is not None:
        sch.skip_masked(inside)


def _host(k: Attention, sch: Schedule, parts: SoftmaxParts | None, scope: str) -> str:
    """Return the block that stores the result, of sums in a scope."""
    if k.consumer is not None:
        if parts is None:
            sch.set_scope(k.values.name, 0, scope)
        return k.consumer.name
    if parts is not None:
        return k.values.name
    return sch.cache_write(k.values.name, 0, scope).name


def _score_tiles(
    k: Attention,
    sch: Schedule,
    c: Choices,
    at: LoopRef,
    lanes: int,
    pairs: LaneProducts | None,
) -> str:
    """Compute the scores in register tiles; return the block that stores them."""
    buffer = k.scores.stores[0].buffer
    tiled = pairs is not None and pairs.tiled
    scope = "global" if tiled else "register"
    readers = [b for b in k.stages if any(a.buffer is buffer for a in b.inputs)]
    if len(readers) == 1 and is_full(k, readers[0]) and readers[0].name != k.exponential:
        writer = readers[0].name
        sch.set_scope(k.scores.name, 0, scope)
    else:
        writer = sch.cache_write(k.scores.name, 0, scope).name
        sch.compute_at(writer, at)
    if k.by_key:
        fetch = int(c["fetch"])
        keyed = KeyTile(int(c["rows"]), int(c["keys"]), lanes, int(c["unroll"]), fetch)
        tile_keys(sch, k.scores.name, writer, at, keyed)
        return writer
    lanes = min(lanes, k.length)
    panel = _key_panel(k, c, pairs)
    tile = _Tile(int(c["rows"]), int(c["vectors"]), lanes, int(c["unroll"]), tiled=tiled)
    if panel is None:
        _tile_product(sch, k.scores.name, writer, at, tile)
        return writer
    panel = replace(panel, width=tile.vectors * lanes)
    sch.compute_at(k.scores.name, at)
    keys = copy_operand(sch, k.scores.name, k.keys, at, panel)
    _tile_product(sch, k.scores.name, writer, at, replace(tile, depth=panel.depth))
    pack(sch, keys, at, panel, lanes)
    return writer


def _key_panel(k: Attention, c: Choices, pairs: LaneProducts | None) -> OperandPanel | None:
    """Return the panels of keys; None if they are read where they are."""
    if pairs is not None:
        return pairs.keys
    found = key_dims(k) if c["pack"] else None
    return None if found is None else OperandPanel(*found)


@dataclass(frozen=True, slots=True)
class _Tile:
    """A register tile of a product: rows x vectors of lanes, and terms that are unrolled.

    The operand with the lanes is prefetched ``fetch`` bytes ahead. A lane adds up ``depth`` terms
    at once. One that is ``tiled`` is made in tile registers, all terms at once.
    """

    rows: int
    vectors: int
    lanes: int
    unroll: int
    fetch: int = 0
    depth: int = 1
    tiled: bool = False


def _tile_product(sch: Schedule, product: str, writer: str, at: LoopRef, tile: _Tile) -> None:
    """Compute a product in register tiles inside ``at``, each stored by ``writer``."""
    row, column = loops_below(sch, writer, at, 2)
    columns, *inner = sch.split(column, [None, tile.vectors, tile.lanes])
    rows, each = sch.split(row, [None, tile.rows])
    sch.reorder(columns, rows, each, *inner)
    sch.compute_at(product, rows)
    if tile.tiled:
        _in_tile_registers(sch, product, rows, tile.depth)
        sch.unroll(inner[0])
        sch.vectorize(inner[1])
        return
    row, column, terms = loops_below(sch, product, rows, 3)
    together: list[LoopRef] = []
    if tile.depth > 1:
        terms, *together = sch.split(terms, [None, tile.depth])
    steps = [terms]
    if tile.unroll > 1 and extent(sch, terms) > 1:
        steps = list(sch.split(terms, [None, tile.unroll]))
    if tile.fetch:
        sch.annotate(steps[0], FETCH.key, tile.fetch)
    vector, lane = sch.split(column, [tile.vectors, tile.lanes])
    sch.reorder(*steps, row, vector, lane, *together)
    init = sch.decompose_reduction(product, steps[0])
    for *loops, last in ([row, vector, lane], sch.get_loops(init)[-3:], [each, *inner]):
        for loop in loops:
            sch.unroll(loop)
        sch.vectorize(last)
    for loop in steps[1:]:
        sch.unroll(loop)


def _in_tile_registers(sch: Schedule, product: str, at: LoopRef, depth: int) -> None:
    """Compute a tile of a product inside ``at`` in tile registers, groups of terms inside."""
    row, column, terms = loops_below(sch, product, at, 3)
    steps, group = sch.split(terms, [None, depth])
    sch.reorder(steps, row, column, group)
    init = sch.decompose_reduction(product, steps)
    sch.annotate(steps, IN_TILES.key, 1)
    for loop in (column, sch.get_loops(init)[-1]):
        sch.vectorize(loop)


def _schedule_stage(
    k: Attention,
    sch: Schedule,
    c: Choices,
    info: BlockInfo,
    parts: SoftmaxParts | None,
    places: tuple[LoopRef, LoopRef],
    lanes: int,
) -> None:
    """Vectorize a stage, along the keys if it has an element or a term for each score."""
    at, inside = places
    width = lanes * int(c["accumulators"])
    if parts is not None and info.name in parts.partial:
        partial = parts.partial[info.name]
        reduce_columns(sch, partial, below(sch, partial, inside)[-1:], width)
        _combine_rows(sch, info.name, at, lanes)
        if info.name == parts.maximum and k.queries > 1:
            _lanes_along(sch, below(sch, parts.scale, at)[-1], lanes)
    elif info.reduce:
        reduce_columns(sch, info.name, below(sch, info.name, at)[-1:], width)
    else:
        full = is_full(k, info)
        if full or k.queries > 1:
            own = below(sch, info.name, inside if full else at)
            _lanes_along(sch, own[-1], 2 * lanes if full else lanes)


def _lanes_along(sch: Schedule, loop: LoopRef, width: int) -> LoopRef:
    """Vectorize a loop, split into vectors if it is longer; return the loop over vectors."""
    if extent(sch, loop) <= width:
        sch.vectorize(loop)
        return loop
    outer, lane = sch.split(loop, [None, width])
    sch.vectorize(lane)
    return outer


def _combine_rows(sch: Schedule, name: str, at: LoopRef, lanes: int) -> None:
    """Put the partial results of rows together, one row in each lane."""
    rows, part = loops_below(sch, name, at, 2)
    rows, lane = sch.split(rows, [None, min(lanes, extent(sch, rows))])
    sch.reorder(rows, part, lane)
    init = sch.decompose_reduction(name, part)
    sch.vectorize(lane)
    sch.vectorize(sch.get_loops(init)[-1])


def _value_tiles(
    k: Attention,
    sch: Schedule,
    c: Choices,
    parts: SoftmaxParts | None,
    places: tuple[LoopRef, LoopRef],
    host: str,
    lanes: int,
    pairs: LaneProducts | None,
) -> None:
    """Compute the product with the values in register tiles, and store the result."""
    at, inside = places
    name, lanes = k.values.name, min(lanes, k.width)
    fetch = int(c["fetch"]) if k.by_key else 0
    depth = 1 if pairs is None else pairs.values.depth
    sides = int(c["value_rows"]), int(c["value_vectors"])
    unroll = int(c["unroll"]) if k.length % depth == 0 else 1  # so that one step is an edge
    tiled = pairs is not None and pairs.tiled
    tile = _Tile(*sides, lanes, unroll, fetch, depth, tiled)
    if parts is None:
        _value_product(k, sch, (name, host), at, tile, pairs)
        return
    partial = parts.partial[name]
    writer = sch.cache_write(partial, 0, "global" if tiled else "register").name
    sch.reverse_compute_at(writer, inside)
    _value_product(k, sch, (partial, writer), inside, tile, pairs)
    rows, column, part = loops_below(sch, name, at, 3)
    columns, lane = sch.split(column, [None, lanes])
    sch.reorder(rows, columns, part, lane)
    init = sch.decompose_reduction(name, part)
    sch.vectorize(lane)
    sch.vectorize(sch.get_loops(init)[-1])
    if host != name:
        _lanes_along(sch, below(sch, host, at)[-1], lanes)


def _value_product(
    k: Attention,
    sch: Schedule,
    blocks: tuple[str, str],
    at: LoopRef,
    tile: _Tile,
    pairs: LaneProducts | None,
) -> None:
    """Compute the product with the values inside ``at``, and prepare operands of an instruction."""
    product, writer = blocks
    if pairs is None:
        _tile_product(sch, product, writer, at, tile)
        return
    panel = replace(pairs.values, width=tile.vectors * tile.lanes)
    values = copy_operand(sch, product, k.value_operand, at, panel)
    if pairs.weights is not None:
        copy_narrow(sch, product, pairs.weights, 2 * tile.lanes)
    _tile_product(sch, product, writer, at, tile)
    pack(sch, values, at, panel, tile.lanes)
