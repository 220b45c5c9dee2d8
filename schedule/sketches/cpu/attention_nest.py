"""Attention in one kernel: some rows of scores at a time, from the queries to the values.

A *piece* is a tile of query rows of one head; pieces run in parallel. The scores of a piece are
computed in register tiles, and stay in cache for the maxima, the exponentials, their sums and the
product with the values, whose epilogue stores the result. Where keys are many, a row is taken in
*parts*: their exponentials are relative to the maximum of the part, and sums and products of the
parts are scaled when they are put together (``rescale``, an online softmax).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....ir.dtypes import DType
from ....ir.loop.affine import bounds
from ....ir.loop.nodes import AxisKind, BlockAxis, Const, Func, Load, Var
from ....ir.loop.notes import FETCH
from ....ir.loop.visit import walk_expr
from ....ir.target import Target
from ...cursor import LoopRef, Nest, nest
from ...errors import ScheduleError
from ...language.schedule import Schedule
from ...legality import single_store, update_of
from ...masks import masked, shown_keys
from ...space.analyze import AccessPattern, BlockInfo, point_reads, product_operands
from ...space.lookup import below, block_node, extent, own_loops
from ...space.space import Choices
from .fallback import schedule_fallback
from .key_tiles import KeyTile, loops_below, tile_keys
from .rows import reduce_columns


@dataclass(frozen=True, slots=True)
class Attention:
    """The blocks of an attention, in program order, and the extents of its axes.

    ``scores`` and ``values`` are the two products; ``stages`` are the blocks on scores and on rows
    besides, ``exponential`` the name of the one that can be taken in parts (None if none can).
    ``consumer`` stores the result, and ``to_values`` maps its axes to those of ``values``, several
    to one where it splits the heads of all batches; without one ``values`` does. ``keys`` is the
    operand of ``scores`` that depends on the key, ``by_key`` says that the terms of one key are
    neighbors in it, rather than the keys. ``others`` are independent of the scores. ``shown`` is
    the share of the keys that a causal mask, a window or a length shows, over all rows; None
    without one.
    """

    scores: BlockInfo
    values: BlockInfo
    stages: tuple[BlockInfo, ...]
    exponential: str | None
    consumer: BlockInfo | None
    to_values: dict[Var, Var]
    keys: AccessPattern
    by_key: bool
    others: tuple[BlockInfo, ...]
    dtype: DType
    shown: float | None

    @property
    def key_axis(self) -> Var:
        """The axis of the keys in the block of the scores."""
        return self.scores.spatial[-1].var

    @property
    def heads(self) -> int:
        """The number of heads of all batches."""
        return math.prod(a.extent for a in self.scores.spatial[:-2])

    @property
    def queries(self) -> int:
        """The number of rows of scores of one head."""
        return self.scores.spatial[-2].extent

    @property
    def length(self) -> int:
        """The number of keys: elements in a row of scores."""
        return self.scores.spatial[-1].extent

    @property
    def depth(self) -> int:
        """The number of terms of a score."""
        return self.scores.reduce[0].extent

    @property
    def width(self) -> int:
        """The number of elements in a row of the result."""
        return self.values.spatial[-1].extent


def find_attention(func: Func, blocks: tuple[BlockInfo, ...]) -> Attention | None:
    """Return the roles of a function's blocks; None if it is no attention."""
    products = [b for b in blocks if product_operands(b) is not None]
    if len(products) != 2 or any(b.opaque or len(b.stores) != 1 for b in blocks):
        return None
    scores, values = products
    after, last = _follows(scores, blocks), _follows(values, blocks)
    if values not in after or len(last) > 1:
        return None
    stages = tuple(b for b in after if b is not values and b not in last)
    if not any(b.transcendental for b in stages) or not any(b.reduce for b in stages):
        return None
    lead = scores.spatial[:-1]
    plain = all(len(b.spatial) in (len(lead), len(lead) + 1) for b in stages)
    if not plain or any(_extents(b.spatial[: len(lead)]) != _extents(lead) for b in stages):
        return None
    by_key = _by_key(scores)
    if _extents(values.spatial[:-1]) != _extents(lead) or not _contiguous(values):
        return None
    if not (by_key or _contiguous(scores)):
        return None
    if values.reduce[0].extent != scores.spatial[-1].extent:
        return None
    consumer = last[0] if last else None
    to_values = {a.var: a.var for a in values.spatial}
    if consumer is not None:
        found = point_reads(consumer, values)
        inner = {a.var for a in values.spatial[-2:]}
        if found is None or any(f != 1 for v, f in found.values() if v in inner):
            return None
        if len([v for v, _ in found.values() if v in inner]) > 2:
            return None
        to_values = {v: found[v][0] for v in found}
    operand = next(a for a in product_operands(scores) or () if a.uses(scores.spatial[-1].var))
    mine = (scores, values, *stages, *last)
    return Attention(
        scores=scores,
        values=values,
        stages=stages,
        exponential=_exponential(func, stages, scores.spatial[-1].extent),
        consumer=consumer,
        to_values=to_values,
        keys=operand,
        by_key=by_key,
        others=tuple(b for b in blocks if b not in mine),
        dtype=scores.stores[0].buffer.dtype,
        shown=_shown(nest(func), stages),
    )


