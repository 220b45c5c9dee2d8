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
from ....space.lookup import below, read_number
from ....space.space import Choices
from ..launches.threads import X, Y, Z
from .matmul import Matmul
from .mma import Core, core_of, place_sums
from .results import place_rows
from .wgmma import GroupProduct, wide_product

STRIP = max(HELD)  # columns that a thread holds at once


def find_tensor_core(k: Matmul, target: Target) -> Core | None:
    """Return a product of any width with sums in tensor memory; None if the target has none.

    f32 is left out, as for warp groups.
    """
    return core_of(k, target, lambda row: row.product, f32_too=False)


def apply_tcgen05(k: Matmul, core: Core, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule a product with its sums in tensor memory."""
    p = GroupProduct.begin(k, core, sch, c, target, LANES)
    if c["results"]:
        at = place_rows(k, sch, p.parts, c, p.threads)
        held, dtype = p.parts.last, k.result.dtype
    else:
        held, at = place_sums(k, sch, p.parts, c, p.threads, "tensor")
        dtype = k.sums
    _hold_rows(sch, held, p.parts.product, at, c, CHUNK // dtype.bytes)
    step, init = p.steps(at, LANES)
    strip, row, _ = below(sch, init, at)
    sch.tensorize(row, "zero_tensor")
    sch.unroll(strip)
    p.finish(at, step, wide_product(core, int(c["tile_n"])))


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
    held = sch.cache_read(block, read_number(sch, block, sums), "register").name
    sch.compute_at(held, nt)
    sch.tensorize(below(sch, held, nt)[-1], "load_tensor")
    outer, inner = sch.split(ni, [None, width])
    sch.vectorize(inner)
    for loop in (mt, nt, outer):
        sch.unroll(loop)
