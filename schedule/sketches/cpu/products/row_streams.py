"""Products of a few rows by large weights that lie as the caller has them: rows are streams.

Each weight is used once or a few times, so memory sets the time. A register tile would read a short
piece of every row, each on a page of its own, where no prefetcher follows. So the sums of many
columns, as many as the first cache holds, are kept in memory, and the terms are the outer loop: a
step adds some rows of the weights, each of them a stream of some thousand bytes.
"""

from __future__ import annotations

import math

import numpy as np

from .....ir.arrays import Array
from .....ir.loop.nodes import Var
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.lookup import own_loops
from ....space.space import Batch, Choices, Columns, Sketch, columns_of
from ..nests.contraction import Contraction, made_by_feeder
from ..nests.fallback import around_anchor
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import may_share_flops

ROWS = 4  # of the result, up to which a register tile waits longer for the weights
PIECES = (1, 2, 4, 8, 16, 32)  # stretches of columns for each thread
TERMS = (8, 4, 2, 1)  # rows of weights in a step
LARGE = 1.0  # of the second cache, from which weights are taken to be elsewhere
STRETCH = 4096  # bytes of a row from which the prefetchers follow
SUMS = 1 / 2  # of the first cache, for the sums


@CPU.row(9)
def match_row_streams(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of few rows by weights in place, which come from memory."""
    k = work.contraction
    if k is None or not _streams(k, target):
        return None
    many = Batch(lambda c: _valid(k, c, target), lambda c: _cost(k, c, target))
    shared = target.threads > 1 and may_share_flops(k.anchor.flops, target)
    lanes = max(1, target.lanes(k.dtype))
    decisions = {
        "pieces": tuple(n * (target.threads if shared else 1) for n in PIECES),
        "terms": TERMS,
        "lanes": (lanes,),
        "parallel": (1, 0) if shared else (0,),
    }
    return around_anchor(
        "row_streams@1",
        decisions,
        valid=many.valid_one,
        cost=many.cost_one,
        apply=lambda sch, c: _apply(k, sch, c),
        others=work.besides(k.anchor, k.consumer),
        target=target,
        fixed={"lanes": lanes, "parallel": decisions["parallel"][0]},
        many=many,
    )


def _streams(k: Contraction, target: Target) -> bool:
    """True if rows of weights are long, lie in place, and exceed the caches near to a core."""
    weights = k.weights
    if weights is None or k.frozen or k.turned or k.lower is not None or made_by_feeder(k):
        return False
    if k.all_rows > ROWS or len(k.anchor.reduce) != 1 or math.prod(a.extent for a in k.outer) > 1:
        return False
    if k.in_parts(k.column, k.anchor_column) or weights.buffer.dtype != k.dtype:
        return False
    if k.consumer is not None and k.consumer.spatial[-1].var != k.column.var:
        return False
    size = k.dtype.bytes
    row = k.column.extent * size
    step = (weights.stride(k.anchor.reduce[-1].var) or 0) * size
    large = row * k.depth > LARGE * target.core.l2.size and weights.stride(k.anchor_column) == 1
    return large and step >= row >= STRETCH * target.threads


def _width(k: Contraction, c: Columns) -> Array:
    """Return the columns of a piece, in whole vectors."""
    return np.asarray(-(-k.column.extent // (c["pieces"] * c["lanes"])) * c["lanes"])


def _valid(k: Contraction, c: Columns, target: Target) -> Array:
    """True where the sums of a piece stay in the first cache, and a step's factors in registers."""
    width = _width(k, c)
    near = width * k.all_rows * k.dtype.bytes <= SUMS * target.l1
    used = (c["pieces"] - 1) * width < k.column.extent
    weights = c["terms"] if k.all_rows > 1 else 0  # that several rows use; one reads them in place
    few = c["terms"] * k.all_rows + weights + 1 < target.registers - 1
    return np.asarray(near & used & few & (c["terms"] <= k.depth))


def _cost(k: Contraction, c: Columns, target: Target) -> Array:
    """Estimate the seconds of one run: the weights come from memory, or instructions take longer.

    A stretch of a row takes its bytes, and longer the shorter it is.
    """
    core, width, rows = target.core, _width(k, c), k.all_rows
    threads = np.where(c["parallel"] > 0, target.threads, 1)
    bandwidth = np.where(threads > 1, core.bandwidth(target.threads), core.bandwidth(1))
    stretch = width * k.dtype.bytes
    late = 1.0 + (STRETCH / 2 / stretch) ** 2
    memory = k.depth * k.column.extent * k.dtype.bytes / bandwidth * late
    turns = core.turns(8 * k.dtype.bytes * int(max(1, target.lanes(k.dtype))))
    moved = 1.0 / core.loads + 2.0 / c["terms"] / core.stores
    vectors = -(-width // c["lanes"]) * c["pieces"] * k.depth * rows
    share = -(-c["pieces"] // threads) / c["pieces"]
    work = vectors * turns * (moved + 1.0 / core.fmas) * share
    claims = core.claim * c["pieces"] / threads + np.where(threads > 1, core.sharing, 0.0)
    return np.asarray(np.maximum(memory, work / core.clock) + claims / core.clock)


def _apply(k: Contraction, sch: Schedule, c: Choices) -> None:
    """Split the columns into pieces, and add some rows of the weights to a piece's sums at once."""
    name, width, lanes = k.anchor.name, int(_width(k, columns_of(c))), int(c["lanes"])
    info = k.consumer or k.anchor
    loops = own_loops(sch, info.name)
    piece, column = sch.split(loops[k.column.var], [None, width])
    sch.reorder(piece, *(loops[a.var] for a in info.spatial if a != k.column and a.var in loops))
    if k.consumer is not None:
        _, lane = sch.split(column, [None, lanes])
        sch.vectorize(lane)
        sch.compute_at(name, piece)
        column = own_loops(sch, name, piece)[k.anchor_column]
    _add_rows(k, sch, c, own_loops(sch, name, piece), column)
    if c["parallel"]:
        sch.parallel(piece)


def _add_rows(
    k: Contraction, sch: Schedule, c: Choices, own: dict[Var, LoopRef], column: LoopRef
) -> None:
    """Put the terms around the columns, and some of them inside, unrolled."""
    name = k.anchor.name
    vector, lane = sch.split(column, [None, int(c["lanes"])])
    term, near = sch.split(own[k.anchor.reduce[-1].var], [None, int(c["terms"])])
    rows = [own[a.var] for a in k.anchor.spatial if a.var in own and a.var != k.anchor_column]
    sch.reorder(term, vector, *rows, near, lane)
    init = sch.decompose_reduction(name, term)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(lane)
    for loop in (*rows, near):
        sch.unroll(loop)
