"""How products of warp groups are scheduled: four warps multiply tiles from shared memory.

As on a single warp's cores, a block of threads copies tiles of the operands into shared memory,
several steps ahead. A product is under way while the copies of a later step begin; it is waited for
one step later. The sums go through shared memory, so that the epilogue writes whole rows; or each
thread computes the results of its own sums, and these go through shared memory, from where one
thread starts bulk copies.
"""

from __future__ import annotations

from collections.abc import Callable

from .....ir.dtypes import DType, f32
from .....ir.loop.forms import IntrinsicDef
from .....ir.loop.intrinsics import TABLE
from .....ir.loop.nodes import CHUNK
from .....ir.loop.notes import BULK_COPIES, PIPELINE
from .....ir.loop.tensor_memory import TensorMatrix
from .....ir.loop.warpgroups import WARPGROUP, GroupMatrix
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.lookup import below
from ....space.space import Choices
from .matmul import Matmul
from .mma import Core, Side, layout_of, place_sums, sides_of
from .results import COLUMNS, ROWS, divide_store, place_results
from .tiles import (
    BlockDim,
    MatmulBlocks,
    copy_tile,
    make_product,
    pack,
    run_epilogue,
)

PANEL = 64  # two-byte columns of a turned tile that lie together


def find_group_core(k: Matmul, target: Target) -> Core | None:
    """Return a product of warp groups for a product, of any width; None if the target has none."""
    return find_shared_core(k, target, lambda row: row.group)


def find_shared_core(
    k: Matmul,
    target: Target,
    product_of: Callable[[IntrinsicDef], GroupMatrix | TensorMatrix | None],
) -> Core | None:
    """Return a product whose operands stay in shared memory; None if the target has none.

    ``product_of`` gives what an intrinsic multiplies, if it is of the kind that is asked for.
    """
    for name, row in TABLE.items():
        x = product_of(row)
        if x is None or not row.on(target.gpu):
            continue
        if (*x.types, x.sums) != (k.left.dtype, k.right.dtype, k.sums):
            continue
        if x.operands == f32:  # it would cut operands off that `-tf32=1` promises to round
            continue
        return Core(name, x.k, (layout_of(k.left, "m"), layout_of(k.right, "n")))
    return None


def apply_wgmma(k: Matmul, core: Core, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule a product on the cores of warp groups."""
    sides = sides_of(k, core, c)
    parts = make_product(k, sch, c, (sides[0].layout, sides[1].layout))
    threads = BlockDim(int(c["groups_m"]), int(c["groups_n"]), WARPGROUP)
    if c["results"]:
        group, at = place_results(k, sch, parts, c, threads)
    else:
        store, at = place_sums(k, sch, parts, c, threads, "warpgroup")
        group = divide_store(sch, store, at, c, COLUMNS)
        sch.tensorize(group.box, "store_accumulators")
    step = _group_tiles(core, sch, parts.product, group.at, c)
    copy_operands(k, sides, sch, parts, step, c, threads, target)
    sch.tensorize(below(sch, parts.product, step)[2], product_name(core, c))
    if c["copiers"]:
        sch.specialize(step, int(c["copiers"]))
    if parts.total is None and not c["results"]:
        run_epilogue(k, sch, parts.last, at, threads)


def copy_operands(
    k: Matmul,
    sides: tuple[Side, Side],
    sch: Schedule,
    parts: MatmulBlocks,
    step: LoopRef,
    c: Choices,
    threads: BlockDim,
    target: Target,
) -> None:
    """Copy the operands' tiles of each step into swizzled shared memory, some steps ahead."""
    for block, side, operand in zip(
        (parts.left, parts.right), sides, (k.left, k.right), strict=True
    ):
        tile = _shared_tile(sch, parts.product, block, side.packed)
        sch.compute_at(tile, step)
        sch.swizzle(tile, 0, swizzle_of(side.layout, side.x.dtype, c))
        copy_tile(sch, tile, step, side.x, side.layout, threads, int(c["stages"]) > 1)
        if side.packed and not operand.frozen:
            pack(sch, block, target)
    if int(c["stages"]) > 1:
        sch.annotate(step, PIPELINE.key, int(c["stages"]))
    if c["bulk"]:
        sch.annotate(step, BULK_COPIES.key, 1)


def product_name(core: Core, c: Choices) -> str:
    """Return the instruction for as many columns as a group has."""
    wide = int(c["tile_n"]) // int(c["groups_n"])
    shape, kinds = core.name.removeprefix("wgmma.").split(".", 1)
    return f"wgmma.m64n{wide}k{shape.rpartition('k')[2]}.{kinds}"


def swizzle_of(layout: str, dtype: DType, c: Choices) -> int:
    """Return the chunks of the widest pattern that the rows of a tile are made of."""
    row = int(c[f"tile_{layout[1]}"]) * dtype.bytes
    return next((n for n in (8, 4, 2) if row % (n * CHUNK) == 0), 0)


def _group_tiles(core: Core, sch: Schedule, product: str, gn: LoopRef, c: Choices) -> LoopRef:
    """Compute a group's tile, and divide the depth into steps; return the loop over steps."""
    sch.compute_at(product, gn)
    m, n, depth = below(sch, product, gn)
    pm, pmi = sch.split(m, [None, ROWS])
    step, part, di = sch.split(depth, [None, int(c["tile_k"]) // core.depth, core.depth])
    sch.reorder(step, part, pm, pmi, n, di)
    init = sch.decompose_reduction(product, step)
    zm, zmi, zn = below(sch, init, gn)
    zn, zni = sch.split(zn, [None, COLUMNS])
    sch.reorder(zm, zn, zmi, zni)
    sch.tensorize(zmi, "zero_accumulators")
    for loop in (part, pm, zm, zn):
        sch.unroll(loop)
    return step


def _shared_tile(sch: Schedule, product: str, block: str, packed: bool) -> str:
    """Put an operand's copy into shared memory, or a copy of that; return its block."""
    if not packed:
        sch.set_scope(block, 0, "shared")
        return block
    buffer = sch.block(block).writes[0].buffer
    at = [r.buffer for r in sch.block(product).reads].index(buffer)
    return sch.cache_read(product, at, "shared").name
