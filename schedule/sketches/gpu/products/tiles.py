"""Matrix products on a GPU: the parts of the schedule common to all kinds of cores.

Tiles of the result for blocks of threads, cooperative copies of the operands' tiles, the epilogue
of a tile, and the sum over the parts of a split depth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from .....ir.loop.nodes import CHUNK
from .....ir.loop.notes import ASYNC, IN_TURN
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import describe
from ....space.lookup import below, own_loops, read_number
from ....space.space import Choices
from ..elementwise.transpose import find_transpose, transpose_sketch
from ..launches.threads import APART, BLOCKS, X, Y, Z, bind_flat, bind_parts, fused
from .matmul import Matmul, MatmulOperand

ASYNC_BYTES = (4, 8, 16)  # sizes of asynchronous copies
ASYNC_SM = 80
SWIZZLES = (8, 4, 2)  # chunks of a row that a swizzle permutes, the widest first
MOST_UNROLLED = 16  # largest number of accesses of one thread that are unrolled
MOST_LOADS = 64  # loads of one thread that are straight-line code, under way at once
FLAT = 256  # threads of a block that works element by element
BATCH, PART = "blockIdx.z", "blockIdx.y"


@dataclass(frozen=True, slots=True)
class MatmulBlocks:
    """The blocks of a product: operand copies, product, sum over a split depth, and epilogue.

    ``total`` is None if the depth is not split.
    """

    left: str
    right: str
    product: str
    total: str | None
    last: str


@dataclass(frozen=True, slots=True)
class BlockDim:
    """The number of threads of a block along threadIdx.z, y and x."""

    z: int
    y: int
    x: int

    @property
    def count(self) -> int:
        """The number of threads of a block."""
        return self.z * self.y * self.x


def make_product(k: Matmul, sch: Schedule, c: Choices, layouts: tuple[str, str]) -> MatmulBlocks:
    """Rewrite the anchor as a matrix product, or one for each part of a split depth."""
    for name in k.feeders:
        sch.compute_inline(name)
    split = int(c["split"])
    multiples = int(c["tile_m"]), int(c["tile_n"]), int(c["tile_k"]) * split
    a, b, out = sch.to_matmul(k.anchor, multiples, layouts)
    last = out.name
    if k.result.consumer is not None:
        sch.compute_inline(out)
        last = k.result.consumer.name
    if split == 1:
        return MatmulBlocks(a.name, b.name, k.anchor, None, last)
    part, _ = sch.split(sch.get_loops(k.anchor)[-1], [split, None])
    partial = sch.rfactor(part, 0).name
    return MatmulBlocks(a.name, b.name, partial, k.anchor, last)


def result_loops(k: Matmul, sch: Schedule, block: str) -> tuple[LoopRef | None, LoopRef, LoopRef]:
    """Return the result's loops over the batch, the rows and the columns, each fused into one."""
    by = result_by_role(k, sch, block)
    b, m, n = (by[r] for r in "bmn")
    assert m is not None
    assert n is not None
    return b, m, n


def result_by_role(k: Matmul, sch: Schedule, block: str) -> dict[str, LoopRef | None]:
    """Return the result's loop over each role, fused into one; None where it has extent 1."""
    own = own_loops(sch, block)
    if k.result.consumer is None or block != k.result.consumer.name:  # a copy has axes of its own
        axes = [a.var for a in sch.block(block).axes]
        own = {v: own[w] for v, w in zip(k.result.spatial, axes, strict=True) if w in own}
    order = {r: [own[v] for v in k.result.axes[r]] for r in "bmn"}
    taken = [x for loops in order.values() for x in loops]
    order["b"] = [x for x in sch.get_loops(block) if x not in taken] + order["b"]
    sch.reorder(*order["b"], *order["m"], *order["n"])
    return {r: fused(sch, order[r]) for r in "bmn"}


