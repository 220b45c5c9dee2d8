"""Matrix products on tensor cores: warp tiles, fragments, matrix instructions.

A block of threads copies tiles of the operands into shared memory, several steps ahead; each of its
warps loads fragments of them into registers and multiplies. The sums go through shared memory, so
that the epilogue writes whole rows in vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .....ir.dtypes import DType, f32
from .....ir.loop.forms import IntrinsicDef
from .....ir.loop.fragments import Matrix
from .....ir.loop.intrinsics import TABLE, WARP
from .....ir.loop.nodes import CHUNK
from .....ir.loop.notes import PIPELINE
from .....ir.loop.tensor_memory import TensorMatrix
from .....ir.loop.warpgroups import GroupMatrix
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.lookup import below, read_number
from ....space.space import Choices
from ..launches.threads import Y, Z
from .matmul import Matmul, MatmulOperand
from .tiles import (
    BlockDim,
    MatmulBlocks,
    can_copy_ahead,
    copy_tile,
    copy_width,
    keeps_order,
    make_product,
    pack,
    result_loops,
    run_epilogue,
    split_tiles,
    spread_tiles,
    stage_tile,
    swizzle_chunks,
)

ROWS, COLUMNS = 16, 8  # of the tile of one instruction
BANK_OFFSET = 8  # banks between rows of sums, so that eight rows of a fragment do not conflict


@dataclass(frozen=True, slots=True)
class Core:
    """The matrix instruction for a product, and the layouts of the operands' tiles."""

    name: str
    depth: int
    layouts: tuple[str, str]


def find_core(k: Matmul, target: Target) -> Core | None:
    """Return the matrix instruction of a warp for a product, if the target has one and may use it.

    f32 is rounded to tf32, which a target has to allow.
    """
    return core_of(k, target, lambda row: row.matrix, f32_too=target.tf32)


def core_of(
    k: Matmul,
    target: Target,
    matrix_of: Callable[[IntrinsicDef], Matrix | GroupMatrix | TensorMatrix | None],
    f32_too: bool,
) -> Core | None:
    """Return the first instruction of the table that multiplies such operands; None without one.

    ``matrix_of`` gives what an intrinsic multiplies, if it is one of the wanted kind.
    """
    for name, row in TABLE.items():
        x = matrix_of(row)
        if x is None or not row.on(target.gpu) or (x.operands == f32 and not f32_too):
            continue
        if (*x.types, x.sums) == (k.left.dtype, k.right.dtype, k.sums):
            return Core(name, x.k, (layout_of(k.left, "m"), layout_of(k.right, "n")))
    return None


def layout_of(x: MatmulOperand, row: str) -> str:
    """Return the layout of a tile: as in memory, but a word of bytes has neighbors in depth."""
    return f"k{row}" if x.transposed and x.dtype.bytes > 1 else f"{row}k"


