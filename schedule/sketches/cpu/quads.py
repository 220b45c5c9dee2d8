"""Integer products: tiles whose innermost step adds up four products of bytes per lane.

Processors multiply vectors of bytes four deep: each lane of 32 bits takes four neighbours of one
operand, the same for all lanes, and four of its own. So the weights are packed ahead of time as
``[.., columns / width, .., depth / 4, width, 4]``, and the loop over the four is innermost, inside
of the lanes, where the emitter makes one instruction of it (``codegen/emit/quads.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....ir.dtypes import DType
from ....ir.quads import DEPTH, quad_lanes
from ....ir.target import Target
from ...cursor import LoopRef
from ...language.schedule import Schedule
from ...space.analyze import AccessPattern, product_operands
from ...space.lookup import block_node, own_loops
from ...space.space import Choice, Choices, Sketch, cheapest
from .contraction import Contraction, tile_of
from .fallback import schedule_fallback
from .matching import CPU, FuncInfo
from .pointwise import PARALLEL_WORK
from .tiling import ROWS, result_loops


@dataclass(frozen=True, slots=True)
class _WeightAxes:
    """The dimensions of the weights along the columns and along the innermost terms."""

    column: int
    depth: int


@CPU.row(8)
def match_quads(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of bytes with frozen weights, for a processor with such instructions."""
    k = work.contraction
    places = None if k is None else _places(k, target)
    if k is None or places is None:
        return None
    others = work.besides(k.anchor, k.consumer)
    lanes = quad_lanes(target, _input_type(k), k.weights.buffer.dtype) if k.weights else 0
    decisions = _decisions(k, target, lanes)

    def valid(c: Choices) -> bool:
        rows, vectors, _ = tile_of(c)
        if vectors > 1 and (vectors - 1) * lanes >= k.column.extent:
            return False
        return rows * vectors + vectors + 2 < target.registers

    def cost(c: Choices) -> float:
        return _seconds(k, c, target)

    def apply(sch: Schedule, c: Choices) -> None:
        for info in others:
            schedule_fallback(sch, info, target)
        _apply(k, places, sch, c)

    return Sketch(
        name="quads@1",
        kind="contraction",
        decisions=decisions,
        default=cheapest(decisions, valid, cost, {}),
        apply=apply,
        valid=valid,
        cost=cost,
    )


def _input(k: Contraction) -> AccessPattern:
    """Return the access of the operand that is not the weights."""
    pair = product_operands(k.anchor) or ()
    return next(a for a in pair if k.weights is None or a.buffer is not k.weights.buffer)


def _input_type(k: Contraction) -> DType:
    return _input(k).buffer.dtype


def _places(k: Contraction, target: Target) -> _WeightAxes | None:
    """Return where the weights have columns and terms; None if the product has another form."""
    pair = product_operands(k.anchor)
    if pair is None or k.weights is None or not k.frozen or pair[0].buffer is pair[1].buffer:
        return None
    if not quad_lanes(target, _input_type(k), k.weights.buffer.dtype):
        return None
    last = k.anchor.reduce[-1]
    if last.extent % DEPTH or _input(k).stride(last.var) != 1 or _input(k).uses(k.anchor_column):
        return None
    forms = list(k.weights.coefficients)
    column = [d for d, f in enumerate(forms) if f == {k.anchor_column: 1}]
    depth = [d for d, f in enumerate(forms) if f == {last.var: 1}]
    return _WeightAxes(column[0], depth[0]) if len(column) == len(depth) == 1 else None


def _decisions(k: Contraction, target: Target, lanes: int) -> dict[str, tuple[Choice, ...]]:
    extent = k.column.extent
    parallel = k.anchor.flops >= PARALLEL_WORK and target.threads > 1
    return {
        "rows": tuple(r for r in ROWS if r <= (k.row.extent if k.row else 1)),
        "vectors": tuple(v for v in (1, 2, 3, 4, 6) if v == 1 or (v - 1) * lanes < extent),
        "lanes": (lanes,),
        "parallel": (1, 0) if parallel else (0,),
    }


