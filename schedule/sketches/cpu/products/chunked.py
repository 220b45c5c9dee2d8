"""Products whose terms are taken in chunks: gradients of weights, whose operands exceed L2.

A tile of ``tiling`` adds up all of its terms before the next one begins, so that each reads its
part of both operands from below L2 anew. Here every tile adds the terms of one chunk, for which
both operands stay in L2, to sums that are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .....ir.loop.nodes import BlockAxis, Var
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, BlockInfo, product_operands
from ....space.lookup import own_loops
from ....space.space import Choices, Sketch
from ..nests.contraction import Contraction, find_contraction, writes_in_order
from ..nests.fallback import around_anchor, schedule_runs
from ..nests.matching import CPU, FuncInfo, once
from ..nests.pointwise import may_share_flops, pass_seconds
from ..nests.registers import vectorize_tile
from .tiling import beside_tiling

ROWS = (4, 6, 8, 10, 11, 12, 13, 14)
VECTORS = (1, 2, 3, 4)
LEAST = 48  # terms of a chunk, which make up for loading and storing the sums
FILLED = 0.6  # of L2: both operands of a chunk
BELOW = 3.0  # times the lines that L3 takes for rows far apart, which nothing fetches ahead
TILE = 60.0  # cycles of a tile of a chunk beside its sums
BESIDE = 0.25  # of the lines from L2, for which the FMAs wait
CHOSEN = 1.0  # times the estimate of tiles, up to which chunks are the default
BEHIND = 1.3  # times that estimate, up to which the tuner tries them


@dataclass(frozen=True, slots=True)
class ChunkedProduct:
    """A product with its terms in the order in which they lie in memory, the farthest first.

    ``k`` has the roles of the anchor's own axes. ``shared`` is the operand whose elements are
    broadcast to a vector of columns; ``order`` is that of its dimensions in which rows are
    neighbors, empty where they are. ``passes`` are blocks that make an operand or read the result.
    """

    k: Contraction
    terms: tuple[BlockAxis, ...]
    shared: AccessPattern
    order: tuple[int, ...]
    passes: tuple[BlockInfo, ...]

    @property
    def row(self) -> BlockAxis:
        """The axis of a tile's rows."""
        assert self.k.row is not None
        return self.k.row

    @property
    def maker(self) -> BlockInfo | None:
        """The block that writes the shared operand; None if it is an argument."""
        mine = self.shared.buffer
        return next((b for b in self.passes if any(s.buffer is mine for s in b.stores)), None)


def find_chunked(work: FuncInfo, target: Target) -> ChunkedProduct | None:
    """Return the product of two arrays that exceed L2; None if it has parts in other orders."""
    whole = work.contraction
    if whole is None or whole.frozen:
        return None
    k = find_contraction(whole.anchor, ())
    if k is None or k.weights is None or k.row is None or k.outer or k.turned or k.lower:
        return None
    pair = product_operands(k.anchor) or ()
    if not k.dtype.is_float or any(a.buffer.dtype != k.dtype for a in pair):
        return None
    shared = next((a for a in pair if not a.uses(k.column.var)), None)
    if shared is None or shared.buffer is k.weights.buffer or _bytes(pair) < target.l2:
        return None
    apart = {a: k.weights.stride(a.var) for a in k.anchor.reduce if a.extent > 1}
    if None in apart.values():
        return None
    terms = tuple(sorted(apart, key=lambda a: -abs(apart[a] or 0)))
    order = _with_rows_last(shared, k.row.var, [a.var for a in terms])
    if order is None:
        return None
    p = ChunkedProduct(k, terms, shared, order, work.besides(whole.anchor))
    inside = shared.buffer in work.func.allocs
    return p if not order or (inside and _reads_near_rows(p.maker, order)) else None


def _reads_near_rows(maker: BlockInfo | None, order: tuple[int, ...]) -> bool:
    """True if the block that makes the shared operand reads rows as neighbors, too."""
    if maker is None or not writes_in_order(maker) or maker.reduce or maker.opaque:
        return False
    row = maker.spatial[order[-1]].var
    return all(a.step(row) == 1 for a in maker.inputs)


