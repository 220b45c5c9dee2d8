"""Products of f32 as products of bytes, for processors that multiply four of these in each lane.

``dot(f32, constant)  ->  sum over blocks of (dot(codes, codes) * scales)``, where the target's
accuracy allows the rounding of both operands to 8 bits, with a scale for each block of terms of a
row and of a column. It takes a pass over the rows, so there must be many columns to use it.
"""

from __future__ import annotations

from .....accuracy import byte_dot
from .....target import Target
from ....nodes import HloModule, Instruction
from ....rewrite import map_computations, rebuild
from ..blocks.products import BlockedWeight, product_in_blocks, takes_blocks
from ..narrow.quantize import refusal, to_blocks
from ..narrow.report import NarrowWeight

FORM, BITS, BLOCK = "int8", 8, 128

FEWEST, LEAST_ROWS = 256, 16
"""Columns and terms, and rows, of a product that is worth a pass over its rows."""


def byte_products(
    module: HloModule, target: Target, weights: str | None = None
) -> tuple[HloModule, tuple[NarrowWeight, ...]]:
    """Return an optimized module that multiplies bytes, and what became of each weight.

    The module itself where ``byte_dot`` says that none of its products is to.
    """
    if byte_dot(target, weights) is None:
        return module, ()
    known: dict[Instruction, BlockedWeight | None] = {}
    rows: list[NarrowWeight] = []

    def rule(i: Instruction) -> Instruction | None:
        if not _gains(i):
            return None
        x, w = i.operands
        if w not in known:
            known[w], row = _coded(i, w)
            rows.append(row)
        weight = known[w]
        return None if weight is None else product_in_blocks(x, weight, True)

    new = map_computations(module, lambda c: rebuild(c, rule))
    return new, tuple(rows)


def _gains(i: Instruction) -> bool:
    if not takes_blocks(i) or i.operands[1].opcode != "constant":
        return False
    return i.array.dims[0] >= LEAST_ROWS and min(i.operands[1].array.dims) >= FEWEST


def _coded(product: Instruction, w: Instruction) -> tuple[BlockedWeight | None, NarrowWeight]:
    """Return a weight in blocks, and its row of the report; None if it has no codes."""
    values, before = w.attrs["literal"], w.array.bytes
    if why := refusal(values):
        return None, NarrowWeight(product.name, w.array.dims, before, before, kept=why)
    blocks, largest, relative = to_blocks(values, BITS, BLOCK)
    sizes = w.array.dims, before, blocks.nbytes
    return BlockedWeight(blocks), NarrowWeight(product.name, *sizes, largest, relative, FORM)
