"""Products with weights that have a scale for each block of their rows.

``dot(x, (codes - zero) * scale)``  ->  ``sum over blocks of (dot(x, codes) - sum(x) * zero) *
scale``: each block is a product of its own, which reads the codes as they are, two of 4 bits in a
byte. FuseOps makes one kernel of that. Where ``x`` has codes of 8 bits with a scale for each block
and row, or the target's accuracy allows to give it such, the product is of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .....arrays import Array
from .....dtypes import bf16, f16, f32, s8, s32, u8
from ....nodes import HloModule, Instruction, Shape
from ....patterns import build, nibbles
from ....patterns.match import all_static, is_pointwise
from ....rewrite import constant, make, map_computations, rebuild
from ...canonical.dot import largest_over, sum_over
from .codes import Blocks, in_blocks

LARGEST = 127
"""The largest code of a row's block, and the smallest is its negative."""


def blocked_products(
    module: HloModule, rounds: bool = False, excess_precision: bool = True
) -> HloModule:
    """Return an optimized module that multiplies the codes of such weights, block by block.

    Rows become bytes if it ``rounds``. With ``excess_precision`` weights of floats of 16 bits are
    taken, too, whose products are then of f32.
    """
    known: dict[Instruction, BlockedWeight | None] = {}

    def rule(i: Instruction) -> Instruction | None:
        if not takes_blocks(i, excess_precision):
            return None
        x, w = build.convert(i.operands[0], f32), i.operands[1]
        if w not in known:
            blocks = in_blocks(w, excess_precision)
            known[w] = None if blocks is None else BlockedWeight(blocks)
        weight = known[w]
        if weight is None:
            return None
        return build.convert(product_in_blocks(x, weight, rounds), i.array.dtype)

    return map_computations(module, lambda c: rebuild(c, rule))


def takes_blocks(i: Instruction, narrow: bool = False) -> bool:
    """True for a product of f32 whose right operand may be in blocks: ``[m, k] x [k, n]``.

    One of floats of 16 bits may be ``narrow``.
    """
    if i.opcode != "dot" or i.array.rank != 2 or not all_static(i):
        return False
    kinds = {i.array.dtype, *(o.array.dtype for o in i.operands)}
    return kinds <= ({f32, f16, bf16} if narrow else {f32})


def has_byte_rows(module: HloModule) -> bool:
    """True if some product of a module multiplies codes in blocks by rows of bytes."""
    products = (i for c in module.computations for i in c.instructions if i.opcode == "dot")
    return any([o.array.dtype for o in i.operands] == [s8, u8] for i in products)


def product_in_blocks(x: Instruction, weight: BlockedWeight, rounds: bool) -> Instruction:
    """Return ``x[m, k]`` times the weights, as a sum over blocks.

    If it ``rounds``, ``x`` becomes codes of 8 bits with a scale for each block and row, unless it
    has such already.
    """
    apart = _in_blocks(x, weight.blocks)
    rows = _given(x, weight.blocks) or (_coded(apart) if rounds else _Rows(apart, None))
    return _product(rows, weight)