def _with_rows_last(shared: AccessPattern, row: Var, terms: list[Var]) -> tuple[int, ...] | None:
    """Return the dimensions in the order of the terms along them, then that of the rows.

    Empty if rows are neighbors already; None if they share a dimension with others.
    """
    if shared.stride(row) == 1:
        return ()
    forms = shared.coefficients
    mine = [d for d, form in enumerate(forms) if form is not None and row in form]
    if any(form is None for form in forms) or [forms[d] for d in mine] != [{row: 1}]:
        return None
    ranks = [max((terms.index(v) for v in form or {} if v in terms), default=-1) for form in forms]
    rest = sorted((d for d in range(len(forms)) if d not in mine), key=lambda d: ranks[d])
    return (*rest, *mine)


def _bytes(operands: tuple[AccessPattern, ...]) -> int:
    return sum(math.prod(a.buffer.shape) * a.buffer.dtype.bytes for a in operands)


def _chunk_counts(p: ChunkedProduct) -> Iterator[int]:
    """Yield numbers of equal chunks: of the farthest terms, or of the next for each of these."""
    first, *rest = p.terms
    for n in range(2, first.extent + 1):
        if first.extent % n == 0 and p.k.depth // n >= LEAST:
            yield n
    for axis in rest[:1]:
        for n in range(2, axis.extent + 1):
            if axis.extent % n == 0 and p.k.depth // (first.extent * n) >= LEAST:
                yield first.extent * n


