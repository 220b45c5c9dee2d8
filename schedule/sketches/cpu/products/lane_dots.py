"""Products of narrow numbers: tiles whose innermost step adds up several products per lane.

Processors multiply vectors of bytes four deep and of bf16 two deep: each lane of 32 bits takes that
many neighbors of one operand, the same for all lanes, and as many of its own. So the weights are
packed as ``[.., columns / width, .., depth / d, width, d]``, and the loop over the d terms is
innermost, inside of the lanes, where the emitter makes one instruction of it
(``codegen/emit/statements/lane_dots.py``). Frozen weights are packed ahead of time, others in the
kernel, panel by panel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .....ir.lane_dots import LaneDot, lane_dot
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.lookup import own_loops
from ....space.space import Choice, Choices, Sketch
from ..nests.contraction import Contraction, chunk_extent, tile_of
from ..nests.fallback import around_anchor
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import may_share_flops
from ..nests.registers import keep_result, vectorize_init, vectorize_tile
from .packed import (
    PackedForm,
    chunk_choices,
    fill_panel,
    input_of,
    is_narrow_product,
    pack_weights,
    packed_form,
    packing_pays,
    product_seconds,
    tile_result,
    weights_bytes,
)
from .tile_cost import L2_LATE, LOADS_LATE, crowded
from .tiling import ROWS

NAMES = {4: "quads@3", 2: "pairs@3"}
"""The sketch's name by the terms of its instruction."""

TWICE = 0.3  # of the time in which a thread reads the weights, where each reads all


@dataclass(frozen=True, slots=True)
class _Form:
    """The instruction, and how the weights are packed for it."""

    dot: LaneDot
    packed: PackedForm


@CPU.row(8)
def match_lane_dots(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of narrow numbers, if an instruction computes it and packing pays."""
    k = work.contraction
    form = None if k is None else _form(k, target)
    if k is None or form is None or not (k.frozen or packing_pays(k, target)):
        return None
    return around_anchor(
        NAMES[form.dot.depth],
        _decisions(k, target, form.dot.lanes),
        valid=lambda c: _is_valid(k, form.dot.lanes, c, target),
        cost=lambda c: _seconds(k, form.dot, c, target),
        apply=lambda sch, c: _apply(k, form, sch, c),
        others=work.besides(k.anchor, k.consumer),
        target=target,
    )


def _is_valid(k: Contraction, lanes: int, c: Choices, target: Target) -> bool:
    rows, vectors, _ = tile_of(c)
    if int(c["chunks"]) > max(1, chunk_extent(k, rows)):
        return False
    if vectors > 1 and (vectors - 1) * lanes >= k.column.extent:
        return False
    return rows * vectors + vectors + 2 < target.registers


def _form(k: Contraction, target: Target) -> _Form | None:
    """Return the instruction, and where the weights have columns and terms; None if the product has
    another form.
    """
    if not is_narrow_product(k) or k.weights is None:
        return None
    dot = lane_dot(target, input_of(k).buffer.dtype, k.weights.buffer.dtype)
    if dot is None or dot.sums != k.dtype:
        return None
    packed = packed_form(k, dot.depth)
    return None if packed is None else _Form(dot, packed)


def _decisions(k: Contraction, target: Target, lanes: int) -> dict[str, tuple[Choice, ...]]:
    extent = k.column.extent
    parallel = may_share_flops(k.anchor.flops, target)
    return {
        "order": ("column", "row") if k.frozen and k.all_rows > 1 else ("column",),
        "rows": tuple(r for r in ROWS if r <= (k.row.extent if k.row else 1)),
        "vectors": tuple(v for v in (1, 2, 3, 4, 6) if v == 1 or (v - 1) * lanes < extent),
        "lanes": (lanes,),
        "chunks": chunk_choices(k),
        "parallel": (1, 0) if parallel else (0,),
    }


def _seconds(k: Contraction, dot: LaneDot, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run: tiles, each bound by its instructions or by its loads.

    By columns, each thread reads all rows of a chunk, again for each panel of weights; by rows, it
    reads all weights, again for each tile.
    """
    rows, vectors, lanes = tile_of(c)
    core, width = target.core, vectors * lanes
    tiles_i = math.ceil((k.row.extent if k.row else 1) / rows) * math.prod(
        a.extent for a in k.sweep
    )
    tiles_j = math.ceil(k.column.extent / width) * math.prod(a.extent for a in k.outer)
    turns = max(1.0, lanes * dot.sums.bits / core.vector_bits)
    work = rows * vectors * turns / core.fmas * (1.0 if dot.adding else 2.0)
    loads = LOADS_LATE * (rows + vectors) * turns / core.loads
    missed = float(crowded(k, np.asarray(rows), target)) * core.l1.line / core.l2.rate
    step = max(work, loads, missed, core.fma_latency + 1.0)
    panel = k.depth * width * dot.own.bytes
    near = panel if c["order"] == "column" else panel * tiles_j
    rate = core.l2.rate if near < 0.6 * target.l2 else core.l3.rate
    fetched = L2_LATE * panel / rate if near > 0.5 * core.l1.size else 0.0
    tile = k.depth / dot.depth * step + fetched + 4.0 * rows * vectors + 20.0
    cycles = tiles_i * tiles_j * tile
    if c["order"] == "column":
        size = math.prod(input_of(k).buffer.shape) * dot.shared.bytes
        again = core.l2.rate if size < 0.6 * target.l2 else core.l3.rate
        cycles += 0.1 * size * tiles_j / again
    twice = TWICE * weights_bytes(k) / core.l3.rate
    return product_seconds(k, c, target, cycles, width, twice)


def _apply(k: Contraction, form: _Form, sch: Schedule, c: Choices) -> None:
    anchor = k.anchor.name
    out = keep_result(sch, anchor, k.consumer)
    share, at, tile = tile_result(k, sch, c, out)
    sch.compute_at(anchor, at)
    packed = None if k.frozen else pack_weights(k, form.packed, sch, c)
    if packed is not None:
        fill_panel(form.packed, sch, packed, share, k.turned, form.dot.lanes)
    _tile_terms(k, form, sch, c, at)
    if k.frozen:
        pack_weights(k, form.packed, sch, c)
    vectorize_tile(sch, tile)


def _tile_terms(k: Contraction, form: _Form, sch: Schedule, c: Choices, at: LoopRef) -> None:
    """Move the terms around the tile, some of them into its lanes, and start sums before them."""
    _, vectors, lanes = tile_of(c)
    own = own_loops(sch, k.anchor.name, at)
    last, terms = sch.split(own[k.anchor.reduce[-1].var], [None, form.dot.depth])
    reduce = [own[a.var] for a in k.anchor.reduce[:-1] if a.var in own] + [last]
    vector, lane = sch.split(own[k.anchor_column], [vectors, lanes])
    tile = [own[k.anchor_row], vector, lane] if k.anchor_row in own else [vector, lane]
    rest = [own[a.var] for a in k.anchor.spatial if a.var in own]
    rest = [x for x in rest if x not in tile and x != own[k.anchor_column]]
    sch.reorder(*rest, *reduce, *tile, terms)
    init = sch.decompose_reduction(k.anchor.name, reduce[0])
    vectorize_tile(sch, tile)
    vectorize_init(sch, init, len(tile))
