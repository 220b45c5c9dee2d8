"""Products of narrow numbers: tiles whose innermost step adds up several products per lane.

Processors multiply vectors of bytes four deep and of bf16 two deep: each lane of 32 bits takes that
many neighbours of one operand, the same for all lanes, and as many of its own. So the weights are
packed as ``[.., columns / width, .., depth / d, width, d]``, and the loop over the d terms is
innermost, inside of the lanes, where the emitter makes one instruction of it
(``codegen/emit/lane_dots.py``). Frozen weights are packed ahead of time, others in the kernel,
panel by panel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .....ir.lane_dots import LaneDot, lane_dot
from .....ir.loop.nodes import Buffer
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, product_operands
from ....space.lookup import block_node, own_loops
from ....space.space import Choice, Choices, Sketch
from ..nests.contraction import (
    TAKEN,
    Contraction,
    chunk_extent,
    made_by_feeder,
    tile_of,
)
from ..nests.fallback import around_anchor
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import may_share_flops
from .tile_cost import L2_LATE, LOADS_LATE, crowded
from .tiling import ROWS, result_loops, split_chunks

NAMES = {4: "quads@3", 2: "pairs@3"}
"""The sketch's name by the terms of its instruction."""

STRIDED = 3.0  # cycles of a line of results that is touched panel by panel, beyond L2
SHARED = 14.0  # of one where threads share the rows
NEXT = 1 / 16  # of a fork: what a row costs in which threads write neighbouring lines
TWICE = 0.3  # of the time in which a thread reads the weights, where each reads all
FEWEST, FEW = 8, 16  # rows, from which packing weights in the kernel pays: in L2, and larger ones


@dataclass(frozen=True, slots=True)
class _Form:
    """The instruction, and the dimensions of the weights along the columns and its terms."""

    dot: LaneDot
    column: int
    depth: int


