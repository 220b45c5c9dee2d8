"""Matrix products without tensor cores: a small tile of sums in the registers of every thread.

A block of threads copies tiles of both operands into shared memory, depth first; at each step of
the depth a thread loads a few rows of one and a few columns of the other, in whole vectors, and
computes their outer product.
"""

from __future__ import annotations

from .....ir.dtypes import f32
from .....ir.loop.notes import PIPELINE
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.lookup import below, read_number
from ....space.space import Choices
from ..launches.machine import WIDEST
from ..launches.threads import X, Y
from .matmul import Matmul, MatmulOperand
from .tiles import (
    BlockDim,
    MatmulBlocks,
    can_copy_ahead,
    copy_tile,
    make_product,
    result_loops,
    split_tiles,
    spread_tiles,
)

LAYOUTS = ("km", "kn")
PACKED = 4  # neighboring sums of a vector, where an instruction takes two
BANKS = 32
BANK_OFFSET = 4  # padding of the rows of a tile that the copy transposes, in elements


def threads_of(c: Choices) -> BlockDim:
    """Return the threads of a block: one for each small tile."""
    return BlockDim(1, int(c["tile_m"]) // int(c["rows"]), int(c["tile_n"]) // int(c["columns"]))


def apply_simt(k: Matmul, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule a product on the ordinary cores."""
    parts = make_product(k, sch, c, LAYOUTS)
    if parts.total is None:
        b, m, n = result_loops(k, sch, parts.last)
        out, vector, last = parts.last, k.result.vector, k.result.last
        sch.set_scope(parts.product, 0, "register")
        at = spread_tiles(sch, b, m, n, c)
    else:
        out, at = split_tiles(k, sch, parts, c, threads_of(c), "register")
        vector, last = 4, "n"
    thread = _thread_tiles(sch, out, at, c, vector, last)
    axes = len(sch.block(parts.product).axes)
    rows, columns = int(c["rows"]), int(c["columns"])
    sch.compute_at(parts.product, thread, False, (1, rows, columns, *(1,) * (axes - 3)))
    packed = target.gpu.packed_f32 and sch.block(parts.product).writes[0].buffer.dtype == f32
    step = _sums(k, sch, parts, thread, c, PACKED if packed else 1)
    ahead = int(c["stages"]) > 1
    for block, x, layout in zip((parts.left, parts.right), (k.left, k.right), LAYOUTS, strict=True):
        copy_tile(sch, block, step, x, layout, threads_of(c), ahead and can_copy_ahead(target))
        if not x.transposed:
            sch.storage_align(block, 0, 1, BANKS, BANK_OFFSET * max(1, 4 // x.dtype.bytes))
    if ahead:
        sch.annotate(step, PIPELINE.key, int(c["stages"]))


def _thread_tiles(
    sch: Schedule, out: str, at: LoopRef, c: Choices, vector: int, last: str
) -> LoopRef:
    """Divide a tile of the result among the threads; return the loop over threadIdx.x."""
    m, n = below(sch, out, at)
    y, m = sch.split(m, [None, int(c["rows"])])
    x, n = sch.split(n, [None, int(c["columns"])])
    if last == "m":
        m, n = n, m
    sch.reorder(y, x, m, n)
    sch.bind(y, Y)
    sch.bind(x, X)
    vector = min(vector, sch.extent(n))
    if vector > 1:
        n, lane = sch.split(n, [None, vector])
        sch.vectorize(lane)
    sch.unroll(m)
    sch.unroll(n)
    return x


def _sums(
    k: Matmul, sch: Schedule, parts: MatmulBlocks, thread: LoopRef, c: Choices, lanes: int
) -> LoopRef:
    """Split the depth into steps, with the small tile innermost; return the loop over steps.

    Where ``lanes`` divide the columns, so many neighbors are added as one vector.
    """
    m, n, depth = below(sch, parts.product, thread)
    step, at = sch.split(depth, [None, int(c["tile_k"])])
    sch.reorder(step, at, m, n)
    for operand, x in ((parts.left, k.left), (parts.right, k.right)):
        _stage_operand(sch, parts.product, operand, x, step, at)
    init = sch.decompose_reduction(parts.product, step)
    if lanes > 1 and int(c["columns"]) % lanes == 0:
        n, lane = sch.split(n, [None, lanes])
        sch.vectorize(lane)
    for loop in (at, m, n, *below(sch, init, thread)):
        sch.unroll(loop)
    return step


def _stage_operand(
    sch: Schedule, product: str, operand: str, x: MatmulOperand, step: LoopRef, at: LoopRef
) -> None:
    """Copy an operand's tile to shared memory, and a thread's part of it to registers."""
    sch.set_scope(operand, 0, "shared")
    buffer = sch.block(operand).writes[0].buffer
    copy = sch.cache_read(product, read_number(sch, product, buffer), "register")
    sch.compute_at(copy, at)
    sch.compute_at(operand, step)
    (loop,) = below(sch, copy, at)
    width = min(sch.extent(loop), WIDEST // x.dtype.bytes)
    outer, lane = sch.split(loop, [None, width])
    sch.unroll(outer)
    sch.vectorize(lane)
