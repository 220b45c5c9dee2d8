"""The register-tiling sketch: accumulators in registers, and the consumer fused into the tile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from .....ir.loop.nodes import Var
from .....ir.loop.notes import FETCH_AHEAD
from .....ir.loop.visit import free_vars
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, BlockInfo
from ....space.lookup import block_node, extent, own_loops
from ....space.space import Batch, Choice, Choices, Sketch
from ..nests.contraction import (
    AHEAD,
    CHUNK,
    INLINE,
    PANEL,
    SKIP,
    Contraction,
    TileChoices,
    TileColumns,
    TileDomains,
    chunk_axis,
    chunk_extent,
    tile_of,
)
from ..nests.fallback import schedule_fallback
from ..nests.matching import CPU, FuncInfo, once
from ..nests.pointwise import may_share_flops
from ..nests.registers import keep_result, vectorize_tile
from .tile_cost import contraction_cost, contraction_valid

CERTAIN = 128  # times the least work that threads may share, from which they do
PANELS = (1, 2, 3, 4, 6, 8, 12, 16)
ROWS = (*range(1, 15), 16, 28)
VECTORS = (1, 2, 3, 4, 6)
LONG = (8, 12, 16, 24)  # vectors of a tile of few rows, over weights in place
CLEARLY = 0.9  # of another sketch's estimate, below which a product is the faster one
FEWEST = 4  # rows, from which so many exceed the registers


@dataclass(frozen=True, slots=True)
class _TileLoops:
    """The loops around a tile, and the loops of the tile itself (None if there is none).

    ``panel`` is the one around all that use a panel of weights, or a chunk of rows.
    """

    panel: LoopRef
    at: LoopRef
    row: LoopRef | None
    vector: LoopRef | None
    lane: LoopRef


@CPU.row(10)
@once
def match_tiling(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a heavy reduction whose last axis is contiguous."""
    k = work.contraction
    if k is None:
        return None
    return tiling_sketch(k, work.besides(k.anchor, k.consumer, *k.feeders), target)


def beside_tiling(
    sketch: Sketch | None, work: FuncInfo, target: Target, above: float, most: float
) -> Sketch | None:
    """Return a sketch if its estimate is ``above`` to ``most`` times that of plain tiles."""
    plain = None if sketch is None else match_tiling(work, target)
    if sketch is None or plain is None:
        return None
    ratio = sketch.cost(sketch.default) / plain.cost(plain.default)
    return sketch if above < ratio <= most else None


