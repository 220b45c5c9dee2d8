"""Products of f32 in tile registers: as products of bf16 pieces, where their error is allowed.

Tile registers multiply bf16 sixteen times as fast as FMAs do f32. Two pieces of a number take three
products, three pieces, which hold all its bits, six. Frozen weights are cut in pieces ahead of
time, others panel by panel, rows before the product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.dtypes import bf16
from .....ir.target import Target
from .....ir.tile_dots import COLUMNS, GROUPS, TileDot, tile_dot
from ....cursor import BlockRef
from ....language.schedule import Schedule
from ....primitives.products.pieces import COUNTS, f32_product, pairs, pieces_error
from ....space.lookup import block_node, own_loops
from ....space.space import Choices, Sketch
from ..nests.contraction import Contraction, tile_of
from ..nests.fallback import around_anchor
from ..nests.matching import CPU, FuncInfo, once
from .packed import (
    PackedForm,
    fill_panel,
    input_of,
    is_narrow_product,
    other_dims,
    packed_form,
    tile_result,
)
from .tile_registers import FASTER, tile_decisions, tile_seconds, tile_terms, tiles_fit
from .tiling import beside_tiling

FEWEST = 16  # rows: with fewer, weights wait for memory, where pieces are larger
CLEARLY = {2: 1.0, 3: 0.5}
"""Times the estimate of FMAs below which so many pieces are the default."""
ROWS_CUT, PANEL_CUT = 3.0, 24.0
"""Cycles in which a vector is cut from rows, and from weights, whose rows are read in pieces."""


@dataclass(frozen=True, slots=True)
class _PieceForm:
    """The instruction, how the weights are packed for it, and the counts of pieces allowed."""

    dot: TileDot
    packed: PackedForm
    counts: tuple[int, ...]


@CPU.row(8)
def match_pieces(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of f32 that is expected to be clearly faster in pieces."""
    sketch = _matched(work, target)
    most = 0.0 if sketch is None else CLEARLY[int(sketch.default["pieces"])]
    return beside_tiling(sketch, work, target, 0.0, most)


@CPU.row(11)
def match_pieces_dearer(work: FuncInfo, target: Target) -> Sketch | None:
    """Match those that are expected to be hardly faster, for the tuner to try."""
    sketch = _matched(work, target)
    least = 0.0 if sketch is None else CLEARLY[int(sketch.default["pieces"])]
    return beside_tiling(sketch, work, target, least, 1.5)


@once
def _matched(work: FuncInfo, target: Target) -> Sketch | None:
    k = work.contraction
    form = None if k is None else _form(k, target)
    if k is None or form is None:
        return None
    return around_anchor(
        "pieces@1",
        {"pieces": form.counts, **tile_decisions(k, target)},
        valid=lambda c: tiles_fit(k, c),
        cost=lambda c: _seconds(k, form.dot, c, target),
        apply=lambda sch, c: _apply(k, form.packed, sch, c),
        others=work.besides(k.anchor, k.consumer, *k.feeders),
        target=target,
        share=min(map(pairs, form.counts)) / (FASTER * form.dot.depth),
    )


def _form(k: Contraction, target: Target) -> _PieceForm | None:
    dot = tile_dot(target, bf16, bf16)
    if dot is None or k.all_rows < FEWEST or not is_narrow_product(k):
        return None
    if not k.frozen and (k.turned or k.feeders):
        return None
    if f32_product(k.anchor.block) is None or k.weights is None:
        return None
    counts = tuple(n for n in COUNTS if pieces_error(n) <= target.accuracy)
    packed = packed_form(k, dot.depth)
    return _PieceForm(dot, packed, counts) if counts and packed is not None else None