def apply_mma(k: Matmul, core: Core, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule a product on tensor cores."""
    sides = sides_of(k, core, c)
    parts = make_product(k, sch, c, (sides[0].layout, sides[1].layout))
    threads = BlockDim(int(c["warps_m"]), int(c["warps_n"]), WARP)
    store, at = place_sums(k, sch, parts, c, threads, "warp")
    step = _warp_tiles(core, sch, parts.product, store, at, c)
    tiles = [
        _fragments(core, sch, parts.product, block, side, step)
        for block, side in zip((parts.left, parts.right), sides, strict=True)
    ]
    *_, box, _, _ = below(sch, parts.product, step)
    sch.tensorize(box, core.name)
    ahead = int(c["stages"]) > 1
    for block, side in zip(tiles, sides, strict=True):
        _spread_banks(sch, block, side.layout, side.x.dtype, c)
        early = ahead and can_copy_ahead(target)
        copy_tile(sch, block, step, side.x, side.layout, threads, early)
    if ahead:
        sch.annotate(step, PIPELINE.key, int(c["stages"]))
    if parts.total is None:
        run_epilogue(k, sch, parts.last, at, threads)
    for block, x, side in zip((parts.left, parts.right), (k.left, k.right), sides, strict=True):
        if side.packed and not x.frozen:
            pack(sch, block, target)


def place_sums(
    k: Matmul, sch: Schedule, parts: MatmulBlocks, c: Choices, threads: BlockDim, scope: str
) -> tuple[str, LoopRef]:
    """Make the sums in ``scope``, and store them in shared memory or as parts of a split depth.

    Returns the block that stores them, and the loop in which a block of threads does this.
    """
    if parts.total is not None:
        return split_tiles(k, sch, parts, c, threads, scope)
    b, m, n = result_loops(k, sch, parts.last)
    at = spread_tiles(sch, b, m, n, c)
    sch.set_scope(parts.product, 0, "shared")
    store = sch.cache_write(parts.product, 0, scope).name
    sch.compute_at(store, at, False, (1, int(c["tile_m"]), int(c["tile_n"])))
    sch.storage_align(store, 0, 1, WARP, BANK_OFFSET)
    return store, at


@dataclass(frozen=True, slots=True)
class Side:
    """An operand: the layout of its tiles, and the intrinsic that loads their fragments."""

    x: MatmulOperand
    layout: str
    packed: bool
    load: str


def sides_of(k: Matmul, core: Core, c: Choices) -> tuple[Side, Side]:
    """Return the two operands; with ``pack``, those that are slow to copy are packed ahead.

    A packed operand has the depth last, padded to whole tiles.
    """
    left, right = (
        _side(x, layout, bool(c["pack"]), load)
        for x, layout, load in zip(
            (k.left, k.right), core.layouts, ("load_matrix_a", "load_matrix_b"), strict=True
        )
    )
    return left, right


def _side(x: MatmulOperand, layout: str, may_pack: bool, load: str) -> Side:
    if not (may_pack and is_slow(x, layout)):
        return Side(x, layout, False, load)
    row = layout.replace("k", "")
    width = CHUNK // x.dtype.bytes
    return Side(replace(x, across=1, along=width, plain=True), f"{row}k", True, load)


def is_slow(x: MatmulOperand, layout: str) -> bool:
    """True if a tile cannot be copied in its memory order by vectors of full width."""
    straight = keeps_order(x, layout)
    return not straight or copy_width(x, straight) * x.dtype.bytes < CHUNK


def _warp_tiles(
    core: Core, sch: Schedule, product: str, store: str, at: LoopRef, c: Choices
) -> LoopRef:
    """Divide a tile among the warps, and the depth into steps; return the loop over steps."""
    m, n = below(sch, store, at)[-2:]
    wm, mt, mi = sch.split(m, [int(c["warps_m"]), None, ROWS])
    wn, nt, ni = sch.split(n, [int(c["warps_n"]), None, COLUMNS])
    sch.reorder(wm, wn, mt, nt, mi, ni)
    sch.bind(wm, Z)
    sch.bind(wn, Y)
    sch.compute_at(product, wn)
    sch.tensorize(mi, "store_matrix")
    m, n, depth = below(sch, product, wn)
    pm, pmi = sch.split(m, [None, ROWS])
    pn, pni = sch.split(n, [None, COLUMNS])
    step, part, di = sch.split(depth, [None, int(c["tile_k"]) // core.depth, core.depth])
    sch.reorder(step, part, pm, pn, pmi, pni, di)
    init = sch.decompose_reduction(product, step)
    *zeros, zero, _ = below(sch, init, wn)
    sch.tensorize(zero, "zero_matrix")
    for loop in (mt, nt, part, pm, pn, *zeros):
        sch.unroll(loop)
    return step


def _fragments(
    core: Core, sch: Schedule, product: str, operand: str, side: Side, step: LoopRef
) -> str:
    """Stage an operand's tile in shared memory and in the warps' registers before its use.

    Returns the block of the copy to shared memory.
    """
    part = below(sch, product, step)[0]
    tile = stage_tile(sch, product, operand, side.packed)
    copy = fragments_of(sch, product, tile)
    sch.compute_at(copy, part)
    sch.compute_at(tile, step)
    load_fragments(sch, copy, part, side.load, side.layout, core.depth)
    return tile


def fragments_of(sch: Schedule, product: str, tile: BlockRef | str) -> BlockRef:
    """Copy a tile in shared memory to the registers of the warp that multiplies it."""
    buffer = sch.block(tile).writes[0].buffer
    return sch.cache_read(product, read_number(sch, product, buffer), "warp")


def load_fragments(
    sch: Schedule, copy: BlockRef, at: LoopRef, load: str, layout: str, depth: int
) -> None:
    """Load fragments of 16 rows (or columns) and ``depth`` terms each; the loops are unrolled."""
    i, j = below(sch, copy, at)[-2:]
    rows, columns = (depth, ROWS) if layout[0] == "k" else (ROWS, depth)
    outer_i, outer_j, box, _ = sch.tile(i, j, rows, columns)
    sch.tensorize(box, load)
    sch.unroll(outer_i)
    sch.unroll(outer_j)


def _spread_banks(sch: Schedule, block: str, layout: str, dtype: DType, c: Choices) -> None:
    """Lay out a tile so that the rows of a fragment start in different banks.

    Words that stand with the depth first are loaded one by one: four rows of eight.
    """
    if is_padded(layout, dtype):
        sch.storage_align(block, 0, 1, WARP, BANK_OFFSET)
        return
    if chunks := swizzle_of(layout, dtype, c):
        sch.swizzle(block, 0, chunks)


def swizzle_of(layout: str, dtype: DType, c: Choices) -> int:
    """Return the chunks of the widest swizzle for the rows of an operand's tile."""
    return swizzle_chunks(int(c[f"tile_{layout[1]}"]) * dtype.bytes)


def is_padded(layout: str, dtype: DType) -> bool:
    """True if the rows of a tile are padded rather than swizzled."""
    return layout[0] == "k" and dtype.bytes == 4
