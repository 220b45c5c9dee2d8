"""The results of a tile of sums in the registers of warp groups: on their way to memory.

Each thread computes the results of the sums that it holds. They go to shared memory in pairs, and
from there to the matrix, as boxes that one thread stores where the hardware can.
"""

from __future__ import annotations

from dataclasses import dataclass

from .....ir.loop.intrinsics import HELD_COLUMNS, HELD_ROWS, WARP
from .....ir.loop.nodes import CHUNK
from .....ir.loop.notes import BULK_COPIES
from .....ir.loop.warpgroups import WARPGROUP
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.lookup import below
from ....space.space import Choices
from ..launches.threads import X, Y, Z
from .matmul import Matmul
from .tiles import BlockDim, MatmulBlocks, result_loops, run_epilogue, spread_tiles

ROWS, COLUMNS = 64, 8  # of a box of sums; a product has the columns of a group
PATTERN = 8 * CHUNK  # bytes of the widest swizzle


@dataclass(frozen=True, slots=True)
class GroupStore:
    """A store of a tile by groups: the loop of a group, that over boxes, and a box's first."""

    at: LoopRef
    each: LoopRef
    box: LoopRef


def divide_store(sch: Schedule, store: str, at: LoopRef, c: Choices, columns: int) -> GroupStore:
    """Divide the tile that a block stores in each iteration of ``at`` among the groups."""
    m, n = below(sch, store, at)[-2:]
    gm, mt, mi = sch.split(m, [int(c["groups_m"]), None, ROWS])
    gn, nt, ni = sch.split(n, [int(c["groups_n"]), None, columns])
    sch.reorder(gm, gn, mt, nt, mi, ni)
    sch.bind(gm, Z)
    sch.bind(gn, Y)
    sch.unroll(mt)
    sch.unroll(nt)
    return GroupStore(gn, nt, mi)


def place_results(
    k: Matmul, sch: Schedule, parts: MatmulBlocks, c: Choices, threads: BlockDim
) -> tuple[GroupStore, LoopRef]:
    """Keep the sums in registers, and store what is made of them by way of shared memory.

    Returns the store to shared memory, in whose groups the product is yet to be computed, and the
    loop in which a block of threads does this.
    """
    copy, multiples = _stage_results(k, sch, parts, c)
    store = sch.cache_write(parts.last, 0, "warpgroup").name
    at = _copy_results(k, sch, copy, c, threads)
    sch.set_scope(parts.product, 0, "warpgroup")
    sch.compute_at(store, at, False, multiples)
    sch.swizzle(store, 0, PATTERN // CHUNK)
    narrow = k.result.dtype.bytes == 2
    group = divide_store(sch, store, at, c, 2 * COLUMNS if narrow else COLUMNS)
    sch.tensorize(group.box, "store_results" if narrow else "store_accumulators")
    sch.compute_at(parts.last, group.each)
    _hold(sch, below(sch, parts.last, group.each))
    return group, at


def place_rows(
    k: Matmul, sch: Schedule, parts: MatmulBlocks, c: Choices, threads: BlockDim
) -> LoopRef:
    """Keep the sums in tensor memory; the block that computes results stores them in shared memory.

    Returns the loop in which a block of threads does this.
    """
    copy, multiples = _stage_results(k, sch, parts, c)
    at = _copy_results(k, sch, copy, c, threads)
    sch.set_scope(parts.product, 0, "tensor")
    sch.compute_at(parts.last, at, False, multiples)
    sch.swizzle(parts.last, 0, PATTERN // CHUNK)
    return at


def _stage_results(
    k: Matmul, sch: Schedule, parts: MatmulBlocks, c: Choices
) -> tuple[str, list[int]]:
    """Let results go through shared memory, in whole tiles; return the block that copies them on,
    and what the extents of a tile are multiples of."""
    tile = {"m": int(c["tile_m"]), "n": int(c["tile_n"])}
    copy = k.result.copy or sch.cache_write(parts.last, 0, "shared").name
    axes = [a.var for a in sch.block(parts.last).axes]
    multiples = [tile.get(_role(k, n), 1) for n in range(len(axes))]
    sch.pad(parts.last, multiples)
    return copy, multiples


def _copy_results(k: Matmul, sch: Schedule, copy: str, c: Choices, threads: BlockDim) -> LoopRef:
    """Copy tiles of results to the matrix, by bulk where possible; return the loop over tiles."""
    b, m, n = result_loops(k, sch, copy)
    at = spread_tiles(sch, b, m, n, c, int(c["turns"]))
    sch.annotate(at, BULK_COPIES.key, 1)
    run_epilogue(k, sch, copy, at, threads)
    return at


def _role(k: Matmul, axis: int) -> str:
    """Return the role of an axis of the block of the results."""
    v = k.result.spatial[axis]
    return next((r for r, own in k.result.axes.items() if v in own), "b")


def _hold(sch: Schedule, loops: list[LoopRef]) -> None:
    """Give each thread of a group the elements of a box that it holds."""
    m, n = loops
    warp, half, row = sch.split(m, [WARPGROUP // WARP, None, HELD_ROWS])
    near, pair, each = sch.split(n, [None, HELD_COLUMNS, 2])
    sch.reorder(warp, row, pair, half, near, each)
    sch.bind(sch.fuse(warp, row, pair), X)
    sch.unroll(half)
    sch.unroll(near)
    sch.vectorize(each)