def _extents(axes: tuple[BlockAxis, ...]) -> tuple[int, ...]:
    return tuple(a.extent for a in axes)


def _follows(start: BlockInfo, blocks: tuple[BlockInfo, ...]) -> tuple[BlockInfo, ...]:
    """Return the blocks that depend on ``start``, directly or not, in program order."""
    written = {start.stores[0].buffer}
    found: list[BlockInfo] = []
    for b in blocks:
        if b is not start and any(a.buffer in written for a in b.inputs):
            written.add(b.stores[0].buffer)
            found.append(b)
    return tuple(found)


def _contiguous(product: BlockInfo) -> bool:
    """True if a product has one axis of terms, and vectors along its last axis."""
    if len(product.spatial) < 2 or len(product.reduce) != 1:
        return False
    last, terms = product.spatial[-1], product.reduce[0]
    strides = [a.stride(last.var) for a in product_operands(product) or ()]
    vectors = sorted(s if s is not None else -1 for s in strides) == [0, 1]
    return vectors and min(terms.extent, last.extent) >= 2


def _by_key(scores: BlockInfo) -> bool:
    """True if a product has one axis of terms, along which both operands are vectors."""
    if len(scores.spatial) < 2 or len(scores.reduce) != 1 or scores.spatial[-1].extent < 2:
        return False
    terms = scores.reduce[0]
    operands = product_operands(scores) or ()
    return terms.extent >= 2 and all(a.stride(terms.var) == 1 for a in operands)


def _shown(func: Nest, stages: tuple[BlockInfo, ...]) -> float | None:
    """Return the share of the keys that a mask shows, between the first and the last of a row.

    A half if it depends on the inputs; None if the mask hides neither the first nor the last keys.
    """
    for info in stages:
        block = func.block(info.name)
        store = single_store(block)
        found = None if store is None else masked(store.value)
        if found is None or info.reduce:
            continue
        (*_, row, key), (cond, _, hides) = block.axes, found
        shown = shown_keys(cond, hides, block.axes, key.var)
        first, end = shown.first or Const(0), shown.end or Const(key.extent)
        if shown.first is None and shown.end is None:
            continue
        if any(isinstance(e, Load) for bound in (first, end) for e in walk_expr(bound)):
            return 0.5
        total = 0
        for i in range(row.extent):
            begin, stop = bounds(first, {row.var: (i, i)})[0], bounds(end, {row.var: (i, i)})[1]
            total += max(0, min(stop, key.extent) - max(begin, 0))
        return total / max(row.extent * key.extent, 1)
    return None


