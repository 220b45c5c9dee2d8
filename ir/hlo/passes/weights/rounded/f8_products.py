"""Products of 8-bit floats: a GPU multiplies the codes, and scales the sums afterwards.

``dot(convert(x) * s, convert(w) * t)  ->  dot(x, w) * (s * t)`` for x and w of 8 bits and scalars s
and t, parameters or constants; a convolution likewise. A dot also has scales per row or column,
which follow one by one. The products of codes are exact in f32, as the scaled ones are not. Where
tensor cores do not take such codes, or sum them too coarsely, the operands become f16, which holds
every code; those of few rows or columns stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .....accuracy import tolerance
from .....dtypes import DType, f16, f32
from .....formats import FORMATS
from .....gpus import Gpu
from ....nodes import Computation, HloModule, Instruction, Shape
from ....ops.definition import NarrowPolicy, Pattern
from ....ops.registry import definition
from ....patterns import build
from ....patterns.match import all_static, is_pointwise, is_static, moves
from ....rewrite import make, map_computations, rebuild, users, with_operands

FEWEST = 16
"""Rows or columns of a product, below which no tensor core takes it."""

_STEP = 32  # terms of one instruction, whose sum is rounded (cut, on some GPUs) once
_SCALES = {"multiply": (0, 1), "divide": (0,)}
"""Operations by a scale, and which operands may be the scaled ones."""


def f8_products(module: HloModule, gpu: Gpu, excess_precision: bool = True) -> HloModule:
    """``dot(scaled f8, scaled f8)``  ->  ``scaled dot(f8, f8)``

    Without ``excess_precision`` the factors of a product that the model rounds to fewer than 32
    bits stay as they are.
    """

    def on(c: Computation) -> Computation:
        kept = _kept_as(c)
        return rebuild(c, lambda i: _rewrite(i, gpu, kept, excess_precision))

    return map_computations(module, on)


@dataclass(frozen=True, slots=True)
class CodeScale:
    """A factor, or a divisor, as ``opcode`` says: of rank 0, or one for each index of ``axis``."""

    opcode: str
    value: Instruction
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class ScaledCodes:
    """An array ``codes`` of 8-bit floats times or over some scales, in order."""

    codes: Instruction
    scales: tuple[CodeScale, ...] = ()


def scaled_codes(x: Instruction, excess_precision: bool = True) -> ScaledCodes | None:
    """Return an array as codes and scales; None if it is something else, or rounds in between."""
    if not is_static(x) or not x.operands:
        return None
    inner = x.operands[0]
    if x.opcode == "convert":
        if _is_code(inner):
            return ScaledCodes(inner) if FORMATS.keys() >= {x.array.dtype} else None
        return scaled_codes(inner, excess_precision) if _widens(inner, x.array.dtype) else None
    if moves(x) and isinstance(inner.shape, Shape):
        found = scaled_codes(inner, excess_precision)
        return None if found is None else _moved(x, found)
    if x.array.dtype != f32 and not excess_precision:
        return None
    for n in _SCALES.get(x.opcode, ()):
        scale = _scale(x.opcode, x.operands[1 - n])
        found = scaled_codes(x.operands[n], excess_precision)
        if scale is not None and found is not None:
            return replace(found, scales=(*found.scales, scale))
    return None


def _moved(x: Instruction, found: ScaledCodes) -> ScaledCodes | None:
    """Return what ``x`` does to scaled codes; those with a scale per index are only transposed."""
    scales = found.scales
    if any(s.axis is not None for s in scales):
        order = x.attrs.get("dimensions", ())
        if not definition(x.opcode).permutes:
            return None
        scales = tuple(
            s if s.axis is None else replace(s, axis=order.index(s.axis)) for s in scales
        )
    moved = with_operands(x, (found.codes,))
    shape = Shape(found.codes.array.dtype, x.array.dims)
    return ScaledCodes(replace(moved, shape=shape), scales)


def _is_code(x: Instruction) -> bool:
    """True for floats of 8 bits with a sign, each of which is a number of f16 as well."""
    return is_static(x) and x.array.dtype.bits == 8 and bool(_sign(x.array.dtype))


def _sign(dtype: DType) -> int:
    return FORMATS[dtype].sign if dtype in FORMATS else 0


def _widens(x: Instruction, to: DType) -> bool:
    own = x.array.dtype
    return own.is_float and to.is_float and own.bits <= to.bits and own.bits >= f16.bits


def _scale(opcode: str, x: Instruction) -> CodeScale | None:
    """Return the one number that an array repeats, or one for each index of a dimension."""
    while x.opcode == "convert" or (moves(x) and x.opcode != "broadcast"):
        if not _widens(x.operands[0], x.array.dtype):
            return None
        if x.opcode != "convert" and not x.array.size == x.operands[0].array.size == 1:
            return None
        x = x.operands[0]
    if x.opcode != "broadcast" or not is_static(x):
        return None
    inner, axes = x.operands[0], x.attrs.get("dimensions", ())
    if inner.array.size == 1:
        return CodeScale(opcode, build.reshape(inner, ()))
    return CodeScale(opcode, inner, axes[0]) if len(axes) == 1 else None


def _rewrite(
    i: Instruction, gpu: Gpu, kept: Mapping[str, DType], excess_precision: bool
) -> Instruction | None:
    op = definition(i.opcode)
    if op.narrow is not NarrowPolicy.SUMMED or op.pattern is not Pattern.OUT_FUSABLE:
        return None
    if not all_static(i) or i.array.dtype not in FORMATS or i.array.dtype.bits > f32.bits:
        return None
    sides = [_side(x, excess_precision) for x in i.operands]
    if None in sides or not i.array.size:
        return None
    left, right = (s for s in sides if s is not None)
    scales = _of_result(i, left, right)
    operands = _operands(i, (left.codes, right.codes), gpu, kept[i.name])
    if scales is None or operands is None or (operands == i.operands and i.array.dtype == f32):
        return None
    product = make(i.opcode, Shape(f32, i.array.dims), operands, name=i.name, **i.attrs)
    return build.convert(_scaled(product, scales), i.array.dtype)


def _of_result(
    i: Instruction, left: ScaledCodes, right: ScaledCodes
) -> tuple[CodeScale, ...] | None:
    """Return the scales with the result's axes for the operands'; None if one is summed over."""
    found: list[CodeScale] = []
    batch = i.attrs.get("lhs_batch_dims", ()), i.attrs.get("rhs_batch_dims", ())
    summed = i.attrs.get("lhs_contracting_dims"), i.attrs.get("rhs_contracting_dims")
    first = len(batch[0])
    for n, side in enumerate((left, right)):
        taken = (*batch[n], *(summed[n] or range(side.codes.array.rank)))
        free = tuple(d for d in range(side.codes.array.rank) if d not in taken)
        places = dict(zip(batch[n], range(len(batch[n])), strict=True))
        places |= {d: first + at for at, d in enumerate(free)}
        first += len(free)
        for s in side.scales:
            if s.axis is not None and s.axis not in places:
                return None
            found.append(s if s.axis is None else replace(s, axis=places[s.axis]))
    return tuple(found)


def _side(x: Instruction, excess_precision: bool) -> ScaledCodes | None:
    return ScaledCodes(x) if _is_code(x) else scaled_codes(x, excess_precision)


def _operands(
    i: Instruction, codes: tuple[Instruction, Instruction], gpu: Gpu, kept: DType
) -> tuple[Instruction, ...] | None:
    """Return the operands in the type that the GPU multiplies; None if it has none for them."""
    high = "high" in str(i.attrs.get("operand_precision", ""))
    if not high and all(x.array.dtype.name in gpu.tensor_flops for x in codes):
        steps = math.ceil(definition(i.opcode).terms(i) / _STEP)
        if steps * 2.0 ** (1 - gpu.f8_sums) <= tolerance(kept):
            return codes
    if _is_thin(i):
        return codes
    if f16.name not in gpu.tensor_flops:
        return None
    return tuple(build.convert(x, f16) for x in codes)


def _is_thin(i: Instruction) -> bool:
    columns, batch = i.array.dims[-1], len(i.attrs.get("lhs_batch_dims", ()))
    return min(columns, math.prod(i.array.dims[batch:-1])) < FEWEST


def _scaled(product: Instruction, scales: tuple[CodeScale, ...]) -> Instruction:
    """Return sums of f32 under their scales: the scalars as one, then the others."""
    dims, whole = product.array.dims, _product_of([s for s in scales if s.axis is None])
    if whole is not None:
        product = build.pointwise("multiply", product, build.broadcast(whole, (), dims))
    for s in scales:
        if s.axis is not None:
            each = build.broadcast(build.convert(s.value, f32), (s.axis,), dims)
            product = build.pointwise(s.opcode, product, each)
    return product


def _product_of(scalars: list[CodeScale]) -> Instruction | None:
    """Return the scalar, of f32, by which sums are multiplied; None for 1."""
    found: Instruction | None = None
    for s in sorted(scalars, key=lambda s: s.opcode == "divide"):
        wide = build.convert(s.value, f32)
        if found is None and s.opcode == "multiply":
            found = wide
        else:
            found = build.pointwise(s.opcode, found or build.scalar(1, f32), wide)
    return found


def _kept_as(c: Computation) -> Mapping[str, DType]:
    """Return the widest type in which what is computed of a value leaves element-wise work."""
    readers, found = users(c), dict[str, DType]()
    for i in reversed(c.instructions):
        if not isinstance(i.shape, Shape):
            continue
        own = i.array.dtype
        types = [found[u.name] if is_pointwise(u) else own for u in readers[i]]
        types = [t for t in types if t.is_float] + [own] * (i is c.root or not types)
        small = [t for t in (own, max(types, key=_bits, default=own)) if t.is_float] or [own]
        found[i.name] = min(small, key=_bits)
    return found


def _bits(dtype: DType) -> int:
    return dtype.bits
