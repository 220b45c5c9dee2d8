"""Recognition of dequantized arrays: ``(q - zero) * scale`` with integers q of 8 bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from .....arrays import Array
from .....dtypes import f32, s8, s32, u8
from ....nodes import Instruction, Shape, SliceDim, Window
from ....patterns import build
from ....patterns.match import is_splat, splat
from ....patterns.ranges import limits
from ....rewrite import assemble, constant, make, parameter


@dataclass(frozen=True, slots=True)
class Dequantized:
    """The f32 array ``(codes - zero) * scale``; ``zero`` is a whole number.

    ``scale`` has one element, or one per index of dimension ``axis``.
    """

    codes: Instruction
    zero: int = 0
    scale: Array = field(default_factory=lambda: np.ones(1, np.float32))
    axis: int | None = None


def dequantized(x: Instruction) -> Dequantized | None:
    """Return an f32 array as codes, zero point and scale; None if it is something else."""
    match x.opcode:
        case "convert" if x.array.dtype == f32:
            return _whole(x.operands[0])
        case "subtract" if x.array.dtype == f32:
            return _shifted(dequantized(x.operands[0]), x.operands[1])
        case "multiply":
            first, second = x.operands
            return _scaled(dequantized(first), second) or _scaled(dequantized(second), first)
        case "transpose":
            found = dequantized(x.operands[0])
            return None if found is None else _transposed(found, x.attrs["dimensions"])
        case "reshape":
            found = dequantized(x.operands[0])
            return None if found is None else _reshaped(found, x.array.dims)
        case "slice":
            found = dequantized(x.operands[0])
            return None if found is None else _sliced(found, x.attrs["slice"])
        case "concatenate":
            return _joined(x, [dequantized(o) for o in x.operands])
        case "reduce-window":
            found = dequantized(x.operands[0]) if _takes_largest(x) else None
            return None if found is None else _pooled(found, x)
        case _:
            return None


def _joined(x: Instruction, parts: list[Dequantized | None]) -> Dequantized | None:
    """Return arrays one after the other as codes, if all have one scale and one zero point."""
    first = parts[0]
    if first is None or first.axis is not None:
        return None
    found: list[Instruction] = []
    for part in parts:
        if part is None or part.axis is not None or part.zero != first.zero:
            return None
        if part.scale[0] != first.scale[0]:
            return None
        found.append(part.codes)
    if len({c.array.dtype for c in found}) > 1:
        return None
    shape = Shape(found[0].array.dtype, x.array.dims)
    return replace(first, codes=make("concatenate", shape, found, **x.attrs))


def _takes_largest(x: Instruction) -> bool:
    """True for a window's maximum, in which there always is an element of the array."""
    if len(x.operands) != 2 or not isinstance(x.shape, Shape) or x.array.dtype != f32:
        return False
    root = x.attrs["to_apply"].root
    window: Window = x.attrs["window"]
    within = all(
        max(w.pad_low, w.pad_high) < w.size and w.lhs_dilate == w.rhs_dilate == 1 for w in window
    )
    largest = root.opcode == "maximum" and all(o.opcode == "parameter" for o in root.operands)
    return largest and within and is_splat(x.operands[1], -math.inf)


def _pooled(found: Dequantized, x: Instruction) -> Dequantized | None:
    """Return a maximum as codes, whose order is that of what they stand for."""
    if found.axis is not None or not found.scale[0] > 0:
        return None
    dtype = found.codes.array.dtype
    a, b = (parameter(n, Shape(dtype), name) for n, name in enumerate(("a", "b")))
    largest = assemble(f"maximum_{dtype}", (a, b), make("maximum", Shape(dtype), (a, b)))
    operands = (found.codes, build.scalar(limits(dtype)[0], dtype))
    attrs = {**x.attrs, "to_apply": largest}
    return replace(
        found, codes=make("reduce-window", Shape(dtype, x.array.dims), operands, **attrs)
    )


def _whole(x: Instruction) -> Dequantized | None:
    """Return integers as codes and a zero point."""
    if x.array.dtype in (s8, u8):
        return Dequantized(x)
    if x.array.dtype != s32:
        return None
    match x.opcode:
        case "convert" if x.operands[0].array.dtype in (s8, u8):
            return Dequantized(x.operands[0])
        case "subtract":
            return _shifted(_whole(x.operands[0]), x.operands[1])
        case _:
            return None


def _shifted(found: Dequantized | None, zero: Instruction) -> Dequantized | None:
    value = splat(zero)
    if found is None or value is None or found.axis is not None or found.scale[0] != 1:
        return None
    if not np.isfinite(value) or value != np.rint(value) or abs(found.zero + int(value)) > 255:
        return None
    return replace(found, zero=found.zero + int(value))


def _scaled(found: Dequantized | None, scale: Instruction) -> Dequantized | None:
    if found is None:
        return None
    if (value := splat(scale)) is not None:
        return replace(found, scale=found.scale * np.float32(value))
    if scale.opcode != "broadcast" or scale.operands[0].opcode != "constant":
        return None
    axes = scale.attrs.get("dimensions", ())
    if len(axes) != 1 or found.axis not in (None, axes[0]):
        return None
    each = scale.operands[0].attrs["literal"]
    return replace(found, scale=found.scale * each, axis=axes[0])


def _transposed(found: Dequantized, order: tuple[int, ...]) -> Dequantized:
    axis = None if found.axis is None else order.index(found.axis)
    return replace(found, codes=transposed(found.codes, order), axis=axis)


def _reshaped(found: Dequantized, dims: tuple[int, ...]) -> Dequantized | None:
    """Return codes of other dimensions, unless the one with the scales is not among them."""
    codes = build.reshape(found.codes, dims)
    if found.axis is None:
        return replace(found, codes=codes)
    old = found.codes.array.dims
    size, before = old[found.axis], math.prod(old[: found.axis])
    same = (a for a, n in enumerate(dims) if n == size and math.prod(dims[:a]) == before)
    axis = next(same, None)
    return None if axis is None else replace(found, codes=codes, axis=axis)


def _sliced(found: Dequantized, by: tuple[SliceDim, ...]) -> Dequantized:
    ranges = tuple(slice(d.start, d.limit, d.stride) for d in by)
    scale = found.scale if found.axis is None else found.scale[ranges[found.axis]]
    codes = found.codes
    if codes.opcode == "constant":
        kept = constant(codes.attrs["literal"][ranges], name=codes.name)
        return replace(found, codes=kept, scale=scale)
    dims = tuple(len(range(d.start, d.limit, d.stride)) for d in by)
    kept = make("slice", Shape(codes.array.dtype, dims), (codes,), slice=by)
    return replace(found, codes=kept, scale=scale)


def transposed(x: Instruction, order: tuple[int, ...]) -> Instruction:
    """Return the transpose of an array; of a constant, the constant."""
    if x.opcode == "constant":
        return constant(np.transpose(x.attrs["literal"], order), name=x.name)
    return build.transpose(x, order)
