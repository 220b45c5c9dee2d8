"""Attention on tensor cores: a warp for 16 queries, scores and exponentials in its registers.

The fragments of the queries stay in registers; those of keys and values are loaded from shared
memory (``held``).
"""

from __future__ import annotations

from typing import ClassVar

from .....ir.dtypes import DType, f32
from .....ir.loop.forms import IntrinsicDef
from .....ir.loop.intrinsics import TABLE
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import product_operands
from ....space.attention import Attention, SoftmaxParts, is_full
from ....space.lookup import below
from ....space.space import Choices
from ..products.mma import COLUMNS, ROWS, fragments_of, load_fragments
from .held import HeldAttention

SUMS = 2  # reductions of a softmax: the maximum and the sum


def operands_of(k: Attention, rows: int) -> DType | None:
    """Return the type of both products' operands; None unless threads can hold the exponentials.

    Tiles of ``rows`` queries have to be whole, and rows of scores may have no other reductions than
    those of the softmax. The exponentials become as narrow as the values, so the result has to be
    that narrow, too.
    """
    pairs = [product_operands(x) or () for x in (k.scores, k.values)]
    weights = {b.stores[0].buffer for b in k.stages}
    dtypes = {a.buffer.dtype for pair in pairs for a in pair if a.buffer not in weights}
    dtypes |= {a.buffer.dtype for a in (k.consumer or k.values).stores}
    sums = [b for b in k.stages if b.reduce and not is_full(k, b)]
    if len(sums) != SUMS or len(dtypes) != 1 or k.dtype != f32 or k.queries % rows:
        return None
    (dtype,) = dtypes
    return dtype if dtype.bytes == 2 else None


def attention_core(k: Attention, target: Target) -> IntrinsicDef | None:
    """Return the matrix instruction of both products; None if a warp cannot hold them."""
    dtype = operands_of(k, ROWS)
    for row in TABLE.values():
        x = row.matrix
        if x is not None and x.operands == dtype and x.sums == f32 and row.on(target.gpu):
            return row
    return None


def apply_mma(k: Attention, core: IntrinsicDef, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule an attention on tensor cores with the given decisions."""
    _WarpAttention(k, core, sch, c, target).apply()


class _WarpAttention(HeldAttention):
    """The products by warps."""

    scope: ClassVar[str] = "warp"
    stores_pairs: ClassVar[bool] = False

    def __init__(
        self, k: Attention, core: IntrinsicDef, sch: Schedule, c: Choices, target: Target
    ) -> None:
        super().__init__(k, sch, c, target, int(c["warps"]), 1)
        assert core.matrix is not None
        self.name, self.depth = core.name, core.matrix.k

    def multiply_scores(
        self,
        queries: BlockRef,
        keys: BlockRef,
        layout: str,
        places: tuple[LoopRef, LoopRef],
    ) -> None:
        """Multiply the queries, whose fragments stay, with the keys of a part."""
        k, sch = self.k, self.sch
        warp, inside = places
        name = k.scores.name
        sch.set_scope(queries, 0, "shared")
        sch.set_scope(keys, 0, "shared")
        held = fragments_of(sch, name, queries)
        sch.compute_at(held, warp)
        sch.compute_at(queries, warp)
        step, box = self.tiles(name, inside)
        part = fragments_of(sch, name, keys)
        sch.compute_at(part, step)
        sch.compute_at(keys, inside)
        init = sch.decompose_reduction(name, step)
        sch.tensorize(below(sch, init, inside)[-2], "zero_matrix")
        load_fragments(sch, held, warp, "load_matrix_a", "mk", self.depth)
        load_fragments(sch, part, step, "load_matrix_b", layout, self.depth)
        sch.tensorize(box, self.name)
        self.copy(queries, warp, ahead=False)
        self.copy(keys, inside, ahead=True)

    def multiply_values(self, parts: SoftmaxParts, values: BlockRef, inside: LoopRef) -> None:
        """Multiply the exponentials of a part with its values."""
        sch, name = self.sch, parts.partial[self.k.values.name]
        sch.set_scope(values, 0, "shared")
        step, box = self.tiles(name, inside)
        init = sch.decompose_reduction(name, step)
        self.elements(below(sch, init, inside)[-2:])
        sch.set_scope(name, 0, "warp")
        part = fragments_of(sch, name, values)
        sch.compute_at(part, step)
        sch.compute_at(values, inside)
        load_fragments(sch, part, step, "load_matrix_b", "kn", self.depth)
        sch.tensorize(box, self.name)
        self.copy(values, inside, ahead=True)

    def tiles(self, product: str, inside: LoopRef) -> tuple[LoopRef, LoopRef]:
        """Divide a product into tiles; return the loop over the depth and the tile's outermost."""
        sch = self.sch
        m, n, depth = below(sch, product, inside)[-3:]
        m, row = sch.split(m, [None, ROWS])
        n, column = sch.split(n, [None, COLUMNS])
        step, term = sch.split(depth, [None, self.depth])
        sch.reorder(step, m, n, row, column, term)
        for loop in (step, m, n):
            sch.unroll(loop)
        return step, row
