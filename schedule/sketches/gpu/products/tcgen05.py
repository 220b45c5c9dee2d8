"""How products with sums in tensor memory are scheduled: one thread multiplies whole tiles.

Tiles of the operands are copied as for warp groups. One thread begins the products of a step, whose
sums are in tensor memory, and all wait for those of the step before. Then each thread loads a row
of sums, or a part of one, into registers; from there they go through shared memory as they are, or
as the results that the thread makes of them.
"""

from __future__ import annotations

from .....ir.loop.nodes import CHUNK
from .....ir.loop.tensor_memory import HELD, LANES
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.lookup import below
from ....space.space import Choices
from ..launches.threads import X, Y, Z
from .matmul import Matmul
from .mma import Core, place_sums, sides_of
from .results import place_rows
from .tiles import BlockDim, make_product, run_epilogue
from .wgmma import copy_operands, find_shared_core

STRIP = max(HELD)  # columns that a thread holds at once


def find_tensor_core(k: Matmul, target: Target) -> Core | None:
    """Return a product of any width with sums in tensor memory; None if the target has none."""
    return find_shared_core(k, target, lambda row: row.product)


def apply_tcgen05(k: Matmul, core: Core, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule a product with its sums in tensor memory."""
    sides = sides_of(k, core, c)
    parts = make_product(k, sch, c, (sides[0].layout, sides[1].layout))
    threads = BlockDim(int(c["groups_m"]), int(c["groups_n"]), LANES)
    if c["results"]:
        at = place_rows(k, sch, parts, c, threads)
        _hold_rows(sch, parts.last, parts.product, at, c, CHUNK // k.result.dtype.bytes)
    else:
        store, at = place_sums(k, sch, parts, c, threads, "tensor")
        _hold_rows(sch, store, parts.product, at, c, CHUNK // k.sums.bytes)
    step = _block_tiles(core, sch, parts.product, at, c)
    copy_operands(k, sides, sch, parts, step, c, threads, target)
    sch.tensorize(below(sch, parts.product, step)[2], instruction_name(core, c))
    if c["copiers"]:
        sch.specialize(step, int(c["copiers"]))
    if parts.total is None and not c["results"]:
        run_epilogue(k, sch, parts.last, at, threads)


def instruction_name(core: Core, c: Choices) -> str:
    """Return the instruction for as many columns as a tile has."""
    shape, kinds = core.name.removeprefix("tcgen05.").split(".", 1)
    return f"tcgen05.m{LANES}n{int(c['tile_n'])}k{shape.rpartition('k')[2]}.{kinds}"


def _hold_rows(
    sch: Schedule, block: str, product: str, at: LoopRef, c: Choices, width: int
) -> None:
    """Give each thread a row of the tile, or a part of one; it loads some columns at a time."""
    m, n = below(sch, block, at)[-2:]
    gm, mt, row = sch.split(m, [int(c["groups_m"]), None, LANES])
    gn, nt, ni = sch.split(n, [int(c["groups_n"]), None, STRIP])
    sch.reorder(gm, gn, row, mt, nt, ni)
    for loop, index in ((gm, Z), (gn, Y), (row, X)):
        sch.bind(loop, index)
    sums = sch.block(product).writes[0].buffer
    which = [r.buffer for r in sch.block(block).reads].index(sums)
    held = sch.cache_read(block, which, "register").name
    sch.compute_at(held, nt)
    sch.tensorize(below(sch, held, nt)[-1], "load_tensor")
    outer, inner = sch.split(ni, [None, width])
    sch.vectorize(inner)
    for loop in (mt, nt, outer):
        sch.unroll(loop)


def _block_tiles(core: Core, sch: Schedule, product: str, at: LoopRef, c: Choices) -> LoopRef:
    """Compute a block's tile, and divide the depth into steps; return the loop over steps."""
    sch.compute_at(product, at)
    m, n, depth = below(sch, product, at)
    pm, pmi = sch.split(m, [None, LANES])
    step, part, di = sch.split(depth, [None, int(c["tile_k"]) // core.depth, core.depth])
    sch.reorder(step, part, pm, pmi, n, di)
    init = sch.decompose_reduction(product, step)
    zm, zmi, _ = below(sch, init, at)
    sch.tensorize(zmi, "zero_tensor")
    for loop in (part, pm, zm):
        sch.unroll(loop)
    return step
