"""Operations that move elements of complex arrays: both parts are moved alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....dtypes import DType
from ...nodes import AnyShape, Instruction, Shape, SliceDim, TupleShape
from ...patterns import build
from ...patterns.match import is_static
from ...rewrite import constant, make
from .values import Parts, PartsRule, Value, flatten, has_complex, part_shape, part_type


def both(i: Instruction, operands: list[Value]) -> Value:
    """Apply the operation to the real and to the imaginary parts; other operands are shared."""
    re = tuple(v.re if isinstance(v, Parts) else v for v in operands)
    im = tuple(v.im if isinstance(v, Parts) else v for v in operands)
    shape = part_shape(i.array)

    def moved(parts: tuple[Value, ...]) -> Instruction:
        return make(i.opcode, shape, tuple(flatten(parts)), metadata=i.metadata, **i.attrs)

    return Parts(moved(re), moved(im))


def _copy(i: Instruction, operands: list[Value]) -> Value:
    return operands[0]


def _constant(i: Instruction, operands: list[Value]) -> Value:
    return _literal(i.attrs["literal"], i.shape)


def _literal(value: Any, shape: AnyShape) -> Value:
    if isinstance(shape, TupleShape):
        parts = tuple(_literal(v, s) for v, s in zip(value, shape.elements, strict=True))
        if has_complex(shape):
            return parts
        return make("tuple", shape, tuple(flatten(parts)))
    if not has_complex(shape):
        return constant(value)
    return Parts(constant(np.array(value.real)), constant(np.array(value.imag)))


def _iota(i: Instruction, operands: list[Value]) -> Value:
    shape = part_shape(i.array)
    zero = build.full(0, shape.dtype, shape.dims)
    return Parts(make("iota", shape, metadata=i.metadata, **i.attrs), zero)


def _bitcast_convert(i: Instruction, operands: list[Value]) -> Value:
    """Reinterpret the bits of a complex array: each element's real part, then its imaginary."""
    (x,) = operands
    source, to = _words(x), i.array
    dims = (*to.dims, 2) if has_complex(to) else to.dims
    bits = _as_words(source, part_type(to.dtype), dims)
    if not has_complex(to):
        return bits
    re, im = (_last(bits, n) for n in range(2))
    return Parts(re, im)


def _words(x: Value) -> Instruction:
    """Return a real array with the same bits: the parts along a new last dimension."""
    if not isinstance(x, Parts):
        return next(flatten([x]))
    dims = x.re.array.dims
    parts = tuple(build.reshape(p, (*dims, 1)) for p in (x.re, x.im))
    shape = Shape(x.re.array.dtype, (*dims, 2))
    return make("concatenate", shape, parts, dimensions=(len(dims),))


def _as_words(x: Instruction, dtype: DType, dims: tuple[int, ...]) -> Instruction:
    """Reinterpret the bits of ``x``, in row-major order, as a real type of any width."""
    old, new = x.array.dtype, Shape(dtype, dims)
    if old.bits == new.dtype.bits:
        shaped = build.reshape(x, dims)
        return shaped if old == new.dtype else make("bitcast-convert", new, (shaped,))
    if old.bits > new.dtype.bits:
        more = old.bits // new.dtype.bits
        cut = make("bitcast-convert", Shape(new.dtype, (*x.array.dims, more)), (x,))
        return build.reshape(cut, dims)
    rows = build.reshape(x, (*dims, new.dtype.bits // old.bits))
    return make("bitcast-convert", new, (rows,))


def _last(x: Instruction, n: int) -> Instruction:
    """Return ``x[.., n]``."""
    dims = x.array.dims
    cuts = (*(SliceDim(0, d) for d in dims[:-1]), SliceDim(n, n + 1))
    cut = make("slice", Shape(x.array.dtype, (*dims[:-1], 1)), (x,), slice=cuts)
    return build.reshape(cut, dims[:-1])


def _bitcast(i: Instruction, operands: list[Value]) -> Value:
    same = is_static(i) and i.operands[0].array.dtype == i.array.dtype
    if same:
        return both(replace(i, opcode="reshape", attrs={}), operands)
    return _bitcast_convert(i, operands)


RULES: dict[str, PartsRule] = {
    "copy": _copy,
    "constant": _constant,
    "iota": _iota,
    "bitcast-convert": _bitcast_convert,
    "bitcast": _bitcast,
}
