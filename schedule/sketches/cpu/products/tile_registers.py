"""Products of narrow numbers in tile registers: whole matrices in an instruction.

The sums of up to four registers stay there for all terms
(``codegen/emit/statements/tile_dots.py``). Then they are stored to memory that is the thread's own,
where the consumer reads them. Weights are packed as for lanes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.loop.nodes import AxisKind
from .....ir.loop.notes import IN_TILES
from .....ir.target import Target
from .....ir.tile_dots import COLUMNS, GROUPS, ROWS, TileDot, fits, tile_dot
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.lookup import block_node, own_loops
from ....space.space import Choice, Choices, Sketch
from ..nests.contraction import Contraction, chunk_extent, tile_of
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
    product_seconds,
    tile_result,
)

LEAST = 4  # rows: with fewer, lanes wait for memory as well, and read it in longer stretches
FASTER = 8  # times as fast as FMAs, at most, for each term of a group
PRODUCT = 24.0  # cycles of an instruction: 16, if nothing else waits
LOAD = 12.0  # of a load of a register: 8 from L1
BETWEEN = 100.0  # of a tile of results: sums that are stored, loops that begin
NEAR, NEAR_L2 = 0.4, 0.5  # of L1 and L2, up to which what a tile reads again stays there
LATE = 0.25  # of the shorter of products and reads, which is not hidden


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
        tile_decisions(k, target),
        valid=lambda c: tiles_fit(k, c),
        cost=lambda c: tile_seconds(k, form.dot, c, target),
        apply=lambda sch, c: _apply(k, form, sch, c),
        others=work.besides(k.anchor, k.consumer),
        target=target,
        share=1 / (FASTER * form.dot.depth),
    )


def _form(k: Contraction, target: Target) -> _TileForm | None:
    if k.all_rows < LEAST or not is_narrow_product(k) or k.weights is None:
        return None
    dot = tile_dot(target, input_of(k).buffer.dtype, k.weights.buffer.dtype)
    if dot is None or dot.sums != k.dtype:
        return None
    packed = packed_form(k, dot.depth)
    return None if packed is None else _TileForm(dot, packed)


def tile_decisions(k: Contraction, target: Target) -> dict[str, tuple[Choice, ...]]:
    """Return the choices of a product's tiles, and of the loops around them."""
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


def tiles_fit(k: Contraction, c: Choices) -> bool:
    """True if the registers hold a tile, and there are rows enough for the chunks."""
    rows, vectors, lanes = tile_of(c)
    if int(c["chunks"]) > max(1, chunk_extent(k, rows)):
        return False
    return fits(rows, vectors * lanes)


def tile_seconds(
    k: Contraction, dot: TileDot, c: Choices, target: Target, pieces: int = 1, pairs: int = 1
) -> float:
    """Estimate the seconds of one run: tiles, each bound by its products or by what they read.

    By columns, each thread reads all rows of a chunk, again for each panel of weights; by rows, it
    reads all weights, again for each tile. Operands are in ``pieces``, of which as many ``pairs``
    are multiplied.
    """
    rows, vectors, lanes = tile_of(c)
    core, width, chunks = target.core, vectors * lanes, int(c["chunks"])
    tiles_i = math.ceil((k.row.extent if k.row else 1) / rows) * math.prod(
        a.extent for a in k.sweep
    )
    tiles_j = math.ceil(k.column.extent / width) * math.prod(a.extent for a in k.outer)
    tile = _tile_cycles(k, dot, c, target, pieces, pairs)
    cycles = tiles_i * tiles_j * tile
    if c["order"] == "column":
        panel = k.depth * width * dot.right.bytes * pieces
        cycles += chunks * tiles_j * panel / core.l3.rate
    return product_seconds(k, c, target, cycles, width, 0.0)


def _tile_cycles(
    k: Contraction, dot: TileDot, c: Choices, target: Target, pieces: int, pairs: int
) -> float:
    """Estimate the cycles of a tile: its products, or what they read from beyond L1."""
    rows, vectors, lanes = tile_of(c)
    core, down = target.core, math.ceil(rows / ROWS)
    column = k.depth * pieces * dot.right.bytes
    block, panel = column * rows, column * vectors * lanes
    most = NEAR_L2 * target.l2
    chunk = column * math.ceil(k.all_rows / int(c["chunks"]))
    held, again, beside = panel, block, chunk
    if c["order"] == "row":
        held, again, beside = block, panel, column * k.column.extent
    far = again / core.l3.rate if held + beside > most else 0.0
    read = (held > NEAR * core.l1.size) * held / core.l2.rate
    read += 0.0 if far else again / core.l2.rate
    steps = math.ceil(k.depth / dot.terms)
    loads = LOAD * (pairs + 1) * (down + vectors) / 2
    work = steps * max(PRODUCT * down * vectors * pairs, loads)
    near = max(work, read) + LATE * min(work, read)
    return near + far + BETWEEN + 2.0 * rows * vectors


def _apply(k: Contraction, form: _TileForm, sch: Schedule, c: Choices) -> None:
    anchor = k.anchor.name
    out = k.consumer.name if k.consumer is not None else sch.cache_write(anchor, 0, "global").name
    share, at, tile = tile_result(k, sch, c, out)
    sch.compute_at(anchor, at)
    packed = None if k.frozen else pack_weights(k, form.packed, sch, c)
    if packed is not None:
        fill_panel(form.packed, sch, packed, share, k.turned, COLUMNS)
    tile_terms(k, form.dot.depth, sch, at)
    if k.frozen:
        pack_weights(k, form.packed, sch, c)
    sch.vectorize(tile[-1])
    sch.unroll(tile[-2])


def tile_terms(k: Contraction, depth: int, sch: Schedule, at: LoopRef, steps: bool = False) -> None:
    """Move the terms around the tile, a group of them inside, and start sums before them.

    With ``steps`` there is a loop over the groups of one instruction, where these are whole.
    """
    own = own_loops(sch, k.anchor.name, at)
    axes = [a.var for a in block_node(sch, k.anchor.name).axes if a.kind is AxisKind.REDUCE]
    *last, terms = sch.split(own[axes[-1]], [None, GROUPS, depth] if steps else [None, depth])
    reduce = [*(own[v] for v in axes[:-1] if v in own), *last]
    tile = [own[v] for v in (k.anchor_row, k.anchor_column) if v is not None and v in own]
    rest = [own[a.var] for a in k.anchor.spatial if a.var in own and own[a.var] not in tile]
    sch.reorder(*rest, *reduce, *tile, terms)
    init = sch.decompose_reduction(k.anchor.name, reduce[0])
    sch.annotate(reduce[0], IN_TILES.key, 1)
    for loop in (tile[-1], sch.get_loops(init)[-1]):
        sch.vectorize(loop)
