"""Products of few columns: lanes run along the terms, and each result of a tile has a vector.

Columns that fill less than half a vector leave most of it idle in a register tile. Here a tile of
rows keeps a vector of partial sums for each result; the vectors of all of them are added up across
lanes as trees. Weights have their terms as neighbors for this: a small copy, where they have not.
"""

from __future__ import annotations

from dataclasses import dataclass

from .....ir.target import Target
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, product_operands
from ....space.lookup import own_loops
from ....space.space import Choices, Sketch
from ..nests.contraction import Contraction
from ..nests.fallback import around_anchor
from ..nests.lane_sums import sum_across_lanes, sum_in_lanes
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import may_share, pass_seconds
from ..nests.registers import keep_result
from .tiling import copy_weights, result_loops

BESIDE = 8  # registers that are no partial sums: weights, rows
LEAST = 4  # vectors of terms that make up for adding across lanes
LEVELS = 3.0  # instructions of a tree for each vector of partial sums
OVERLAP = 0.1  # of the work, which memory does not hide
FEW = 16  # rows: of fewer, a partial tile at the end takes too much of the time
STORED = 10.0  # cycles of a tile beside its sums
ROWS = (2, 4)


@dataclass(frozen=True, slots=True)
class ThinProduct:
    """A product whose rows are contiguous along the terms; ``lanes`` are those of a vector."""

    k: Contraction
    weights: AccessPattern
    lanes: int

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self.k.column.extent

    @property
    def terms(self) -> int:
        """The number of terms of each result."""
        return self.k.depth

    def heights(self, target: Target) -> tuple[int, ...]:
        """Return the rows that a tile may have."""
        most = 0 if self.k.row is None else self.k.row.extent
        sums = target.registers - BESIDE
        return tuple(n for n in ROWS if n <= most and n * self.columns <= sums)


def find_thin(work: FuncInfo, target: Target) -> ThinProduct | None:
    """Return the product if its columns fill at most half a vector, and its terms some."""
    k = work.contraction
    if k is None or k.weights is None or k.lower is not None or k.feeders or k.outer:
        return None
    lanes, pair = target.lanes(k.dtype), product_operands(k.anchor) or ()
    if k.row is None or len(k.anchor.reduce) != 1:
        return None
    term = k.anchor.reduce[0]
    left = [a for a in pair if a != k.weights]
    alike = all(a.buffer.dtype == k.dtype for a in pair) and k.dtype.is_float
    if not alike or len(left) != 1 or left[0].step(term.var) != 1:
        return None
    if left[0].uses(k.anchor_column) or k.in_parts(k.column, k.anchor_column):
        return None
    if k.in_parts(k.row, k.anchor_row):
        return None
    thin = 2 * k.column.extent <= lanes and term.extent >= LEAST * lanes
    if k.row.extent < FEW and k.row.extent % ROWS[0]:
        return None
    p = ThinProduct(k, k.weights, lanes)
    return p if thin and p.heights(target) else None


def apply_thin(p: ThinProduct, sch: Schedule, c: Choices) -> None:
    """Keep the partial sums of a tile in registers over all terms, then add across lanes."""
    k, anchor = p.k, p.k.anchor.name
    out = keep_result(sch, anchor, k.consumer)
    loops = result_loops(k, sch, out)
    assert k.row is not None and k.anchor_row is not None
    at, row = sch.split(loops[k.row.var], [None, int(c["rows"])])
    around = [*(loops[a.var] for a in k.sweep if a.var in loops), at]
    sch.reorder(*around, row, loops[k.column.var])
    sch.compute_at(anchor, at)
    if p.weights.step(k.anchor.reduce[0].var) != 1:
        _turn(p, sch)
    own = own_loops(sch, anchor, at)
    tile = [own[k.anchor_row], own[k.anchor_column]]
    step, lane = sch.split(own[k.anchor.reduce[0].var], [None, p.lanes])
    sch.reorder(step, *tile, lane)
    sum_in_lanes(sch, step, lane, len(tile))
    sum_across_lanes(sch, anchor, len(tile))
    results = sch.fuse(*sch.get_loops(out)[-2:])
    sch.vectorize(results)
    if c["parallel"]:
        sch.parallel(at if len(around) == 1 else sch.fuse(*around))


def _turn(p: ThinProduct, sch: Schedule) -> None:
    """Copy the weights, so that terms are neighbors."""
    packed = copy_weights(p.k, sch, p.weights)
    forms = [form or {} for form in p.weights.coefficients]
    column = next(d for d, form in enumerate(forms) if p.k.anchor_column in form)
    sch.transform_layout(packed, 0, [column, *(d for d in range(len(forms)) if d != column)])


def thin_cost(p: ThinProduct, c: Choices, target: Target) -> float:
    """Estimate the seconds: FMAs or loads of a step, the trees, and what memory delivers."""
    core, rows = target.core, int(c["rows"])
    results, threads = rows * p.columns, target.threads if c["parallel"] else 1
    step = max(results / core.fmas, (rows + p.columns) / core.loads, float(core.fma_latency))
    tiles = p.k.all_rows / rows
    sums = step * p.terms / p.lanes + LEVELS * results / core.fmas
    cycles = tiles * (sums + STORED)
    work = core.seconds(cycles / threads)
    return max(work, pass_seconds((p.k.anchor,), threads, target)) + OVERLAP * work


@CPU.row(9)
def match_thin(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of few columns."""
    p = find_thin(work, target)
    if p is None:
        return None
    k = p.k
    shared = may_share(pass_seconds((k.anchor,), 1, target), target)
    return around_anchor(
        "thin@1",
        {"rows": p.heights(target), "parallel": (1, 0) if shared else (0,)},
        valid=lambda c: True,
        cost=lambda c: thin_cost(p, c, target),
        apply=lambda sch, c: apply_thin(p, sch, c),
        others=work.besides(k.anchor, k.consumer),
        target=target,
    )