def _split_terms(
    p: ChunkedProduct, sch: Schedule, chunks: int, own: dict[Var, LoopRef]
) -> tuple[LoopRef, list[LoopRef]]:
    """Return the loop over chunks, and those over the terms of one."""
    first, *rest = (own[a.var] for a in p.terms)
    extent = p.terms[0].extent
    if chunks <= extent:
        chunk, inner = sch.split(first, [chunks, None])
        return chunk, [inner, *rest]
    part, inner = sch.split(rest[0], [chunks // extent, None])
    sch.reorder(first, part, inner)
    return sch.fuse(first, part), [inner, *rest[1:]]


def _make_in_order(p: ChunkedProduct, maker: BlockInfo, sch: Schedule, c: Choices) -> None:
    """Lay the shared operand out with its rows as neighbors, and write it so."""
    sch.transform_layout(maker.name, 0, p.order)
    own = own_loops(sch, maker.name)
    loops = [own[var] for d in p.order if (var := maker.spatial[d].var) in own]
    sch.reorder(*loops)
    _, lane = sch.split(loops[-1], [None, int(c["lanes"])])
    sch.vectorize(lane)
    if c["parallel"]:
        sch.parallel(sch.fuse(*loops[:2]) if len(loops) > 2 else loops[0])


def apply_chunked(p: ChunkedProduct, sch: Schedule, c: Choices, target: Target) -> None:
    """Add the terms of a chunk in registers, tile by tile, then to the sums in memory."""
    k, anchor = p.k, p.k.anchor.name
    maker = p.maker if p.order else None
    if maker is not None:
        _make_in_order(p, maker, sch, c)
    schedule_runs(sch, tuple(b for b in p.passes if b is not maker), target)
    own = own_loops(sch, anchor)
    chunk, terms = _split_terms(p, sch, int(c["chunks"]), own)
    column, vector, lane = sch.split(own[k.column.var], [None, int(c["vectors"]), int(c["lanes"])])
    rows, row = sch.split(own[p.row.var], [None, int(c["rows"])])
    head, beside = (column, rows) if c["order"] == "column" else (rows, column)
    around = [*(own[a.var] for a in k.sweep if a.var in own), beside]
    units = [own[a.var] for a in k.anchor.spatial if a.extent == 1 and a.var in own]
    sch.reorder(*units, head, chunk, *around, *terms, row, vector, lane)
    partial = sch.rfactor(chunk, 0)
    sch.set_scope(partial, 0, "register")
    *results, again = sch.get_loops(anchor)[len(units) + 1 :]
    sch.reorder(again, *results)
    for mine, other in zip((chunk, *around), (again, *results), strict=False):
        sch.merge(mine, other)
    init = sch.decompose_reduction(partial, terms[0])
    for block in (partial, init, anchor):
        vectorize_tile(sch, sch.get_loops(block)[-3:])
    if c["parallel"]:
        sch.parallel(head)


def chunked_cost(p: ChunkedProduct, c: Choices, target: Target) -> float:
    """Estimate the seconds: FMAs or loads of a step, lines from L2 or below, sums in memory."""
    k, core = p.k, target.core
    rows, vectors, chunks = int(c["rows"]), int(c["vectors"]), int(c["chunks"])
    threads = target.threads if c["parallel"] else 1
    width = vectors * int(c["lanes"])
    sizes = {"row": math.ceil(p.row.extent / rows), "column": math.ceil(k.column.extent / width)}
    heads = sizes[str(c["order"])]
    tiles = sizes["row"] * sizes["column"] * math.prod(a.extent for a in k.sweep)
    busiest = math.ceil(heads / threads) / heads
    size, line = k.dtype.bytes, core.l1.line
    lines = math.ceil(rows * size / line) + width * size / line
    step = max(rows * vectors / core.fmas, (rows + vectors) / core.loads, float(core.fma_latency))
    near = lines * line / core.l2.rate
    assert k.weights is not None
    mine = {"column": (p.shared, k.weights), "row": (k.weights, p.shared)}[str(c["order"])]
    held = (_bytes(mine[:1]) + _bytes(mine[1:]) * busiest) / chunks
    far = 0.0 if held <= FILLED * target.l2 else BELOW * lines * line / core.l3.rate
    each = max(step, near, far) + BESIDE * near
    cycles = tiles * busiest * (k.depth * each + chunks * (2 * rows * vectors + TILE))
    fork = core.sharing if threads > 1 else 0.0
    passes = sum(pass_seconds((b,), threads, target) for b in p.passes)
    return core.seconds(cycles + fork) + passes


def _is_valid(p: ChunkedProduct, c: Choices, target: Target) -> bool:
    rows, vectors = int(c["rows"]), int(c["vectors"])
    fits = rows * vectors + vectors + 2 <= target.registers
    return fits and (vectors - 1) * int(c["lanes"]) < p.k.column.extent


@CPU.row(9)
def match_chunked(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product whose operands exceed L2, if chunks are expected to be faster than tiles."""
    return beside_tiling(_matched(work, target), work, target, 0.0, CHOSEN)


@CPU.row(11)
def match_chunked_close(work: FuncInfo, target: Target) -> Sketch | None:
    """Match the others of these products, for the tuner to try."""
    return beside_tiling(_matched(work, target), work, target, CHOSEN, BEHIND)


@once
def _matched(work: FuncInfo, target: Target) -> Sketch | None:
    p = find_chunked(work, target)
    chunks = () if p is None else tuple(_chunk_counts(p))
    if p is None or not chunks or p.row.extent < ROWS[0]:
        return None
    k, lanes = p.k, target.lanes(p.k.dtype)
    if k.column.extent < lanes:
        return None
    return around_anchor(
        "chunked@1",
        {
            "rows": tuple(n for n in ROWS if n <= p.row.extent),
            "vectors": VECTORS,
            "lanes": (lanes,),
            "chunks": chunks,
            "order": ("column", "row"),
            "parallel": (1, 0) if may_share_flops(k.anchor.flops, target) else (0,),
        },
        valid=lambda c: _is_valid(p, c, target),
        cost=lambda c: chunked_cost(p, c, target),
        apply=lambda sch, c: apply_chunked(p, sch, c, target),
        others=(),
        target=target,
    )