def spread_tiles(
    sch: Schedule, b: LoopRef | None, m: LoopRef, n: LoopRef, c: Choices, turns: int = 1
) -> LoopRef:
    """Bind each tile of the result to a block of threads, or ``turns`` to each: those that blocks
    do at the same time are neighbors. Return the loop over tiles.

    ``group`` rows of tiles are traversed together, column by column, so that concurrent tiles share
    more of their operands.
    """
    mo, mi = sch.split(m, [None, int(c["tile_m"])])
    no, ni = sch.split(n, [None, int(c["tile_n"])])
    sch.reorder(*([b] if b is not None else []), mo, no, mi, ni)
    group = math.gcd(sch.extent(mo), int(c["group"]))
    order = [mo, no]
    if group > 1:
        first, near = sch.split(mo, [None, group])
        order = [first, no, near]
        sch.reorder(*order)
    at = sch.fuse(*order)
    if b is not None:
        sch.bind(b, BATCH)
    sch.bind(at, BLOCKS)
    if turns > 1:
        sch.annotate(at, IN_TURN.key, turns)
    return at


def copy_tile(
    sch: Schedule,
    block: str,
    at: LoopRef,
    x: MatmulOperand,
    layout: str,
    threads: BlockDim,
    ahead: bool,
) -> None:
    """Divide the copy of an operand's tile, in each iteration of ``at``, among all threads.

    The tile has the given ``layout``; neighboring threads read adjacent memory. With ``ahead``,
    copies are asynchronous where the hardware supports it.
    """
    loops = below(sch, block, at)
    straight = keeps_order(x, layout)
    if not straight:
        loops.reverse()
        sch.reorder(*loops)
    divide_among_threads(sch, sch.fuse(*loops), threads, copy_width(x, straight))
    if ahead and is_async(x, straight):
        sch.annotate(block, ASYNC.key, 1)


def keeps_order(x: MatmulOperand, layout: str) -> bool:
    """True if neighbors of a tile with this layout are neighbors in memory, too."""
    return x.transposed == (layout[1] != "k")


def is_async(x: MatmulOperand, straight: bool) -> bool:
    """True if asynchronous copies can fill a tile of an operand; ``straight``: in memory order."""
    width = copy_width(x, straight)
    return x.plain and width * x.dtype.bytes in ASYNC_BYTES and (straight or width == 1)


def swizzle_chunks(row: int) -> int:
    """Return the chunks of the widest swizzle for rows of so many bytes; 0 if none divides them."""
    return next((n for n in SWIZZLES if row % (n * CHUNK) == 0), 0)


def stage_tile(sch: Schedule, product: str, operand: str, packed: bool) -> str:
    """Put an operand's copy into shared memory, or a copy of it if it is packed in global memory.

    Returns the block that fills shared memory.
    """
    if not packed:
        sch.set_scope(operand, 0, "shared")
        return operand
    buffer = sch.block(operand).writes[0].buffer
    return sch.cache_read(product, read_number(sch, product, buffer), "shared").name


def copy_width(x: MatmulOperand, straight: bool) -> int:
    """Return the number of elements of an operand that a thread copies at once.

    Single elements of four bytes can be transposed by asynchronous copies; narrower ones are better
    loaded as vectors.
    """
    if not straight and x.plain and x.dtype.bytes in ASYNC_BYTES:
        return 1
    return max(x.across, x.along)


def divide_among_threads(sch: Schedule, loop: LoopRef, threads: BlockDim, width: int) -> None:
    """Divide the iterations of a loop among all threads, ``width`` adjacent ones per vector."""
    step, z, y, x, lane = sch.split(loop, [None, threads.z, threads.y, threads.x, width])
    for part, index in ((z, Z), (y, Y), (x, X)):
        sch.bind(part, index)
    if width > 1:
        sch.vectorize(lane)
    if sch.extent(step) <= MOST_UNROLLED:
        sch.unroll(step)


def run_epilogue(k: Matmul, sch: Schedule, block: str, at: LoopRef, threads: BlockDim) -> None:
    """Compute the epilogue of a tile of sums in shared memory with all threads."""
    loops = below(sch, block, at)
    if k.result.last == "m":
        loops.reverse()
        sch.reorder(*loops)
    divide_among_threads(sch, sch.fuse(*loops), threads, k.result.vector)