def _exponential(func: Func, stages: tuple[BlockInfo, ...], length: int) -> str | None:
    """Return the block of exponentials if the softmax can be taken in parts."""
    for b in stages:
        if b.transcendental and not b.reduce and length >= 4:
            try:
                _take_parts(Schedule(func), b.name, length // 2)
            except ScheduleError:
                return None
            return b.name
    return None


@dataclass(frozen=True, slots=True)
class _Parts:
    """The names of the blocks of partial results, by the block that puts them together."""

    partial: dict[str, str]
    scale: str
    maximum: str


def _take_parts(sch: Schedule, exponential: str, part: int) -> _Parts:
    """Take rows in parts of ``part`` elements."""
    at = sch.block(exponential)
    shift = {r.buffer for r in at.reads}
    partial: dict[str, str] = {}
    maximum = ""
    for name in [b.name for b in sch.blocks()]:
        node = sch.block(name)
        update = update_of(node)
        feeds = update is not None and node.writes[0].buffer in shift and update[1] == "maximum"
        sums = any(r.buffer is at.writes[0].buffer for r in node.reads)
        if not feeds and not sums:
            continue
        *rows, along = sch.get_loops(name)
        outer, inner = sch.split(along, [None, part])
        sch.reorder(outer, *rows, inner)
        partial[name] = sch.rfactor(outer, 0).name
        maximum = name if feeds else maximum
    return _Parts(partial, sch.rescale(exponential).name, maximum)


def apply_attention(k: Attention, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule an attention with the given decisions."""
    for info in k.others:
        schedule_fallback(sch, info, target)
    parts = None
    if c["part"]:
        assert k.exponential is not None
        parts = _take_parts(sch, k.exponential, int(c["part"]))
    host = _host(k, sch, parts)
    at = _pieces(k, sch, c, host)
    for name in reversed(_in_order(k, parts)):
        if name != host:
            sch.compute_at(name, at)
    inside = at if parts is None else _merged_parts(k, sch, c, parts, at)
    lanes = target.lanes(k.dtype)
    writer = _score_tiles(k, sch, c, inside, lanes)
    for info in k.stages:
        if info.name != writer:
            _schedule_stage(k, sch, c, info, parts, (at, inside), lanes)
    _value_tiles(k, sch, c, parts, (at, inside), host, lanes)
    if c["parallel"]:
        sch.parallel(at)
    if parts is not None and k.shown is not None:
        sch.skip_masked(inside)


def _host(k: Attention, sch: Schedule, parts: _Parts | None) -> str:
    """Return the block that stores the result."""
    if k.consumer is not None:
        if parts is None:
            sch.set_scope(k.values.name, 0, "register")
        return k.consumer.name
    if parts is not None:
        return k.values.name
    return sch.cache_write(k.values.name, 0, "register").name


def _pieces(k: Attention, sch: Schedule, c: Choices, host: str) -> LoopRef:
    """Return the loop over all pieces, outermost in the nest of ``host``."""
    own = own_loops(sch, host)
    axes = [a.var for a in block_node(sch, host).axes if a.kind is AxisKind.SPATIAL]
    role = k.to_values
    if k.consumer is None:
        role = dict(zip(axes, (a.var for a in k.values.spatial), strict=True))
    *_, row, column = (a.var for a in k.values.spatial)
    by = {role.get(v): own[v] for v in axes if v in own}
    if row not in by:
        by[row] = sch.add_unit_loop(host)
    lead = [own[v] for v in axes if v in own and role.get(v) not in (row, column)]
    tile, rows = sch.split(by[row], [None, int(c["tile"])])
    sch.reorder(*lead, tile, rows, by[column])
    return sch.fuse(*lead, tile) if lead else tile


def _in_order(k: Attention, parts: _Parts | None) -> list[str]:
    """Return the stages and the product with the values, with their partial results, in order."""
    names: list[str] = []
    for info in (*k.stages, k.values):
        if parts is not None and info.name in parts.partial:
            names.append(parts.partial[info.name])
        names.append(info.name)
        if parts is not None and info.name == parts.maximum:
            names.append(parts.scale)
    return names


def _merged_parts(k: Attention, sch: Schedule, c: Choices, parts: _Parts, at: LoopRef) -> LoopRef:
    """Return one loop over the parts of a row, with all that is done on each of them."""
    first: LoopRef | None = None
    for info in (*k.stages, k.values):
        name = parts.partial.get(info.name, info.name)
        if name == info.name and name != k.exponential:
            continue
        *rest, along = below(sch, name, at)
        if name == k.exponential:
            part, along = sch.split(along, [None, int(c["part"])])
        else:
            *rest, part = rest
        sch.reorder(part, *rest, along)
        first = part if first is None else sch.merge(first, part)
    assert first is not None
    for info in reversed(k.stages):
        if _is_full(k, info) and info.name != k.exponential and info.name not in parts.partial:
            sch.compute_at(info.name, first)
    return first


def _is_full(k: Attention, info: BlockInfo) -> bool:
    """True if a stage has an element for each score, rather than for each row."""
    return len(info.spatial) == len(k.scores.spatial)


def _score_tiles(k: Attention, sch: Schedule, c: Choices, at: LoopRef, lanes: int) -> str:
    """Compute the scores in register tiles; return the block that stores them."""
    buffer = k.scores.stores[0].buffer
    readers = [b for b in k.stages if any(a.buffer is buffer for a in b.inputs)]
    if len(readers) == 1 and _is_full(k, readers[0]) and readers[0].name != k.exponential:
        writer = readers[0].name
        sch.set_scope(k.scores.name, 0, "register")
    else:
        writer = sch.cache_write(k.scores.name, 0, "register").name
        sch.compute_at(writer, at)
    if k.by_key:
        fetch = int(c["fetch"])
        keyed = KeyTile(int(c["rows"]), int(c["keys"]), lanes, int(c["unroll"]), fetch)
        tile_keys(sch, k.scores.name, writer, at, keyed)
        return writer
    lanes = min(lanes, k.length)
    tile = _Tile(int(c["rows"]), int(c["vectors"]), lanes, int(c["unroll"]))
    _tile_product(sch, k.scores.name, writer, at, tile)
    if c["pack"]:
        _pack_keys(k, sch, at, tile.vectors * lanes)
    return writer


def _pack_keys(k: Attention, sch: Schedule, at: LoopRef, width: int) -> None:
    """Copy the keys of one part, or of all, into panels of ``width`` keys."""
    reads = [r.buffer for r in sch.block(k.scores.name).reads]
    packed = sch.cache_read(k.scores.name, reads.index(k.keys.buffer), "global")
    rank = len(k.keys.buffer.shape)
    column = next(d for d, f in enumerate(k.keys.coefficients) if f and k.key_axis in f)
    lead = [d for d in range(rank) if d != column and not _steps_terms(k, d)]
    terms = [d for d in range(rank) if _steps_terms(k, d)]
    sch.transform_layout(packed, 0, [*lead, column, *terms, rank], [(column, width)])
    sch.compute_at(packed, at)
    along = own_loops(sch, packed, at)[block_node(sch, packed).axes[column].var]
    if extent(sch, along) > width:
        _, along = sch.split(along, [None, width])
    sch.vectorize(along)


def _steps_terms(k: Attention, d: int) -> bool:
    """True if dimension ``d`` of the keys is indexed by the axis of terms of the scores."""
    return k.scores.reduce[0].var in (k.keys.coefficients[d] or {})


@dataclass(frozen=True, slots=True)
class _Tile:
    """A register tile of a product: rows x vectors of lanes, and terms that are unrolled.

    The operand with the lanes is prefetched ``fetch`` bytes ahead.
    """

    rows: int
    vectors: int
    lanes: int
    unroll: int
    fetch: int = 0


def _tile_product(sch: Schedule, product: str, writer: str, at: LoopRef, tile: _Tile) -> None:
    """Compute a product in register tiles inside ``at``, each stored by ``writer``."""
    row, column = loops_below(sch, writer, at, 2)
    columns, *inner = sch.split(column, [None, tile.vectors, tile.lanes])
    rows, each = sch.split(row, [None, tile.rows])
    sch.reorder(columns, rows, each, *inner)
    sch.compute_at(product, rows)
    row, column, terms = loops_below(sch, product, rows, 3)
    steps = [terms]
    if tile.unroll > 1:
        steps = list(sch.split(terms, [None, tile.unroll]))
    if tile.fetch:
        sch.annotate(steps[0], FETCH.key, tile.fetch)
    vector, lane = sch.split(column, [tile.vectors, tile.lanes])
    sch.reorder(*steps, row, vector, lane)
    init = sch.decompose_reduction(product, steps[0])
    for *loops, last in ([row, vector, lane], sch.get_loops(init)[-3:], [each, *inner]):
        for loop in loops:
            sch.unroll(loop)
        sch.vectorize(last)
    for loop in steps[1:]:
        sch.unroll(loop)


def _schedule_stage(
    k: Attention,
    sch: Schedule,
    c: Choices,
    info: BlockInfo,
    parts: _Parts | None,
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
        full = _is_full(k, info)
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
    parts: _Parts | None,
    places: tuple[LoopRef, LoopRef],
    host: str,
    lanes: int,
) -> None:
    """Compute the product with the values in register tiles, and store the result."""
    at, inside = places
    name, lanes = k.values.name, min(lanes, k.width)
    fetch = int(c["fetch"]) if k.by_key else 0
    tile = _Tile(int(c["value_rows"]), int(c["value_vectors"]), lanes, int(c["unroll"]), fetch)
    if parts is None:
        _tile_product(sch, name, host, at, tile)
        return
    partial = parts.partial[name]
    writer = sch.cache_write(partial, 0, "register").name
    sch.reverse_compute_at(writer, inside)
    _tile_product(sch, partial, writer, inside, tile)
    rows, column, part = loops_below(sch, name, at, 3)
    columns, lane = sch.split(column, [None, lanes])
    sch.reorder(rows, columns, part, lane)
    init = sch.decompose_reduction(name, part)
    sch.vectorize(lane)
    sch.vectorize(sch.get_loops(init)[-1])
    if host != name:
        _lanes_along(sch, below(sch, host, at)[-1], lanes)
