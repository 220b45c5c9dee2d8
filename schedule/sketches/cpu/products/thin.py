"""Products of few columns: lanes run along the terms, and each result of a tile has a vector.

Columns that do not fill a vector leave part of it idle in a register tile. Here a tile of rows
keeps a vector of partial sums for each result; the vectors of all of them are added up across lanes
as trees. Weights have their terms as neighbors for this: a small copy, where they have not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, product_operands
from ....space.lookup import extent, own_loops
from ....space.space import Choices, Sketch
from ..nests.contraction import Contraction
from ..nests.fallback import around_anchor
from ..nests.lane_sums import one_stretch, sum_across_lanes, sum_in_lanes
from ..nests.matching import CPU, FuncInfo, once
from ..nests.pointwise import may_share, pass_seconds
from ..nests.registers import keep_result
from .tiling import beside_tiling, copy_weights, result_loops

BESIDE = 8  # registers that are no partial sums: weights, rows
LEAST = 4  # vectors of terms that make up for adding across lanes
LEVELS = 3.0  # instructions of a tree for each vector of partial sums
OVERLAP = 0.1  # of the work, which memory does not hide
FEW = 16  # rows: of fewer, a partial tile at the end takes too much of the time
STORED = 10.0  # cycles of a tile beside its sums
TURNED = 2.5  # cycles for each weight that is copied to have the terms as neighbors
ROWS = (2, 4)
CLEARLY = 0.9  # of the tiles' estimate, below which lanes along the terms are faster
BEHIND = 1.2  # times the tiles' estimate up to which the sketch is worth trying


@dataclass(frozen=True, slots=True)
class ThinProduct:
    """A product whose rows are contiguous along the terms; ``lanes`` are those of a vector."""

    k: Contraction
    lanes: int

    @property
    def terms(self) -> int:
        """The number of terms of each result."""
        return self.k.depth


def rows_that_fit(k: Contraction, rows: Iterable[int], target: Target) -> tuple[int, ...]:
    """Return those of some numbers of rows that a tile may have: all of its sums are registers."""
    most = 0 if k.row is None else k.row.extent
    sums = target.registers - BESIDE
    return tuple(n for n in rows if n <= most and n * k.column.extent <= sums)


def find_thin(work: FuncInfo, target: Target) -> ThinProduct | None:
    """Return the product if its columns do not fill a vector, and its terms some."""
    k = work.contraction
    if k is None or k.feeders or len(k.anchor.reduce) != 1 or not has_thin_tiles(k, target):
        return None
    lanes, rows = target.lanes(k.dtype), k.row.extent if k.row is not None else 0
    if k.depth < LEAST * lanes or (rows < FEW and rows % ROWS[0]):
        return None
    p = ThinProduct(k, lanes)
    return p if rows_that_fit(k, ROWS, target) else None


def has_thin_tiles(k: Contraction, target: Target) -> bool:
    """True for a product whose columns do not fill a vector, with rows along the terms."""
    pair = product_operands(k.anchor) or ()
    left = [a for a in pair if a != k.weights]
    if k.weights is None or k.lower is not None or k.outer or k.row is None or len(left) != 1:
        return False
    if k.in_parts(k.row, k.anchor_row) or k.in_parts(k.column, k.anchor_column):
        return False
    alike = all(a.buffer.dtype == k.dtype for a in pair) and k.dtype.is_float
    beside = left[0].step(k.anchor.reduce[-1].var) == 1 and not left[0].uses(k.anchor_column)
    return alike and beside and k.column.extent < target.lanes(k.dtype)


def apply_thin(p: ThinProduct, sch: Schedule, c: Choices) -> None:
    """Keep the partial sums of a tile in registers over all terms, then add across lanes."""
    k, anchor = p.k, p.k.anchor.name
    out = keep_result(sch, anchor, k.consumer)
    loops = result_loops(k, sch, out)
    assert k.row is not None
    at, row = sch.split(loops[k.row.var], [None, int(c["rows"])])
    around = [*(loops[a.var] for a in k.sweep if a.var in loops), at]
    sch.reorder(*around, row, loops[k.column.var])
    sch.compute_at(anchor, at)
    sum_tile(k, sch, at, p.lanes)
    sch.vectorize(sch.fuse(*sch.get_loops(out)[-2:]))
    if c["parallel"]:
        sch.parallel(at if len(around) == 1 else sch.fuse(*around))


def sum_tile(
    k: Contraction, sch: Schedule, at: LoopRef, lanes: int, *, stretch: bool = False
) -> None:
    """Add the terms of a tile in ``at`` in lanes, then across them, with weights along the terms.

    The tile is laid out with its rows as neighbors: then all sums are, where rows are a power of
    two. With ``stretch`` lanes go through the terms of `one_stretch`.
    """
    anchor = k.anchor.name
    assert k.weights is not None and k.anchor_row is not None
    _rows_last(k, sch)
    if not _along_terms(k):
        _turn_weights(k, sch, k.weights)
    own = own_loops(sch, anchor, at)
    row, column = own[k.anchor_row], own[k.anchor_column]
    more_rows = extent(sch, row) >= extent(sch, column)
    tile = [row, column] if more_rows else [column, row]  # vectors of the fewer stay in registers
    terms = [own[a.var] for a in k.anchor.reduce if a.var in own]
    terms = one_stretch(sch, k.anchor, terms) if stretch else terms
    step, lane = sch.split(terms[-1], [None, lanes])
    outer = [*terms[:-1], step]
    sch.reorder(*outer, *tile, lane)
    sum_in_lanes(sch, outer[0], lane, len(tile))
    if more_rows:
        *_, row, column, lane = sch.get_loops(anchor)
        sch.reorder(column, row, lane)
    sum_across_lanes(sch, anchor, len(tile))


def _along_terms(k: Contraction) -> bool:
    """True if the weights have their terms as neighbors."""
    return k.weights is not None and k.weights.step(k.anchor.reduce[-1].var) == 1


def _rows_last(k: Contraction, sch: Schedule) -> None:
    axes = range(len(k.anchor.spatial))
    row = next(d for d in axes if k.anchor.spatial[d].var is k.anchor_row)
    sch.transform_layout(k.anchor.name, 0, [*(d for d in axes if d != row), row])


def _turn_weights(k: Contraction, sch: Schedule, weights: AccessPattern) -> None:
    """Copy the weights, so that terms are neighbors."""
    packed = copy_weights(k, sch, weights)
    forms = [form or {} for form in weights.coefficients]
    column = next(d for d, form in enumerate(forms) if k.anchor_column in form)
    sch.transform_layout(packed, 0, [column, *(d for d in range(len(forms)) if d != column)])


def thin_cost(p: ThinProduct, c: Choices, target: Target) -> float:
    """Estimate the seconds: FMAs or loads of a step, the trees, and what memory delivers."""
    rows, threads = int(c["rows"]), target.threads if c["parallel"] else 1
    tiles = p.k.all_rows / rows
    work = sums_seconds(p.k, rows, p.terms / p.lanes, tiles, threads, target)
    return max(work, pass_seconds((p.k.anchor,), threads, target)) + OVERLAP * work


def sums_seconds(
    k: Contraction, rows: int, steps: float, tiles: float, threads: int, target: Target
) -> float:
    """Estimate the seconds of the sums of ``tiles`` tiles, each of ``steps`` vectors of terms.

    Weights that exceed L1 come from L2 for every tile.
    """
    core, columns = target.core, k.column.extent
    results, size = rows * columns, columns * k.depth * k.dtype.bytes
    step = max(results / core.fmas, (rows + columns) / core.loads, float(core.fma_latency))
    if size > target.l1:
        step = max(step, size / steps / core.l2.rate)
    cycles = step * steps + LEVELS * results / core.fmas + STORED
    copied = 0.0 if k.frozen or _along_terms(k) else TURNED * columns * k.depth
    return core.seconds(tiles * cycles / threads + copied)


@CPU.row(9)
def match_thin(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of few columns, if it is clearly faster than in tiles."""
    return beside_tiling(_matched(work, target), work, target, 0.0, CLEARLY)


@CPU.row(11)
def match_thin_close(work: FuncInfo, target: Target) -> Sketch | None:
    """Match the others of these products, for the tuner to try."""
    return beside_tiling(_matched(work, target), work, target, CLEARLY, BEHIND)


@once
def _matched(work: FuncInfo, target: Target) -> Sketch | None:
    p = find_thin(work, target)
    if p is None:
        return None
    k = p.k
    shared = may_share(pass_seconds((k.anchor,), 1, target), target)
    return around_anchor(
        "thin@1",
        {"rows": rows_that_fit(k, ROWS, target), "parallel": (1, 0) if shared else (0,)},
        valid=lambda c: True,
        cost=lambda c: thin_cost(p, c, target),
        apply=lambda sch, c: apply_thin(p, sch, c),
        others=work.besides(k.anchor, k.consumer),
        target=target,
    )
