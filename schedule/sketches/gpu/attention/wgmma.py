"""Attention by products of warp groups: 64 queries for four warps, which all lie in registers.

Queries, keys and values are read from shared memory. The exponentials, as narrow as the values, are
the left operand of the second product as the threads hold them.
"""

from __future__ import annotations

from typing import ClassVar

from .....ir.dtypes import DType, f32
from .....ir.loop.intrinsics import TABLE, WARP
from .....ir.loop.warpgroups import WARPGROUP, GroupMatrix
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.attention import Attention, SoftmaxParts
from ....space.lookup import below
from ....space.space import Choices
from ..products.results import COLUMNS, ROWS
from .held import MULTIPLE, HeldAttention
from .mma import operands_of


def group_cores(k: Attention, target: Target) -> dict[int, str]:
    """Return the products of warp groups for both products, by their number of columns.

    Empty if the target has none, or a group cannot hold the exponentials.
    """
    dtype = operands_of(k, ROWS)
    rows = ((n, r.group) for n, r in TABLE.items() if r.on(target.gpu))
    return {x.n: name for name, x in rows if x is not None and _fits(x, dtype)}


def _fits(x: GroupMatrix, dtype: DType | None) -> bool:
    return x.types == (dtype, dtype) and x.sums == f32


def columns_of(k: Attention) -> int:
    """Return the columns of the product with the values."""
    return -(-k.width // MULTIPLE) * MULTIPLE


def apply_wgmma(
    k: Attention, cores: dict[int, str], sch: Schedule, c: Choices, target: Target
) -> None:
    """Schedule an attention on the cores of warp groups with the given decisions."""
    _GroupAttention(k, cores, sch, c, target).apply()


class _GroupAttention(HeldAttention):
    """The products by warp groups."""

    scope: ClassVar[str] = "warpgroup"
    stores_pairs: ClassVar[bool] = True

    def __init__(
        self, k: Attention, cores: dict[int, str], sch: Schedule, c: Choices, target: Target
    ) -> None:
        super().__init__(k, sch, c, target, int(c["groups"]), WARPGROUP // WARP)
        self.cores = cores
        first = TABLE[next(iter(cores.values()))].group
        assert first is not None
        self.depth = first.k

    def multiply_scores(
        self,
        queries: BlockRef,
        keys: BlockRef,
        layout: str,
        places: tuple[LoopRef, LoopRef],
    ) -> None:
        """Multiply the queries, which stay in shared memory, with the keys of a part."""
        sch, name = self.sch, self.k.scores.name
        unit, inside = places
        sch.set_scope(queries, 0, "shared")
        sch.set_scope(keys, 0, "shared")
        sch.compute_at(queries, unit)
        step, box = self.tiles(name, inside)
        sch.compute_at(keys, inside)
        init = sch.decompose_reduction(name, step)
        self.begin(below(sch, init, inside))
        sch.tensorize(box, self.cores[self.keys])
        self.copy(queries, unit, ahead=False)
        self.copy(keys, inside, ahead=True)

    def begin(self, loops: list[LoopRef]) -> None:
        """Make sums 0 before a product."""
        sch = self.sch
        *_, m, n = loops
        m, row = sch.split(m, [None, ROWS])
        n, column = sch.split(n, [None, COLUMNS])
        sch.reorder(m, n, row, column)
        sch.tensorize(row, "zero_accumulators")
        for loop in (m, n):
            sch.unroll(loop)

    def multiply_values(self, parts: SoftmaxParts, values: BlockRef, inside: LoopRef) -> None:
        """Multiply the exponentials of a part with its values."""
        sch, name = self.sch, parts.partial[self.k.values.name]
        sch.set_scope(values, 0, "shared")
        step, box = self.tiles(name, inside)
        init = sch.decompose_reduction(name, step)
        self.elements(below(sch, init, inside)[-2:])
        sch.set_scope(name, 0, self.scope)
        sch.compute_at(values, inside)
        sch.tensorize(box, self.cores[columns_of(self.k)])
        self.copy(values, inside, ahead=True)

    def tiles(self, product: str, inside: LoopRef) -> tuple[LoopRef, LoopRef]:
        """Divide a product into tiles; return the loop over the depth and a tile's outermost."""
        sch = self.sch
        m, n, depth = below(sch, product, inside)[-3:]
        m, row = sch.split(m, [None, ROWS])
        step, term = sch.split(depth, [None, self.depth])
        sch.reorder(step, m, row, n, term)
        for loop in (step, m):
            sch.unroll(loop)
        return step, row