@CPU.row(9)
def match_turned(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product that is stored transposed, if it is clearly cheaper to turn an operand."""
    pair = _turned(work, target)
    return pair[0] if pair is not None and pair[1] < CLEARLY else None


@CPU.row(11)
def match_turned_dearer(work: FuncInfo, target: Target) -> Sketch | None:
    """Match the others of these products, for the tuner to try."""
    pair = _turned(work, target)
    return pair[0] if pair is not None and pair[1] >= CLEARLY else None


@once
def _turned(work: FuncInfo, target: Target) -> tuple[Sketch, float] | None:
    """Return the sketch, and its estimate relative to that of a result stored in pieces."""
    k = work.across
    if k is None:
        return None
    others = work.besides(k.anchor, k.consumer, *k.feeders)
    sketch, straight = tiling_sketch(k, others, target, "turned@1"), match_tiling(work, target)
    seconds = math.inf if straight is None else straight.cost(straight.default)
    return sketch, sketch.cost(sketch.default) / seconds


def tiling_sketch(
    k: Contraction, others: tuple[BlockInfo, ...], target: Target, name: str = "tiling@2"
) -> Sketch:
    """Return the space of a register-tiled reduction; ``others`` get the fallback schedule."""
    domains = _decisions(k, target)
    decisions = cast("dict[str, tuple[Choice, ...]]", domains)

    many = Batch(
        valid=lambda c: contraction_valid(k, cast("TileColumns", c), target),
        cost=lambda c: contraction_cost(k, cast("TileColumns", c), target),
    )

    def apply(sch: Schedule, choices: Choices) -> None:
        c = cast("TileChoices", choices)
        for info in others if c["inside"] else (*others, *k.feeders):
            schedule_fallback(sch, info, target)
        if c["inside"] in (INLINE, SKIP):
            for info in k.feeders:
                sch.compute_inline(info.name)
        if c["inside"] == SKIP:
            sch.skip_zeros(k.anchor.name)
        apply_tiling(k, sch, c)

    fixed: dict[str, Choice] = {"lanes": domains["lanes"][0], "unroll": 1}
    if may_share_flops(k.anchor.flops / CERTAIN, target):
        fixed["parallel"] = domains["parallel"][0]
    modest = {**decisions, "inside": _usual_places(k, domains["inside"])}
    default = many.cheapest(modest, fixed)
    for unroll in (2, 4):
        if many.valid_one({**default, "unroll": unroll}):
            default = {**default, "unroll": unroll}
    return Sketch(
        name=name,
        kind="contraction",
        decisions=decisions,
        default=default,
        apply=apply,
        valid=many.valid_one,
        cost=many.cost_one,
        many=many,
    )


def _usual_places(k: Contraction, places: tuple[int, ...]) -> tuple[int, ...]:
    """Return where a default schedule may place feeders.

    Inlining them adds code for every element at a border. Beside products the tuner measures if
    that pays; a window without weights does so little that it always has.
    """
    return places if k.weights is None else tuple(x for x in places if x != INLINE)


def _decisions(k: Contraction, target: Target) -> TileDomains:
    full = max(1, target.lanes(k.dtype))
    extent = k.column.extent
    halves = extent > full // 2 > 1 and not k.turned
    lanes: tuple[int, ...] = (full, full // 2) if halves else (full,)
    if extent < full:
        lanes = (extent,)
    row_extent = k.row.extent if k.row else 1
    chunks = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= chunk_extent(k, 1)]
    widths = (*VECTORS, *LONG) if row_extent < FEWEST else VECTORS
    panels = len(k.weight_parts) == 1 and k.row is not None
    packs: tuple[int, ...] = (0, PANEL) if panels else (0,)
    packs = (PANEL,) if k.turned else packs
    return {
        "rows": tuple(r for r in ROWS if r <= row_extent),
        "vectors": tuple(v for v in widths if v == 1 or (v - 1) * lanes[-1] < extent),
        "lanes": lanes,
        "order": ("column", "row"),
        "chunks": tuple(chunks),
        "panels": tuple(n for n in PANELS if n == 1 or n * lanes[-1] < extent),
        "pack": (AHEAD, *packs) if k.frozen else packs,
        "unroll": (1, 2, 4, 8),
        "inside": _placements(k),
        "parallel": (1, 0) if may_share_flops(k.anchor.flops, target) else (0,),
    }


def _placements(k: Contraction) -> tuple[int, ...]:
    if not k.feeders:
        return (0,)
    return (0, CHUNK, INLINE, SKIP) if k.kept is not None else (0, CHUNK, INLINE)


def apply_tiling(k: Contraction, sch: Schedule, c: TileChoices) -> None:
    """Tile the output, compute the reduction on the tile in registers, vectorize both."""
    anchor = k.anchor.name
    if k.consumer is not None:
        _columns_last(k, sch)
    out = keep_result(sch, anchor, k.consumer)
    nest = _tile_output(k, sch, c, out)
    sch.compute_at(anchor, nest.at)
    if c["inside"] == CHUNK:
        feed_inside(k, sch, nest.panel, c["lanes"])
    if c["pack"] == PANEL:
        _pack_panel(k, sch, nest.panel, c["lanes"])
    _tile_anchor(k, sch, c, nest.at)
    if c["pack"] == AHEAD:
        for part in k.weight_parts:
            _pack_ahead(k, sch, c, part)
    tile = (nest.row, nest.vector, nest.lane)
    vectorize_tile(sch, [loop for loop in tile if loop is not None])


def _columns_last(k: Contraction, sch: Schedule) -> None:
    """Lay the tile out with its columns as neighbors, where they are not the anchor's last axis."""
    axes = [a.var for a in k.anchor.spatial]
    lane = axes.index(k.anchor_column)
    if lane < len(axes) - 1:
        rest = [d for d in range(len(axes)) if d != lane]
        sch.transform_layout(k.anchor.name, 0, [*rest, lane])


def feed_inside(k: Contraction, sch: Schedule, at: LoopRef, lanes: int) -> None:
    """Compute the feeders that one iteration of ``at`` needs in that iteration, vectorized."""
    for info in reversed(k.feeders):
        sch.compute_at(info.name, at)
    for info in k.feeders:
        columns = own_loops(sch, info.name, at).get(info.spatial[-1].var)
        if columns is None:
            continue
        if extent(sch, columns) > lanes:
            _, columns = sch.split(columns, [None, lanes])
        sch.vectorize(columns)


def _tile_output(k: Contraction, sch: Schedule, c: TileChoices, out: str) -> _TileLoops:
    """Split and reorder the output's loops, the tile innermost."""
    rows, vectors, lanes = tile_of(c)
    loops = result_loops(k, sch, out)
    vector = None
    if vectors > 1:
        column, vector, lane = sch.split(loops[k.column.var], [None, vectors, lanes])
    else:
        column, lane = sch.split(loops[k.column.var], [None, lanes])
    row = None
    if k.row is not None and rows > 1:
        loops[k.row.var], row = sch.split(loops[k.row.var], [None, rows])
    chunk = split_chunks(k, sch, c["chunks"], loops)
    outer = [loops[a.var] for a in k.outer if a.var in loops]
    around = (*k.sweep, k.row) if k.row is not None else k.sweep
    inside = [loops[a.var] for a in around if a.var in loops]
    by_column = c["order"] == "column"
    panel: list[LoopRef] = []
    if by_column and c["panels"] > 1:
        column, next_panel = sch.split(column, [None, c["panels"]])
        panel = [next_panel]
    head = [*outer, *chunk, column] if by_column else [*outer, *chunk]
    middle = [*panel, *inside] if by_column else [*inside, column]
    sch.reorder(*head, *middle, *(x for x in (row, vector, lane) if x is not None))
    if not head:
        head, middle = middle[:1], middle[1:]
    share = head[0] if len(head) == 1 else sch.fuse(*head)
    if c["parallel"]:
        sch.parallel(share)
    for loop in panel:
        sch.annotate(loop, FETCH_AHEAD.key, 1)
    return _TileLoops((*panel, share)[0], middle[-1] if middle else share, row, vector, lane)


def split_chunks(
    k: Contraction, sch: Schedule, chunks: int, loops: dict[Var, LoopRef]
) -> list[LoopRef]:
    """Split an axis of the result into chunks for the threads; return the loop over them, if any.

    ``loops`` are those of the axes, where the one inside of a chunk takes the place of its axis'.
    """
    axis = chunk_axis(k)
    if axis is None or chunks == 1:
        return []
    first, loops[axis.var] = sch.split(loops[axis.var], [chunks, None])
    return [first]


def result_loops(k: Contraction, sch: Schedule, out: str) -> dict[Var, LoopRef]:
    """Map each axis of the block that writes the result to its loop; unit axes may have none."""
    own = own_loops(sch, out)
    if k.consumer is not None:
        return own
    axes = block_node(sch, out).axes  # of the copy, in the order of the anchor's
    return {a.var: own[b.var] for a, b in zip(k.anchor.spatial, axes, strict=True) if b.var in own}


def copy_weights(k: Contraction, sch: Schedule, weights: AccessPattern) -> BlockRef:
    """Let the product read weights from a copy; its other operand may be the same buffer."""
    block = sch.get_block(k.anchor.name)
    reads = enumerate(block_node(sch, block).reads)
    same = {n: r.ranges for n, r in reads if r.buffer is weights.buffer}
    used = (n for n, at in same.items() if any(k.anchor_column in free_vars(x.start) for x in at))
    return sch.cache_read(block, next(used), "global", (), len(same) > 1)


def _pack_panel(k: Contraction, sch: Schedule, at: LoopRef, lanes: int) -> None:
    """Copy the panel of weights for a column of tiles into contiguous memory before its use."""
    assert k.weights is not None
    packed = copy_weights(k, sch, k.weights)
    if k.turned:
        _turn_panel(k, sch, packed, at, lanes)
        return
    sch.compute_at(packed, at)
    sch.vectorize(sch.get_loops(packed)[-1])


def _turn_panel(k: Contraction, sch: Schedule, packed: BlockRef, at: LoopRef, lanes: int) -> None:
    """Copy a panel whose columns are contiguous, by squares that are transposed in registers."""
    assert k.weights is not None
    forms = [form or {} for form in k.weights.coefficients]
    column = next(d for d, form in enumerate(forms) if k.anchor_column in form)
    order = [*(d for d in range(len(forms)) if d != column), column]
    sch.transform_layout(packed, 0, order)
    sch.compute_at(packed, at)
    axes = [a.var for a in block_node(sch, packed).axes]
    depth = next(d for d, form in enumerate(forms) if k.anchor.reduce[0].var in form)
    own = own_loops(sch, packed, at)
    across, near = sch.split(own[axes[column]], [None, lanes])
    along, lane = sch.split(own[axes[depth]], [None, lanes])
    sch.reorder(across, along, near, lane)
    sch.vectorize(lane)
    sch.unroll(near)


def _pack_ahead(k: Contraction, sch: Schedule, c: TileChoices, weights: AccessPattern) -> None:
    """Pack weights as ``[..., columns / width, reduction ..., width]``, ahead of time."""
    _, vectors, lanes = tile_of(c)
    packed = copy_weights(k, sch, weights)
    outer = {a.var for a in k.anchor.spatial if a.var != k.anchor_column}
    forms = [form or {} for form in weights.coefficients]
    column = next(d for d, form in enumerate(forms) if k.anchor_column in form)
    width = min(vectors * lanes, weights.buffer.shape[column])
    first = [d for d, form in enumerate(forms) if d != column and outer & form.keys()]
    rest = [d for d in range(len(forms)) if d != column and d not in first]
    order = [*first, column, *rest, len(forms)]
    sch.transform_layout(packed, 0, order, [(column, width)])


def _tile_anchor(k: Contraction, sch: Schedule, c: TileChoices, at: LoopRef) -> None:
    """Move the reduction outside the tile, decompose its init, unroll rows and vectors."""
    _, vectors, lanes = tile_of(c)
    own = own_loops(sch, k.anchor.name, at)
    reduce = [own[a.var] for a in k.anchor.reduce if a.var in own]
    inner: list[LoopRef] = []
    if c["unroll"] > 1 and reduce:
        last, step = sch.split(reduce[-1], [None, c["unroll"]])
        reduce = [*reduce[:-1], last]
        inner = [step]
    tile = [own[k.anchor_row]] if k.anchor_row in own and c["rows"] > 1 else []
    lane = own.get(k.anchor_column)
    if lane is not None and vectors > 1:
        vector, lane = sch.split(lane, [vectors, lanes])
        tile.append(vector)
    rest = [
        own[a.var]
        for a in k.anchor.spatial
        if a.var in own and own[a.var] not in (*tile, lane) and a.var != k.anchor_column
    ]
    end = [lane] if lane is not None else []
    sch.reorder(*rest, *reduce, *inner, *tile, *end)
    init = sch.decompose_reduction(k.anchor.name, reduce[0])
    started = list(sch.get_loops(init))[-len(tile) - len(end) :]
    for group in ([*tile, *end], started):
        if end:
            sch.vectorize(group[-1])
        for loop in group[: len(tile)]:
            sch.unroll(loop)
    for loop in inner:
        sch.unroll(loop)