@dataclass(frozen=True, slots=True)
class BlockedWeight:
    """Weights in blocks, with the constants that products of them share."""

    blocks: Blocks
    made: dict[str, Instruction] = field(default_factory=dict)

    @property
    def scales(self) -> Instruction:
        """The scales ``[block, column]``."""
        return self._constant("scales", self.blocks.scale)

    def codes(self, signed: bool) -> Instruction:
        """Return the codes ``[block, term, column]``; rows beyond the last are 0.

        Those of 8 bits are s8 without zero points if they may be ``signed``.
        """
        w = self.blocks
        centered = w.centered() if signed and not w.packs else None
        codes = w.codes if centered is None else centered
        (terms, columns), count = codes.shape, len(w.scale)
        filled = np.pad(codes, ((0, count * w.size - terms), (0, 0)))
        apart = filled.reshape(count, w.size, columns)
        if w.packs:
            return nibbles.unpacked(self._constant("codes", nibbles.packed(apart)))
        return self._constant("codes" if centered is None else "signed_codes", apart)

    def _constant(self, name: str, value: Array) -> Instruction:
        if name not in self.made:
            self.made[name] = constant(value, name=name)
        return self.made[name]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The left operand ``codes * scale`` as ``[block, row, term]``, a scale for each block and row.

    ``scale`` is ``[block, row]``, or None where the codes are the operand itself.
    """

    codes: Instruction
    scale: Instruction | None


def _in_blocks(x: Instruction, w: Blocks) -> Instruction:
    """Return ``x[m, k]`` as ``[block, row, term]``; the last block is filled with zeros."""
    (rows, terms), count = x.array.dims, len(w.scale)
    filled = build.extended(x, 1, count * w.size - terms)
    return build.transpose(build.reshape(filled, (rows, count, w.size)), (1, 0, 2))


def _coded(x: Instruction) -> _Rows:
    """Return rows as codes of 8 bits, scaled so that the largest of each block is exact."""
    dims = x.array.dims
    top = largest_over(build.pointwise("abs", x), (2,))
    most, zero = (build.full(n, f32, dims[:2]) for n in (LARGEST, 0))
    empty = build.pointwise("compare", top, zero, direction="EQ", type="FLOAT")
    factor = build.pointwise("select", empty, zero, build.pointwise("divide", most, top))
    whole = build.pointwise("multiply", x, build.broadcast(factor, (0, 1), dims))
    codes = build.convert(build.pointwise("round-nearest-even", whole), s8)
    return _Rows(codes, build.pointwise("divide", top, most))


def _given(x: Instruction, w: Blocks) -> _Rows | None:
    """Return rows that are codes of s8 with a scale for each block; None if they are not."""
    (rows, terms), count = x.array.dims, len(w.scale)
    while x.opcode == "reshape":
        x = x.operands[0]
    whole = terms == count * w.size and x.array.dims[-1] == w.size
    if x.opcode != "multiply" or not whole or not rows:
        return None
    for wide, spread in (x.operands, x.operands[::-1]):
        if wide.opcode != "convert" or spread.opcode != "broadcast":
            continue
        codes, scale = wide.operands[0], spread.operands[0]
        if codes.array.dtype == s8 and scale.array.size == rows * count:
            turn = _BlocksFirst(rows, count)
            return _Rows(turn.turned(codes), turn.turned(scale))
    return None


@dataclass(frozen=True, slots=True)
class _BlocksFirst:
    """Arrays of ``[row, block, ..]`` made as ``[block, row, ..]``, with what computes them.

    So that what makes the codes of rows writes them in the order in which blocks are multiplied.
    """

    rows: int
    count: int
    known: dict[Instruction, Instruction] = field(default_factory=dict)

    def turned(self, x: Instruction) -> Instruction:
        """Return ``x`` of any leading dimensions, whose elements are rows and blocks of them."""
        if x not in self.known:
            self.known[x] = self._computed(x)
        return self.known[x]

    def _computed(self, x: Instruction) -> Instruction:
        dims = self._dims(x.array)
        match x.opcode:
            case "broadcast" if not x.attrs["dimensions"]:
                return build.broadcast(x.operands[0], (), dims)
            case "broadcast" if x.operands[0].array.size == self.rows * self.count:
                return build.broadcast(self.turned(x.operands[0]), (0, 1), dims)
            case "reduce" if self._sums_terms(x):
                operands = self.turned(x.operands[0]), x.operands[1]
                attrs = {**x.attrs, "dimensions": (2,)}
                return make("reduce", Shape(x.array.dtype, dims), operands, **attrs)
            case _ if is_pointwise(x):
                shape = Shape(x.array.dtype, dims)
                return make(x.opcode, shape, map(self.turned, x.operands), **x.attrs)
            case _:
                apart = build.reshape(x, (self.rows, self.count, *dims[2:]))
                return build.transpose(apart, (1, 0, *range(2, len(dims))))

    def _dims(self, shape: Shape) -> tuple[int, ...]:
        terms = shape.size // max(self.rows * self.count, 1)
        return (self.count, self.rows) if terms == 1 else (self.count, self.rows, terms)

    def _sums_terms(self, x: Instruction) -> bool:
        """True for a reduction of the last dimension, which is that of a block's terms."""
        whole = x.operands[0].array
        return x.attrs["dimensions"] == (whole.rank - 1,) and len(x.operands) == 2


def _product(x: _Rows, weight: BlockedWeight) -> Instruction:
    """Return the rows times the weights, as a sum over blocks."""
    (count, rows, _), columns = x.codes.array.dims, weight.blocks.codes.shape[1]
    dims, sums = (count, rows, columns), f32 if x.scale is None else s32
    own, zero = weight.codes(signed=x.scale is None), weight.blocks.zero
    if own.array.dtype == s8:
        zero = np.zeros((1, 1), np.float32)
    if x.scale is None:
        own = build.convert(own, f32)
    total = make("dot", Shape(sums, dims), (x.codes, own), **_EACH_BLOCK)
    scaled = build.convert(total, f32)
    if x.scale is not None:
        scaled = build.pointwise("multiply", scaled, build.broadcast(x.scale, (0, 1), dims))
    if zero.any():
        scaled = build.pointwise("subtract", scaled, _of_zeros(_sums(x), zero, dims))
    scale = build.broadcast(weight.scales, (0, 2), dims)
    return sum_over(build.pointwise("multiply", scaled, scale), (0,))


def _sums(x: _Rows) -> Instruction:
    """Return the sum of each row's block, in f32."""
    if x.scale is None:
        return sum_over(x.codes, (2,))
    return build.pointwise(
        "multiply", build.convert(sum_over(build.convert(x.codes, s32), (2,)), f32), x.scale
    )


def _of_zeros(sums: Instruction, zero: Array, dims: tuple[int, ...]) -> Instruction:
    """Return what zero points add to the products of rows with these sums."""
    if zero.size == 1:
        number = build.full(zero.reshape(()), f32, sums.array.dims)
        return build.broadcast(build.pointwise("multiply", sums, number), (0, 1), dims)
    zeros = build.broadcast(constant(zero, name="zeros"), (0, 2), dims)
    return build.pointwise("multiply", build.broadcast(sums, (0, 1), dims), zeros)


_EACH_BLOCK: Mapping[str, Any] = {
    "lhs_batch_dims": (0,),
    "lhs_contracting_dims": (2,),
    "rhs_batch_dims": (0,),
    "rhs_contracting_dims": (1,),
}