@CPU.row(8)
def match_lane_dots(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of narrow numbers, if an instruction computes it and packing pays."""
    k = work.contraction
    form = None if k is None else _form(k, target)
    if k is None or form is None or not (k.frozen or _pays(k, target)):
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


def _pays(k: Contraction, target: Target) -> bool:
    """True if there are rows enough for weights that are packed in the kernel."""
    return k.all_rows >= (FEWEST if _weights_bytes(k) <= target.l2 else FEW)


def _weights_bytes(k: Contraction) -> int:
    assert k.weights is not None
    return math.prod(k.weights.buffer.shape) * k.weights.buffer.dtype.bytes


def _is_valid(k: Contraction, lanes: int, c: Choices, target: Target) -> bool:
    rows, vectors, _ = tile_of(c)
    if int(c["chunks"]) > max(1, chunk_extent(k, rows)):
        return False
    if vectors > 1 and (vectors - 1) * lanes >= k.column.extent:
        return False
    return rows * vectors + vectors + 2 < target.registers


def _input(k: Contraction) -> AccessPattern:
    """Return the access of the operand that is not the weights."""
    pair = product_operands(k.anchor) or ()
    return next(a for a in pair if k.weights is None or a.buffer is not k.weights.buffer)


def _form(k: Contraction, target: Target) -> _Form | None:
    """Return where the weights have columns and terms; None if the product has another form."""
    pair = product_operands(k.anchor)
    if pair is None or k.weights is None or pair[0].buffer is pair[1].buffer:
        return None
    if not k.frozen and made_by_feeder(k):
        return None
    dot = lane_dot(target, _input(k).buffer.dtype, k.weights.buffer.dtype)
    if dot is None or dot.sums != k.dtype:
        return None
    last = k.anchor.reduce[-1]
    if last.extent % dot.depth or _input(k).stride(last.var) != 1:
        return None
    if _input(k).uses(k.anchor_column):
        return None
    forms = list(k.weights.coefficients)
    column = [d for d, f in enumerate(forms) if f == {k.anchor_column: 1}]
    depth = [d for d, f in enumerate(forms) if f == {last.var: 1}]
    return _Form(dot, column[0], depth[0]) if len(column) == len(depth) == 1 else None


def _decisions(k: Contraction, target: Target, lanes: int) -> dict[str, tuple[Choice, ...]]:
    extent = k.column.extent
    parallel = may_share_flops(k.anchor.flops, target)
    return {
        "order": ("column", "row") if k.frozen and k.all_rows > 1 else ("column",),
        "rows": tuple(r for r in ROWS if r <= (k.row.extent if k.row else 1)),
        "vectors": tuple(v for v in (1, 2, 3, 4, 6) if v == 1 or (v - 1) * lanes < extent),
        "lanes": (lanes,),
        "chunks": _chunks(k),
        "parallel": (1, 0) if parallel else (0,),
    }


def _chunks(k: Contraction) -> tuple[int, ...]:
    """Return the numbers of parts that rows may be shared in, if panels are not packed for each."""
    most = chunk_extent(k, 1) if k.frozen else 1
    return tuple(n for n in (1, 2, 4, 8, 16, 32) if n == 1 or n <= most)


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
    divided = int(c["chunks"]) > 1
    if c["order"] == "column":
        size = math.prod(_input(k).buffer.shape) * dot.shared.bytes
        again = core.l2.rate if size < 0.6 * target.l2 else core.l3.rate
        cycles += 0.1 * size * tiles_j / again
    cycles += _strided_lines(k, c, target) * (STRIDED if divided or not c["parallel"] else SHARED)
    if not c["parallel"]:
        return core.seconds(cycles)
    pieces = int(c["chunks"]) * (tiles_j if c["order"] == "column" else 1)
    trips = chunk_extent(k, rows)
    uneven = math.ceil(trips / int(c["chunks"])) * int(c["chunks"]) / trips
    share = min(1.0, math.ceil(pieces / target.threads) / pieces * uneven)
    beside = core.sharing + core.claim * pieces / target.threads
    beside += TAKEN * core.fork * _torn_rows(k, c, width, target)
    if divided:
        beside += TWICE * _weights_bytes(k) / core.l3.rate
    elif c["order"] == "column":
        beside += NEXT * core.fork * k.all_rows
    return core.seconds(cycles * share + beside)


def _strided_lines(k: Contraction, c: Choices, target: Target) -> float:
    """Return the cache lines of results, and of what is added to them, that come from beyond L2.

    By columns, a panel touches two lines of a row and goes on to the next one. What is fetched
    beside them is used in the next panel, if it stays that long.
    """
    info = k.consumer or k.anchor
    moved = {a.buffer for a in (*info.stores, *info.loads) if a.stride(k.column.var) == 1}
    size = k.all_rows * k.column.extent * sum(b.dtype.bytes for b in moved if _is_full(k, b))
    if c["order"] == "row" or size <= int(c["chunks"]) * target.l2:
        return 0.0
    return size / target.core.l1.line


def _is_full(k: Contraction, buffer: Buffer) -> bool:
    """True for a buffer with an element for each of the result's, but not the sums themselves."""
    whole = k.all_rows * k.column.extent
    return buffer is not k.anchor.stores[0].buffer and math.prod(buffer.shape) >= whole


def _torn_rows(k: Contraction, c: Choices, width: int, target: Target) -> int:
    """Return the rows of the result that have cache lines of two panels, which threads share.

    Narrow results end in the middle of a line, and each thread takes it from the other one.
    """
    store = (k.consumer or k.anchor).stores[0]
    if c["order"] == "row" or store.stride(k.column.var) != 1 or width >= k.column.extent:
        return 0
    whole = width * store.buffer.dtype.bytes % target.core.l1.line == 0
    return 0 if whole else k.all_rows


def _apply(k: Contraction, form: _Form, sch: Schedule, c: Choices) -> None:
    anchor = k.anchor.name
    if k.consumer is not None:
        out = k.consumer.name
        sch.set_scope(anchor, 0, "register")
    else:
        out = sch.cache_write(anchor, 0, "register").name
    share, at, tile = _tile_result(k, sch, c, out)
    sch.compute_at(anchor, at)
    packed = None if k.frozen else _pack(k, form, sch, c)
    if packed is not None:
        _fill_panel(form, sch, packed, share, k.turned)
    _tile_terms(k, form, sch, c, at)
    if k.frozen:
        _pack(k, form, sch, c)
    sch.vectorize(tile[-1])
    for loop in tile[:-1]:
        sch.unroll(loop)


def _tile_result(
    k: Contraction, sch: Schedule, c: Choices, out: str
) -> tuple[LoopRef, LoopRef, list[LoopRef]]:
    """Tile the result's loops; return the outermost loop, the innermost around the tile, and those
    of the tile.
    """
    rows, vectors, lanes = tile_of(c)
    loops = result_loops(k, sch, out)
    column, vector, lane = sch.split(loops[k.column.var], [None, vectors, lanes])
    tile = [vector, lane]
    if k.row is not None and k.row.var in loops:
        loops[k.row.var], row = sch.split(loops[k.row.var], [None, rows])
        tile = [row, *tile]
    chunk = split_chunks(k, sch, int(c["chunks"]), loops)
    around = (*k.sweep, k.row) if k.row is not None else k.sweep
    inside = [loops[a.var] for a in around if a.var in loops]
    head = [*(loops[a.var] for a in k.outer if a.var in loops), *chunk]
    if c["order"] == "row":
        inside = [*inside, column]
    else:
        head = [*head, column]
    if not head:
        head, inside = inside[:1], inside[1:]
    sch.reorder(*head, *inside, *tile)
    share = head[0] if len(head) == 1 else sch.fuse(*head)
    if c["parallel"]:
        sch.parallel(share)
    return share, (inside[-1] if inside else share), tile


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
    for group in (tile, list(sch.get_loops(init))[-len(tile) :]):
        sch.vectorize(group[-1])
        for loop in group[:-1]:
            sch.unroll(loop)


def _fill_panel(form: _Form, sch: Schedule, packed: BlockRef, share: LoopRef, turned: bool) -> None:
    """Pack a panel before its use.

    As many rows of it as an instruction has terms are interleaved. Weights that are contiguous
    along the terms are transposed in squares, an element of which is the terms of one instruction.
    """
    sch.compute_at(packed, share)
    axes, lanes = [a.var for a in block_node(sch, packed).axes], form.dot.lanes
    own = own_loops(sch, packed, share)
    row, terms = sch.split(own[axes[form.depth]], [None, form.dot.depth])
    vector, lane = sch.split(own[axes[form.column]], [None, lanes])
    if not turned:
        sch.reorder(row, vector, terms, lane)
        sch.vectorize(lane)
        sch.unroll(terms)
        return
    along, near = sch.split(row, [None, lanes])
    sch.reorder(vector, along, lane, near, terms)
    sch.vectorize(near)
    sch.unroll(lane)


def _pack(k: Contraction, form: _Form, sch: Schedule, c: Choices) -> BlockRef:
    """Pack the weights as ``[.., columns / width, .., depth / d, width, d]``."""
    assert k.weights is not None
    _, vectors, lanes = tile_of(c)
    block = sch.get_block(k.anchor.name)
    reads = [r.buffer for r in block_node(sch, block).reads]
    packed = sch.cache_read(block, reads.index(k.weights.buffer), "global")
    forms = k.weights.coefficients
    outer = {a.var for a in k.anchor.spatial if a.var != k.anchor_column}
    first = [d for d, f in enumerate(forms) if d != form.column and outer & (f or {}).keys()]
    rest = [d for d in range(len(forms)) if d != form.column and d not in first]
    order = [*first, form.column, *rest, len(forms), len(forms) + 1]
    width = min(vectors * lanes, k.weights.buffer.shape[form.column])
    sch.transform_layout(packed, 0, order, [(form.column, width), (form.depth, form.dot.depth)])
    return packed