def _seconds(k: Contraction, dot: TileDot, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run, with those of cutting numbers that are not frozen."""
    count = int(c["pieces"])
    product = tile_seconds(k, dot, c, target, count, pairs(count))
    core, numbers = target.core, math.prod(input_of(k).buffer.shape)
    vectors = 32 / target.vector_bits * core.turns(target.vector_bits)  # of a number
    cut = numbers * (vectors * ROWS_CUT * count + (4 + 2 * count) / core.l2.rate)
    if not k.frozen and k.weights is not None:
        cut += math.prod(k.weights.buffer.shape) * vectors * PANEL_CUT * count
    threads = target.threads if c["parallel"] else 1
    return product + core.seconds(cut / threads + (core.sharing if threads > 1 else 0.0))


def _apply(k: Contraction, form: PackedForm, sch: Schedule, c: Choices) -> None:
    anchor = k.anchor.name
    first = input_of(k).buffer
    a, b = sch.in_pieces(anchor, int(c["pieces"]))
    rows, weights = (a, b) if block_node(sch, a).reads[0].buffer is first else (b, a)
    for info in k.feeders:
        sch.compute_inline(info.name)
    out = k.consumer.name if k.consumer is not None else sch.cache_write(anchor, 0, "global").name
    share, at, tile = tile_result(k, sch, c, out)
    sch.compute_at(anchor, at)
    if not k.frozen:
        _pack(k, form, sch, c, weights)
        fill_panel(form, sch, weights, share, k.turned, COLUMNS, pieces=True)
    tile_terms(k, form.terms, sch, at, form.steps)
    if k.frozen:
        _pack(k, form, sch, c, weights)
    _turn(k, form, sch, rows)
    _cut(sch, rows, int(c["parallel"]))
    sch.vectorize(tile[-1])
    sch.unroll(tile[-2])


def _pack(k: Contraction, form: PackedForm, sch: Schedule, c: Choices, weights: BlockRef) -> None:
    """Lay pieces of weights out as ``[.., columns / width, .., steps, piece, groups, width, d]``,
    or without steps where these are not whole.
    """
    assert k.weights is not None
    _, vectors, lanes = tile_of(c)
    rank = len(k.weights.coefficients) + 1
    column, depth = form.column + 1, form.depth + 1
    first, rest = other_dims(k, form)
    terms = [d + 1 for d in rest if d != form.depth]
    width = min(vectors * lanes, k.weights.buffer.shape[form.column])
    around = [*(d + 1 for d in first), column, *terms]
    if not form.steps:
        order = [*around, 0, depth, rank, rank + 1]
        sch.transform_layout(weights, 0, order, [(column, width), (depth, form.terms)])
        return
    whole = GROUPS * form.terms
    order = [*around, depth, 0, rank, rank + 1]
    sch.transform_layout(weights, 0, order, [(depth, whole), (column, width)])
    inner = [*range(rank), rank, rank + 1, rank + 2]
    sch.transform_layout(weights, 0, inner, [(rank, form.terms)])


def _turn(k: Contraction, form: PackedForm, sch: Schedule, rows: BlockRef) -> None:
    """Lay pieces of rows out as ``[.., steps, piece, rows, terms]``: a tile is contiguous."""
    forms = [f or {} for f in input_of(k).coefficients]
    mine = [d + 1 for d, f in enumerate(forms) if k.anchor_row in f]
    if not form.steps or len(mine) != 1 or mine[0] == len(forms):
        return
    rank = len(forms) + 1
    around = [d for d in range(1, rank - 1) if d not in mine]
    order = [*around, rank - 1, 0, *mine, rank]
    sch.transform_layout(rows, 0, order, [(rank - 1, GROUPS * form.terms)])


def _cut(sch: Schedule, rows: BlockRef, parallel: int) -> None:
    """Cut rows in pieces, all of a vector's at once."""
    axes = [a.var for a in block_node(sch, rows).axes]
    own = own_loops(sch, rows)
    *around, last = [own[v] for v in axes[1:] if v in own]
    if sch.extent(last) > COLUMNS:
        near, last = sch.split(last, [None, COLUMNS])
        around.append(near)
    sch.reorder(*around, own[axes[0]], last)
    sch.vectorize(last)
    sch.unroll(own[axes[0]])
    if parallel and around:
        sch.parallel(around[0] if len(around) < 3 else sch.fuse(*around[:-1]))
