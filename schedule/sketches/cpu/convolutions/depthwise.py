"""The sketch of stencils: depthwise convolutions, whose operands all vary along the lanes.

A few neighbors of an image row stay in registers while the taps of the kernel pass over them. The
last kernel dimension is unrolled inside each of the neighbors, so that what they share is loaded
once and is live for a few taps only. Padding is not multiplied: it bounds the loop over kernel
rows, and the first and last tiles of a row have code of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.loop.nodes import BlockAxis
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, BlockInfo, product_operands
from ....space.lookup import own_loops
from ....space.space import Choice, Choices, Sketch
from ..nests.contraction import TAKEN, Contraction
from ..nests.fallback import around_anchor
from ..nests.matching import CPU, FuncInfo
from ..nests.padding import LINES_PER_FMA, MOST_LINES
from ..nests.pointwise import may_share_flops
from ..nests.registers import keep_result, vectorize_init, vectorize_tile
from ..products.tiling import result_loops

MOST_ROWS = 28
MOST_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class Stencil:
    """The roles of a stencil's axes: lanes over ``column``, neighbors of a tile along ``row``.

    ``across`` is the next axis outside, whose neighbors share rows of the input; None if there is
    none. ``taps`` is the reduction axis that is unrolled, ``outer_taps`` those around it; ``step``
    and ``reach`` are how far the window moves in the input for a neighbor and for a tap.
    """

    base: Contraction
    row: BlockAxis
    across: BlockAxis | None
    taps: BlockAxis
    outer_taps: tuple[BlockAxis, ...]
    step: int
    reach: int

    @property
    def column(self) -> BlockAxis:
        """The axis of the lanes."""
        return self.base.column


def stencil_of(k: Contraction) -> Stencil | None:
    """Return the roles of a stencil's axes; None for other contractions."""
    pair = product_operands(k.anchor)
    if pair is None or k.row is None or k.anchor_row is None or k.outer or not k.anchor.reduce:
        return None
    if not all(a.stride(k.anchor_column) == 1 for a in pair):
        return None
    images = [a for a in pair if a.uses(k.anchor_row)]
    if len(images) != 1:
        return None
    taps = k.anchor.reduce[-1]
    moves = _moves(images[0], k, taps)
    if moves is None or moves[0] < 1 or moves[1] < 1:
        return None
    across = k.sweep[-1] if k.sweep else None
    return Stencil(k, k.row, across, taps, k.anchor.reduce[:-1], *moves)


def _moves(image: AccessPattern, k: Contraction, taps: BlockAxis) -> tuple[int, int] | None:
    """Return the coefficients of row and tap in the one index in which both occur."""
    for form in image.coefficients:
        if form is not None and k.anchor_row in form and taps.var in form:
            return form[k.anchor_row], form[taps.var]
    return None


