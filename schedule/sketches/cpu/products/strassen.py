"""The Strassen sketch: a product of matrices as seven or 49 products of sums of its parts.

Rows of each part are taken in blocks. The sums of a block's parts are computed, then the columns
in strips: the products of a strip, in tiles of registers, and from these the result. Threads take
blocks, with sums of their own, or share the sums and take strips. It is offered where the target's
``accuracy`` allows its error and the estimate is not far behind the plain product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .....ir.arrays import Array
from .....ir.cores import CpuCore
from .....ir.dtypes import f32
from .....ir.loop.nodes import Var
from .....ir.loop.notes import FETCH_AHEAD
from .....ir.target import Target
from ....bilinear import LEFT, PRODUCTS, RESULT, Signs, additions
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....primitives.products.strassen import MOST_LEVELS, added_error, plain_product
from ....space.analyze import BlockInfo, point_reads
from ....space.lookup import own_loops
from ....space.space import Batch, Choices, Columns, Sketch, columns_of
from ..nests.contraction import Contraction, tile_of
from ..nests.fallback import around_anchor
from ..nests.matching import CPU, FuncInfo, once
from .batched import (
    inline_ends,
    result_axes,
    spread,
    tile_cycles,
    tile_fits,
    tile_products,
    vectorize_ends,
)
from .tiling import ROWS, beside_tiling

BLOCKS = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32)
AHEAD, BEHIND = 0.95, 1.15
"""Times the plain product's estimate below which the sketch is the default, or worth trying."""
SQUARE, LEAST_SQUARE = 16, 4  # rows of a vector of columns that are stored transposed
WRITTEN = 0.5  # of the rate at which a cache is read: that at which it is written
LATE = 0.2  # of the time in which weights arrive: what is not hidden behind products
AGAIN = 0.7  # of the time in which they arrive for one more block of rows
SUMS_WAITED = 0.3  # of the time in which strips read the sums of rows again
OTHERS = 0.5  # of L3: what is left to one program beside others
MOST_PADDED = 1.1  # times the columns, with their padding
SHALLOWEST = 48  # terms of a part, below which sums and stores take longer than products


