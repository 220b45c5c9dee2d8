"""Products of narrow numbers in tile registers: whole matrices in an instruction.

The sums of up to four registers stay there for all terms (``codegen/emit/tile_dots.py``). Then they
are stored to memory that is the thread's own, where the consumer reads them. Weights are packed as
for lanes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.loop.notes import TILED
from .....ir.target import Target
from .....ir.tile_dots import COLUMNS, ROWS, TileDot, fits, tile_dot
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.lookup import own_loops
from ....space.space import Choice, Choices, Sketch
from ..nests.contraction import TAKEN, Contraction, chunk_extent, tile_of
from ..nests.fallback import around_anchor
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import may_share_flops
from .packed import (
    PackedForm,
    chunk_choices,
    fill_panel,
    input_of,
    is_narrow_product,
    pack_weights,
    packed_form,
    packing_pays,
    strided_lines,
    tile_result,
    torn_rows,
    weights_bytes,
)

PRODUCT = 16.0  # cycles of an instruction
LOAD = 8.0  # of a load of a register
BETWEEN = 100.0  # of a tile of results: sums that are stored, loops that begin
STRIDED, SHARED, NEXT, TWICE = 3.0, 14.0, 1 / 16, 0.3  # as for lanes


@dataclass(frozen=True, slots=True)
class _TileForm:
    """The instruction, and how the weights are packed for it."""

    dot: TileDot
    packed: PackedForm


@CPU.row(7)
def match_tile_registers(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of narrow numbers, if tile registers take it and packing pays."""
    k = work.contraction
    form = None if k is None else _form(k, target)
    if k is None or form is None or not (k.frozen or packing_pays(k, target)):
        return None
    return around_anchor(
        "tiles@1",
        _decisions(k, target),
        valid=lambda c: _is_valid(k, c),
        cost=lambda c: _seconds(k, form.dot, c, target),
        apply=lambda sch, c: _apply(k, form, sch, c),
        others=work.besides(k.anchor, k.consumer),
        target=target,
    )


def _form(k: Contraction, target: Target) -> _TileForm | None:
    if not is_narrow_product(k) or k.weights is None:
        return None
    dot = tile_dot(target, input_of(k).buffer.dtype, k.weights.buffer.dtype)
    if dot is None or dot.sums != k.dtype:
        return None
    packed = packed_form(k, dot.depth)
    return None if packed is None else _TileForm(dot, packed)


def _decisions(k: Contraction, target: Target) -> dict[str, tuple[Choice, ...]]:
    rows, extent = k.row.extent if k.row else 1, k.column.extent
    parallel = may_share_flops(k.anchor.flops, target)
    heights = {min(rows, ROWS * n) for n in (1, 2, 3)} | _even(rows)
    return {
        "order": ("column", "row") if k.frozen and k.all_rows > 1 else ("column",),
        "rows": tuple(sorted(heights)),
        "vectors": tuple(v for v in (1, 2, 3) if v == 1 or (v - 1) * COLUMNS < extent),
        "lanes": (COLUMNS,),
        "chunks": chunk_choices(k),
        "parallel": (1, 0) if parallel else (0,),
    }


def _even(rows: int) -> set[int]:
    """Return heights of tiles that share rows evenly, for no more tiles than are needed."""
    return {math.ceil(rows / math.ceil(rows / (ROWS * n))) for n in (1, 2, 3)}


def _is_valid(k: Contraction, c: Choices) -> bool:
    rows, vectors, lanes = tile_of(c)
    if int(c["chunks"]) > max(1, chunk_extent(k, rows)):
        return False
    return fits(rows, vectors * lanes)


def _seconds(k: Contraction, dot: TileDot, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run: tiles, each bound by its products or by what they read.

    By columns, each thread reads all rows of a chunk, again for each panel of weights; by rows, it
    reads all weights, again for each tile.
    """
    rows, vectors, lanes = tile_of(c)
    core, width, down = target.core, vectors * lanes, math.ceil(rows / ROWS)
    tiles_i = math.ceil((k.row.extent if k.row else 1) / rows) * math.prod(
        a.extent for a in k.sweep
    )
    tiles_j = math.ceil(k.column.extent / width) * math.prod(a.extent for a in k.outer)
    steps = math.ceil(k.depth / dot.terms)
    panel = k.depth * width * dot.right.bytes
    block = k.depth * rows * dot.left.bytes
    near = 0.4 * core.l1.size
    far = (panel > near) * panel + (block > near or c["order"] == "column") * block
    whole = far if c["order"] == "column" else far + panel * (tiles_j - 1)
    rate = core.l2.rate if whole < 0.6 * target.l2 else core.l3.rate
    work = steps * max(PRODUCT * down * vectors, LOAD * (down + vectors))
    tile = max(work, far / rate) + 0.25 * min(work, far / rate)
    tile += BETWEEN + 2.0 * rows * vectors
    cycles = tiles_i * tiles_j * tile
    divided = int(c["chunks"]) > 1
    cycles += strided_lines(k, c, target) * (STRIDED if divided or not c["parallel"] else SHARED)
    if not c["parallel"]:
        return core.seconds(cycles)
    pieces = int(c["chunks"]) * (tiles_j if c["order"] == "column" else 1)
    trips = chunk_extent(k, rows)
    uneven = math.ceil(trips / int(c["chunks"])) * int(c["chunks"]) / trips
    share = min(1.0, math.ceil(pieces / target.threads) / pieces * uneven)
    beside = core.sharing + core.claim * pieces / target.threads
    beside += TAKEN * core.fork * torn_rows(k, c, width, target)
    if divided:
        beside += TWICE * weights_bytes(k) / core.l3.rate
    elif c["order"] == "column":
        beside += NEXT * core.fork * k.all_rows
    return core.seconds(cycles * share + beside)


def _apply(k: Contraction, form: _TileForm, sch: Schedule, c: Choices) -> None:
    anchor = k.anchor.name
    out = k.consumer.name if k.consumer is not None else sch.cache_write(anchor, 0, "global").name
    share, at, tile = tile_result(k, sch, c, out)
    sch.compute_at(anchor, at)
    packed = None if k.frozen else pack_weights(k, form.packed, sch, c)
    if packed is not None:
        fill_panel(form.packed, sch, packed, share, k.turned, COLUMNS)
    _tile_terms(k, form, sch, at)
    if k.frozen:
        pack_weights(k, form.packed, sch, c)
    sch.vectorize(tile[-1])
    sch.unroll(tile[-2])


def _tile_terms(k: Contraction, form: _TileForm, sch: Schedule, at: LoopRef) -> None:
    """Move the terms around the tile, a group of them inside, and start sums before them."""
    own = own_loops(sch, k.anchor.name, at)
    last, terms = sch.split(own[k.anchor.reduce[-1].var], [None, form.dot.depth])
    reduce = [own[a.var] for a in k.anchor.reduce[:-1] if a.var in own] + [last]
    tile = [own[v] for v in (k.anchor_row, k.anchor_column) if v is not None and v in own]
    rest = [own[a.var] for a in k.anchor.spatial if a.var in own and own[a.var] not in tile]
    sch.reorder(*rest, *reduce, *tile, terms)
    init = sch.decompose_reduction(k.anchor.name, reduce[0])
    sch.annotate(reduce[0], TILED.key, 1)
    for loop in (tile[-1], sch.get_loops(init)[-1]):
        sch.vectorize(loop)