@CPU.row(8)
def match_depthwise(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a sum of products over a window whose operands are contiguous along the lanes."""
    k = work.contraction
    s = None if k is None else stencil_of(k)
    if k is None or s is None:
        return None
    return depthwise_sketch(s, work.besides(k.anchor, k.consumer, *k.feeders), target)


def depthwise_sketch(s: Stencil, others: tuple[BlockInfo, ...], target: Target) -> Sketch | None:
    """Return the space of a stencil; ``others`` get the fallback schedule. None if it is empty."""
    return around_anchor(
        "depthwise@1",
        _decisions(s, target),
        valid=lambda c: _is_valid(s, c, target),
        cost=lambda c: _cost(s, c, target),
        apply=lambda sch, c: _apply(s, sch, c),
        others=others if s.base.kept is not None else (*others, *s.base.feeders),
        target=target,
    )


def _decisions(s: Stencil, target: Target) -> dict[str, tuple[Choice, ...]]:
    full, extent = max(1, target.lanes(s.base.dtype)), s.column.extent
    lanes = (extent,) if extent < full else (full, full // 2) if full > 2 else (full,)
    most = min(s.row.extent, MOST_ROWS)
    rows = sorted({math.ceil(s.row.extent / n) for n in range(1, s.row.extent + 1)})
    across = s.across.extent if s.across is not None else 1
    chunks = tuple(n for n in (1, 2, 4, 8, 16, 32, MOST_CHUNKS) if n <= max(1, across))
    columns = math.ceil(extent / full)
    shared = may_share_flops(s.base.anchor.flops, target)
    return {
        "rows": tuple(r for r in rows if r <= most),
        "vectors": tuple(v for v in (1, 2) if v == 1 or lanes[0] * v <= extent),
        "lanes": lanes,
        "chunks": chunks,
        "shares": tuple(n for n in (1, 2, 4, 8, 16) if n <= columns),
        "order": ("strip", "row"),
        "parallel": (1, 0) if shared else (0,),
    }


def _is_valid(s: Stencil, c: Choices, target: Target) -> bool:
    rows, vectors, lanes = int(c["rows"]), int(c["vectors"]), int(c["lanes"])
    copies = min(3, math.ceil(s.row.extent / rows)) if s.base.kept is not None else 1
    copies *= 2 if s.column.extent % (lanes * vectors) else 1
    if copies * rows * vectors * (LINES_PER_FMA * s.taps.extent + 8) > MOST_LINES:
        return False
    if vectors > 1 and (vectors - 1) * lanes >= s.column.extent:
        return False
    if math.ceil(s.column.extent / (lanes * vectors)) % int(c["shares"]):
        return False
    window = (s.taps.extent - 1) * s.reach // s.step + 1
    used = rows * vectors + s.taps.extent + min(window, rows + s.taps.extent) + 1
    return used <= target.registers - 1


def _cost(s: Stencil, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run: ports inside a tile, then what each level has to bring."""
    rows, vectors, lanes = int(c["rows"]), int(c["vectors"]), int(c["lanes"])
    taps, kernel = s.taps.extent, s.base.depth
    kernels = kernel // taps
    inputs = min((rows - 1) * s.step + (taps - 1) * s.reach + 1, rows * taps)
    loads = kernels * vectors * (inputs + taps)
    fmas = kernel * rows * vectors
    chain = kernel * 4.0 / 2  # two tiles overlap at best
    tiles_i = math.ceil(s.row.extent / rows)
    tiles_j = math.ceil(s.column.extent / (lanes * vectors))
    rest = math.prod(a.extent for a in s.base.sweep)
    each = max(fmas / 2, loads / 2, chain) + 1.5 * rows * vectors + 6.0 * kernels + 10.0
    ragged = (s.row.extent % rows > 0) + (s.column.extent % (lanes * vectors) > 0)
    compute = rest * tiles_i * tiles_j * each * (1 + 0.1 * ragged)
    cycles = compute + _traffic(s, c, target)
    return target.core.seconds(cycles) * _imbalance(s, c, target, cycles)


def _traffic(s: Stencil, c: Choices, target: Target) -> float:
    """Estimate the cycles in which rows of the input come from L2, and further away.

    Rows that do not stay in L1 come once for each kernel row, and what tiles and chunks share more
    than once. Pieces of a row that are short are no stream for the prefetcher.
    """
    core, kernels = target.core, s.base.depth // s.taps.extent
    row = s.row.extent * s.step * s.column.extent * s.base.dtype.bytes
    tiles = math.ceil(s.row.extent / int(c["rows"]))
    held = kernels * (row / tiles if c["order"] == "strip" else row)
    again = 1.0 if held < 0.75 * target.l1 else float(kernels)
    halo = 1 + (s.taps.extent * s.reach - s.step) * tiles / (s.row.extent * s.step)
    if s.across is not None:
        again *= 1 + (kernels - 1) * int(c["chunks"]) / (2 * s.across.extent)
    piece = s.column.extent * s.base.dtype.bytes / int(c["shares"])
    scattered = 1 + (192 / piece) ** 2 if int(c["shares"]) > 1 else 1.0
    cycles = row * (again * halo / (3 * core.l2.rate) + 1 / (2 * core.l3.rate))
    return cycles * scattered * math.prod(a.extent for a in s.base.sweep)


def _imbalance(s: Stencil, c: Choices, target: Target, cycles: float) -> float:
    """Estimate the slowest thread's time relative to a single thread."""
    core, n = target.core, int(c["shares"]) * int(c["chunks"])
    if target.threads == 1 or not c["parallel"]:
        return 1.0 + 0.001 * n
    across = s.across.extent if s.across is not None else 1
    chunk = math.ceil(across / int(c["chunks"]))
    lost = math.ceil(across / chunk) * chunk / across
    share = math.ceil(n / target.threads) / n * lost
    beside = core.sharing + core.claim * n / target.threads + TAKEN * core.fork * _divided(s, c)
    return share + beside / max(cycles, 1.0)


def _divided(s: Stencil, c: Choices) -> int:
    """Return the rows of neighbors in the result of which each thread writes a part.

    The cores prefetch beyond their parts what another core has just written. Neighbors are columns,
    or, of a result that is stored by planes, the positions in a plane.
    """
    store = (s.base.consumer or s.base.anchor).stores[0]
    if store.stride(s.column.var) != 1:
        return s.column.extent if int(c["chunks"]) > 1 else 0
    if int(c["shares"]) == 1:
        return 0
    return s.row.extent * math.prod(a.extent for a in s.base.sweep)


def _apply(s: Stencil, sch: Schedule, c: Choices) -> None:
    """Tile the output, compute the taps on the tile in registers, vectorize both."""
    k, anchor = s.base, s.base.anchor.name
    if k.kept is not None:
        for info in k.feeders:
            sch.compute_inline(info.name)
        sch.skip_zeros(anchor)
    out = keep_result(sch, anchor, k.consumer)
    at, tile = _tile_output(s, sch, c, out)
    sch.compute_at(anchor, at)
    _tile_taps(s, sch, c, at)
    vectorize_tile(sch, tile)


def _tile_output(
    s: Stencil, sch: Schedule, c: Choices, out: str
) -> tuple[LoopRef, tuple[LoopRef, ...]]:
    """Split and reorder the output's loops; return the loop around a tile and those of the tile."""
    loops = result_loops(s.base, sch, out)
    column, *lanes = sch.split(loops[s.column.var], [None, int(c["vectors"]), int(c["lanes"])])
    row, near = sch.split(loops[s.row.var], [None, int(c["rows"])])
    head: list[LoopRef] = []
    if int(c["shares"]) > 1:
        share, column = sch.split(column, [int(c["shares"]), None])
        head.append(share)
    inside = [loops[a.var] for a in s.base.sweep if a.var in loops]
    if s.across is not None and s.across.var in loops and int(c["chunks"]) > 1:
        chunk, inside[-1] = sch.split(inside[-1], [int(c["chunks"]), None])
        head = [*inside[:-1], *head, chunk]
        inside = inside[-1:]
    around = [row, *inside] if c["order"] == "strip" else [*inside, row]
    sch.reorder(*head, *around, column, lanes[0], near, lanes[1])
    if not head:
        head = around[:1]
    at = head[0] if len(head) == 1 else sch.fuse(*head)
    if c["parallel"]:
        sch.parallel(at)
    return column, (lanes[0], near, lanes[1])


def _tile_taps(s: Stencil, sch: Schedule, c: Choices, at: LoopRef) -> None:
    """Put the last taps inside of the tile's neighbors, and the others around the tile."""
    anchor = s.base.anchor.name
    own = own_loops(sch, anchor, at)
    lane, vector = own[s.base.anchor_column], None
    if int(c["vectors"]) > 1:
        vector, lane = sch.split(lane, [int(c["vectors"]), int(c["lanes"])])
    taps = own[s.taps.var]
    outer = [own[a.var] for a in s.outer_taps if a.var in own]
    row = own.get(s.base.anchor_row) if s.base.anchor_row is not None else None
    tile = [x for x in (vector, row) if x is not None]
    sch.reorder(*outer, *tile, taps, lane)
    init = sch.decompose_reduction(anchor, (*outer, *tile, taps)[0])
    vectorize_tile(sch, [*tile, taps, lane])
    vectorize_init(sch, init, len(tile) + 1)