@CPU.row(9)
def match_faster(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product that is expected to be faster in parts."""
    return beside_tiling(_matched(work, target), work, target, 0.0, AHEAD)


@CPU.row(11)
def match_close(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product that may be as fast in parts."""
    return beside_tiling(_matched(work, target), work, target, AHEAD, BEHIND)


@once
def _matched(work: FuncInfo, target: Target) -> Sketch | None:
    if not target.accuracy or work.contraction is None:
        return None
    shape = _shape(work.contraction, target)
    return None if shape is None else _sketch(work, shape, target)


@dataclass(frozen=True, slots=True)
class _Parted:
    """A product's extents, and the block that computes the final result.

    ``rows`` and ``columns`` are the axes of the result that make up those of the product, in order.
    ``out`` is None without a consumer that reads it element by element; ``turned`` if that stores
    the columns far apart and rows as neighbors. ``levels`` are those whose error is allowed.
    """

    k: Contraction
    m: int
    n: int
    terms: int
    out: BlockInfo | None
    rows: tuple[Var, ...]
    columns: tuple[Var, ...]
    turned: bool
    levels: tuple[int, ...]

    def part_rows(self, c: Columns) -> Array:
        """Return the rows of a part, in whole blocks of whole tiles."""
        whole = c["blocks"] * c["rows"]
        return np.asarray(-(-self.m // (whole << c["levels"])) * whole)

    def neighbors(self, c: Columns) -> Array:
        """Return the rows that are stored as neighbors at a time; 1 if columns are neighbors."""
        rows = self.part_rows(c) // c["blocks"]
        found = np.ones(rows.shape, np.int64)
        for n in range(2, SQUARE + 1 if self.turned else 2):
            found = np.where(rows % n == 0, n, found)
        return found

    def strips(self, c: Columns) -> Array:
        """Return the strips of a part's columns."""
        return np.asarray(-(-self.n // (c["vectors"] * c["lanes"] << c["levels"])))


def _shape(k: Contraction, target: Target) -> _Parted | None:
    found = plain_product(k.anchor.block)
    if found is None or len(found.roles["k"]) != 1:
        return None
    m, n, terms = (found.points(r) for r in "mnk")
    lanes = max(1, target.lanes(f32))
    levels = tuple(
        d
        for d in range(1, MOST_LEVELS + 1)
        if added_error(d, terms) <= target.accuracy
        and terms % (lanes << d) == 0
        and (k.frozen or n % (lanes << d) == 0)
        and n >= lanes << d
        and terms >> d >= SHALLOWEST
    )
    rows = k.anchor.inputs if k.weights is None else [a for a in k.anchor.inputs if a != k.weights]
    last = found.roles["k"][0].var
    if not levels or any(a.stride(last) != 1 for a in rows if a.uses(last)):
        return None
    if not k.frozen and k.turned:
        return None
    out = k.consumer
    axes = _result_axes(k, out)
    if axes is None:
        return None
    sides = [tuple(v for a in found.roles[r] for v in axes.get(a.var, ())) for r in "mn"]
    ends = [side[-1] for side in sides]
    last = ends[1] if out is None else out.spatial[-1].var
    if last not in ends:
        return None
    return _Parted(
        k=k,
        m=m,
        n=n,
        terms=terms,
        out=out,
        rows=sides[0],
        columns=sides[1],
        turned=last == ends[0],
        levels=levels,
    )


def _result_axes(k: Contraction, out: BlockInfo | None) -> dict[Var, tuple[Var, ...]] | None:
    """Map each axis of the product to those of the result that make it up, the slowest first.

    None if the consumer has another use of them.
    """
    if out is None:
        return {a.var: (a.var,) for a in k.anchor.spatial}
    part = point_reads(out, k.anchor)
    if part is None:
        return None
    axes: dict[Var, list[tuple[int, Var]]] = {}
    for v, (axis, step) in part.items():
        axes.setdefault(axis, []).append((step, v))
    ordered = {a: sorted(vs, key=lambda x: -x[0]) for a, vs in axes.items()}
    return {a: tuple(v for _, v in vs) for a, vs in ordered.items()}


def _sketch(work: FuncInfo, shape: _Parted, target: Target) -> Sketch | None:
    k = shape.k
    lanes = max(1, target.lanes(f32))
    shared = target.threads > 1
    decisions = {
        "levels": shape.levels,
        "rows": ROWS,
        "vectors": (1, 2, 3, 4, 6),
        "lanes": (lanes,),
        "blocks": tuple(b for b in BLOCKS if b <= max(1, shape.m // 8)),
        "private": (0, 1) if shared else (0,),
        "unroll": (1, 2, 4),
        "ahead": (1, 0),
        "parallel": (1, 0) if shared else (0,),
    }
    least = min((PRODUCTS / 8) ** d for d in shape.levels)
    many = Batch(lambda c: _valid(shape, c, target), lambda c: _cost(shape, c, target))
    return around_anchor(
        "strassen@1",
        decisions,
        valid=many.valid_one,
        cost=many.cost_one,
        apply=lambda sch, c: _apply(sch, shape, c, target),
        others=work.besides(k.anchor, shape.out, *k.feeders),
        target=target,
        fixed={"lanes": lanes, "parallel": decisions["parallel"][0], "ahead": 1},
        share=least,
        many=many,
    )


def _valid(shape: _Parted, c: Columns, target: Target) -> Array:
    """True where strips nearly divide the columns, and tiles and blocks fit rows and registers."""
    levels, vectors = c["levels"], c["vectors"]
    columns = shape.strips(c) * vectors * c["lanes"] << levels
    wide = columns > (MOST_PADDED * shape.n if shape.k.frozen else shape.n)
    tall = shape.part_rows(c) << levels >= 1.5 * shape.m + 8
    apart = (c["private"] > 0) & ((c["blocks"] < target.threads) | (c["parallel"] == 0))
    fits = tile_fits(c, shape.terms >> levels, target) & (c["rows"] * vectors > 1)
    if shape.turned:
        fits = fits & (shape.neighbors(c) >= LEAST_SQUARE) & ~_padded(shape, c)
    return np.asarray(fits & ~wide & ~tall & ~apart)


def _padded(shape: _Parted, c: Columns) -> Array:
    """True where parts reach beyond the rows or columns."""
    columns = shape.strips(c) * c["vectors"] * c["lanes"]
    sides = (shape.part_rows(c), shape.m), (columns, shape.n)
    rows_off, columns_off = (part << c["levels"] != whole for part, whole in sides)
    return np.asarray(rows_off | columns_off)


def _cost(shape: _Parted, c: Columns, target: Target) -> Array:
    """Estimate the seconds of one run, with frozen weights coming from memory.

    Products are limited by FMAs or loads, sums by loads and stores, or by the cache that holds a
    block of them, from which each strip reads them again.
    """
    core, levels, blocks = target.core, c["levels"], c["blocks"]
    rows, number, parts = shape.part_rows(c), PRODUCTS**levels, 4**levels
    terms, strips = shape.terms >> levels, shape.strips(c)
    threads = np.where(c["parallel"] > 0, target.threads, 1)
    turns, width = np.maximum(1.0, 32 * c["lanes"] / core.vector_bits), c["vectors"] * c["lanes"]
    products = number * strips * rows / c["rows"] * tile_cycles(c, terms, target)
    made = parts / core.loads + number / core.stores + _additions(LEFT, levels) / core.fmas
    block = 4.0 * number * rows / blocks * terms
    strip = 4.0 * number * width * (rows / blocks + terms)
    vectors = rows * -(-terms // c["lanes"])
    sums = np.maximum(turns * vectors * made, blocks * block / _rate(core, block) / WRITTEN)
    joined = (
        number / core.loads + 4.0 * parts / core.stores + _additions(RESULT, levels) / core.fmas
    )
    back = turns * rows * strips * c["vectors"] * joined
    again = blocks * strips * block / _rate(core, block + strip)
    far = _rate(core, np.asarray(core.l2.size + 1))  # what another core has just written
    others = np.where(c["private"] > 0, 0.0, blocks * block / far) * (threads > 1)
    pieces = np.where(c["private"] > 0, blocks, strips)
    share = -(-pieces // threads) / pieces
    work = products + back + SUMS_WAITED * again + np.maximum(0.0, again - 0.5 * products)
    cycles = work * share + others + sums * np.where(c["private"] > 0, share, 1 / threads)
    seconds = cycles / core.clock
    forks = np.where(threads == 1, 0, np.where(c["private"] > 0, 1, 2 * blocks))
    waited = _weights_seconds(shape, c, target, seconds)
    return np.asarray(seconds + waited + forks * core.fork / core.clock)


def _additions(signs: Signs, levels: Array) -> Array:
    """Return the additions of sums by a table at each number of levels."""
    return np.array([additions(signs, d) for d in range(MOST_LEVELS + 1)])[levels]


def _rate(core: CpuCore, size: Array) -> Array:
    """Return the bytes a cycle at which a core reads ``size`` bytes again and again."""
    caches = [x for x in (core.l1, core.l2, core.l3) if x.size]
    held, rates = [size <= x.size for x in caches], [x.rate for x in caches]
    return np.select(held, rates, core.read / core.clock)


def _weights_seconds(shape: _Parted, c: Columns, target: Target, seconds: Array) -> Array:
    """Estimate the seconds that are waited for weights, beside ``seconds`` of products.

    They come from memory once, for each thread that reads all of them, and again from L3, if they
    fit, for every further block of rows. Those that are not frozen are summed first.
    """
    core, levels, blocks = target.core, c["levels"], c["blocks"]
    threads = np.where(c["parallel"] > 0, target.threads, 1)
    size = 4.0 * PRODUCTS**levels * (shape.terms >> levels) * (shape.n >> levels)
    arrives = np.where(threads > 1, core.bandwidth(target.threads), core.bandwidth(1))
    arrival = size / arrives * (1 if shape.k.frozen else 3)
    # Private threads drift apart, and what one has read is in its L2, not yet in L3.
    arrival = arrival + np.where(c["private"] > 0, (threads - 1) * size / arrives, 0.0)
    passes = np.where(c["private"] > 0, -(-blocks // threads), blocks)
    near = np.maximum(threads * core.l3.rate * core.clock, arrives)
    rate = np.where(size <= OTHERS * core.l3.size, near, arrives)
    again = (passes - 1) * size / rate * np.where(c["private"] > 0, threads, 1)
    return np.asarray(np.maximum(LATE * arrival, arrival - 0.7 * seconds) + AGAIN * again)


def _apply(sch: Schedule, shape: _Parted, c: Choices, target: Target) -> None:
    """Rewrite the product, and compute each block's sums and products in loops of the result."""
    name, levels = shape.k.anchor.name, int(c["levels"])
    rows, vectors, lanes = tile_of(c)
    multiples = [int(c["blocks"]) * rows << levels, vectors * lanes << levels, 1]
    left, right, result, copy = sch.strassen(name, multiples, levels)
    out = inline_ends(sch, shape.k, shape.out, copy)
    loops = _tile_result(sch, shape, c, out)
    sch.compute_at(result, loops.row)
    numbers = tile_products(sch, name, c, loops.strip, right, [2, 0, 1, 3], target)
    if c["ahead"]:
        sch.annotate(numbers, FETCH_AHEAD.key, 1)
    inside = int(c["blocks"]) > 1 or bool(c["private"])
    if inside:
        sch.compute_at(left, loops.block)
    vectorize_ends(sch, (left, right, result), lanes)
    spread(sch, left, 0, target)
    if not shape.k.frozen:
        spread(sch, right, 1, target)
    sch.vectorize(loops.lane)
    if not c["parallel"]:
        return
    if not shape.k.frozen:
        sch.parallel(sch.get_loops(right)[0])
    if c["private"]:
        sch.parallel(loops.block)
    else:
        sch.parallel(sch.get_loops(left)[1 if inside else 0])
        sch.parallel(loops.strip)


@dataclass(frozen=True, slots=True)
class _ResultLoops:
    """Loops of the result: blocks of rows, strips of columns, its rows (or squares), lanes."""

    block: LoopRef
    strip: LoopRef
    row: LoopRef
    lane: LoopRef


def _tile_result(sch: Schedule, shape: _Parted, c: Choices, out: str) -> _ResultLoops:
    """Split rows and columns of the result into parts, and order the parts inside."""
    levels, (_, vectors, lanes) = int(c["levels"]), tile_of(c)
    cut, blocks, at = 2**levels, int(c["blocks"]), columns_of(c)
    own = _own_axes(sch, shape, out)
    sides = [[own[v] for v in side if v in own] for side in (shape.rows, shape.columns)]
    sch.reorder(*sides[0], *sides[1])
    m, n = (side[0] if len(side) == 1 else sch.fuse(*side) for side in sides)
    part_m, block, row = sch.split(m, [cut, blocks, int(shape.part_rows(at)) // blocks])
    part_n, strip, vector, lane = sch.split(n, [cut, int(shape.strips(at)), vectors, lanes])
    inner = [vector, lane]
    if shape.turned:
        row, near = sch.split(row, [None, int(shape.neighbors(at))])
        sch.unroll(near)
        inner = [vector, near, lane]
    sch.reorder(block, strip, row, part_m, part_n, *inner)
    return _ResultLoops(block, strip, row, lane)


def _own_axes(sch: Schedule, shape: _Parted, out: str) -> dict[Var, LoopRef]:
    """Map the axes of the result, as ``rows`` and ``columns`` name them, to their loops."""
    return result_axes(sch, shape.k, out) if shape.out is None else own_loops(sch, out)