def _seconds(k: Contraction, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run: tiles, each bound by its instructions or by its loads."""
    rows, vectors, lanes = tile_of(c)
    extent = k.row.extent if k.row else 1
    tiles = math.ceil(extent / rows) * math.ceil(k.column.extent / (vectors * lanes))
    tiles *= math.prod(a.extent for a in (*k.outer, *k.sweep))
    step = max(rows * vectors / 2, (rows + vectors) / 2, 5.0)
    fetched = vectors * lanes * DEPTH / target.core.l2.rate / 2
    cycles = tiles * (k.depth / DEPTH * max(step, fetched) + 4.0 * rows * vectors + 20.0)
    return target.core.seconds(cycles) / (target.threads if c["parallel"] else 1)


def _apply(k: Contraction, places: _WeightAxes, sch: Schedule, c: Choices) -> None:
    anchor = k.anchor.name
    if k.consumer is not None:
        out = k.consumer.name
        sch.set_scope(anchor, 0, "register")
    else:
        out = sch.cache_write(anchor, 0, "register").name
    at, tile = _tile_result(k, sch, c, out)
    sch.compute_at(anchor, at)
    _tile_terms(k, sch, c, at)
    _pack(k, places, sch, c)
    sch.vectorize(tile[-1])
    for loop in tile[:-1]:
        sch.unroll(loop)


def _tile_result(
    k: Contraction, sch: Schedule, c: Choices, out: str
) -> tuple[LoopRef, list[LoopRef]]:
    """Tile the result's loops; return the innermost loop around the tile and those of it."""
    rows, vectors, lanes = tile_of(c)
    loops = result_loops(k, sch, out)
    column, vector, lane = sch.split(loops[k.column.var], [None, vectors, lanes])
    tile = [vector, lane]
    if k.row is not None and k.row.var in loops:
        loops[k.row.var], row = sch.split(loops[k.row.var], [None, rows])
        tile = [row, *tile]
    around = (*k.sweep, k.row) if k.row is not None else k.sweep
    inside = [loops[a.var] for a in around if a.var in loops]
    head = [*(loops[a.var] for a in k.outer if a.var in loops), column]
    sch.reorder(*head, *inside, *tile)
    share = head[0] if len(head) == 1 else sch.fuse(*head)
    if c["parallel"]:
        sch.parallel(share)
    return (inside[-1] if inside else share), tile


def _tile_terms(k: Contraction, sch: Schedule, c: Choices, at: LoopRef) -> None:
    """Move the terms around the tile, four of them into its lanes, and start sums before them."""
    _, vectors, lanes = tile_of(c)
    own = own_loops(sch, k.anchor.name, at)
    last, four = sch.split(own[k.anchor.reduce[-1].var], [None, DEPTH])
    reduce = [own[a.var] for a in k.anchor.reduce[:-1] if a.var in own] + [last]
    vector, lane = sch.split(own[k.anchor_column], [vectors, lanes])
    tile = [own[k.anchor_row], vector, lane] if k.anchor_row in own else [vector, lane]
    rest = [own[a.var] for a in k.anchor.spatial if a.var in own]
    rest = [x for x in rest if x not in tile and x != own[k.anchor_column]]
    sch.reorder(*rest, *reduce, *tile, four)
    init = sch.decompose_reduction(k.anchor.name, reduce[0])
    for group in (tile, list(sch.get_loops(init))[-len(tile) :]):
        sch.vectorize(group[-1])
        for loop in group[:-1]:
            sch.unroll(loop)


def _pack(k: Contraction, places: _WeightAxes, sch: Schedule, c: Choices) -> None:
    """Pack the weights as ``[.., columns / width, .., depth / 4, width, 4]``."""
    assert k.weights is not None
    _, vectors, lanes = tile_of(c)
    block = sch.get_block(k.anchor.name)
    reads = [r.buffer for r in block_node(sch, block).reads]
    packed = sch.cache_read(block, reads.index(k.weights.buffer), "global")
    forms = k.weights.coefficients
    outer = {a.var for a in k.anchor.spatial if a.var != k.anchor_column}
    first = [d for d, f in enumerate(forms) if d != places.column and outer & (f or {}).keys()]
    rest = [d for d in range(len(forms)) if d != places.column and d not in first]
    order = [*first, places.column, *rest, len(forms), len(forms) + 1]
    sch.transform_layout(
        packed, 0, order, [(places.column, vectors * lanes), (places.depth, DEPTH)]
    )