def split_tiles(
    k: Matmul, sch: Schedule, parts: MatmulBlocks, c: Choices, threads: BlockDim, scope: str
) -> tuple[str, LoopRef]:
    """Divide the tiles of a split depth among blocks, and sum their parts as ``join`` says.

    Returns the block that stores a part's sums, which are made in ``scope``, and the loop in which
    one block of threads does this.
    """
    if c["join"] != APART:
        tiles = _join_split_depth(k, sch, parts, c, threads)
        store = sch.cache_write(parts.product, 0, scope).name
        return store, _part_loop(sch, store, tiles, c)
    _reduce_split_depth(k, sch, parts)
    store = sch.cache_write(parts.product, 0, scope).name
    *outer, m, n = sch.get_loops(store)
    return store, spread_tiles(sch, sch.fuse(*outer), m, n, c)


def _reduce_split_depth(k: Matmul, sch: Schedule, parts: MatmulBlocks) -> None:
    """Make a launch that sums the parts of a split depth in order and runs the epilogue."""
    assert parts.total is not None
    b, m, n = result_loops(k, sch, parts.last)
    outer = [x for x in (b, m, n) if x is not None]
    if k.result.last == "m":
        outer[-2:] = [n, m]
        sch.reorder(*outer)
    outer[-1], lane = sch.split(outer[-1], [None, k.result.vector])
    flat = sch.fuse(*outer)
    block, thread = sch.split(flat, [None, even_threads(sch.extent(flat))])
    sch.bind(block, BLOCKS)
    sch.bind(thread, X)
    _sum_parts(k, sch, parts.total, thread, lane)


def _join_split_depth(
    k: Matmul, sch: Schedule, parts: MatmulBlocks, c: Choices, threads: BlockDim
) -> LoopRef:
    """Let one block of a tile sum the parts of its depth in order, and run the epilogue.

    Returns the loop over tiles, in which the blocks of the parts are yet to be computed.
    """
    assert parts.total is not None
    b, m, n = result_loops(k, sch, parts.last)
    at = spread_tiles(sch, b, m, n, c)
    loops = below(sch, parts.last, at)
    if k.result.last == "m":
        loops.reverse()
        sch.reorder(*loops)
    loops[-1], lane = sch.split(loops[-1], [None, k.result.vector])
    step, z, y, x = sch.split(sch.fuse(*loops), [None, threads.z, threads.y, threads.x])
    for part, index in ((z, Z), (y, Y), (x, X)):
        sch.bind(part, index)
    _sum_parts(k, sch, parts.total, x, lane)
    if sch.extent(step) * int(c["split"]) <= MOST_LOADS:
        sch.unroll(step)
    return at


def _part_loop(sch: Schedule, block: str, at: LoopRef, c: Choices) -> LoopRef:
    """Compute the parts of a tile in the loop over tiles, each by a block of threads.

    Returns the loop over parts.
    """
    axes = len(sch.block(block).axes)
    tile = int(c["tile_m"]), int(c["tile_n"])
    sch.compute_at(block, at, False, (*(1,) * (axes - 2), *tile))
    part = below(sch, block, at)[0]
    bind_parts(sch, part, PART, c)
    return part


def _sum_parts(k: Matmul, sch: Schedule, total: str, thread: LoopRef, lane: LoopRef) -> None:
    """Sum what a thread needs of the parts in its registers, a vector of ``lane`` at a time."""
    sch.compute_at(total, thread)
    sch.set_scope(total, 0, "register")
    *wide, part = below(sch, total, thread)
    if wide:
        sch.reorder(part, *wide)
    init = sch.decompose_reduction(total, part)
    sch.unroll(part)
    if k.result.vector > 1:
        for x in (lane, *wide, *below(sch, init, thread)):
            sch.vectorize(x)


def pack(sch: Schedule, block: str, target: Target) -> None:
    """Make a launch that packs an operand for the product."""
    info = describe(sch.block(block))
    across = find_transpose(info)
    if across is not None:
        transpose_sketch(across, target).apply_default(sch)
        return
    loop = fused(sch, sch.get_loops(block))
    assert loop is not None
    bind_flat(sch, loop, FLAT)


@cache
def even_threads(count: int) -> int:
    """Return the most threads, up to ``FLAT``, that divide ``count``; whole warps if possible."""
    fits = [n for n in range(1, FLAT + 1) if count % n == 0]
    return max((n for n in fits if n % 32 == 0), default=fits[-1])


def can_copy_ahead(target: Target) -> bool:
    """True if the hardware copies from global to shared memory asynchronously."""
    return target.gpu.sm >= ASYNC_SM
