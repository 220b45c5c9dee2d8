"""Operations that move elements, on complex arrays: each part is moved alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ....dtypes import DType
from ...nodes import AnyShape, Instruction, Shape, SliceDim, TupleShape
from ...patterns import build
from ...patterns.match import is_static
from ...rewrite import constant, make
from .values import Pair, Value, flat, has_complex, part_shape, part_type

Rule: TypeAlias = Callable[[Instruction, list[Value]], Value]


def _both(i: Instruction, operands: list[Value]) -> Value:
    """The same operation on the real parts and on the imaginary ones; other operands serve both."""
    re = tuple(v.re if isinstance(v, Pair) else v for v in operands)
    im = tuple(v.im if isinstance(v, Pair) else v for v in operands)
    shape = part_shape(i.array)

    def moved(parts: tuple[Value, ...]) -> Instruction:
        return make(i.opcode, shape, tuple(flat(parts)), metadata=i.metadata, **i.attrs)

    return Pair(moved(re), moved(im))


def _copy(i: Instruction, operands: list[Value]) -> Value:
    return operands[0]


def _constant(i: Instruction, operands: list[Value]) -> Value:
    return _literal(i.attrs["literal"], i.shape)


def _literal(value: Any, shape: AnyShape) -> Value:
    if isinstance(shape, TupleShape):
        parts = tuple(_literal(v, s) for v, s in zip(value, shape.elements, strict=True))
        if has_complex(shape):
            return parts
        return make("tuple", shape, tuple(flat(parts)))
    if not has_complex(shape):
        return constant(value)
    return Pair(constant(np.array(value.real)), constant(np.array(value.imag)))


def _iota(i: Instruction, operands: list[Value]) -> Value:
    shape = part_shape(i.array)
    zero = build.full(0, shape.dtype, shape.dims)
    return Pair(make("iota", shape, metadata=i.metadata, **i.attrs), zero)


def _bitcast_convert(i: Instruction, operands: list[Value]) -> Value:
    """The bits of a complex array are those of its parts, one after the other."""
    (x,) = operands
    source, to = _words(x), i.array
    dims = (*to.dims, 2) if has_complex(to) else to.dims
    bits = _as_words(source, part_type(to.dtype), dims)
    if not has_complex(to):
        return bits
    re, im = (_last(bits, n) for n in range(2))
    return Pair(re, im)


def _words(x: Value) -> Instruction:
    """A real array with the same bits: the parts stand along a new last dimension."""
    if not isinstance(x, Pair):
        return next(flat([x]))
    dims = x.re.array.dims
    parts = tuple(build.reshape(p, (*dims, 1)) for p in (x.re, x.im))
    shape = Shape(x.re.array.dtype, (*dims, 2))
    return make("concatenate", shape, parts, dimensions=(len(dims),))


def _as_words(x: Instruction, dtype: DType, dims: tuple[int, ...]) -> Instruction:
    """``x`` as a real type of any width, row-major bits under ``dims``."""
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
    """``x[.., n]``"""
    dims = x.array.dims
    cuts = (*(SliceDim(0, d) for d in dims[:-1]), SliceDim(n, n + 1))
    cut = make("slice", Shape(x.array.dtype, (*dims[:-1], 1)), (x,), slice=cuts)
    return build.reshape(cut, dims[:-1])


def _bitcast(i: Instruction, operands: list[Value]) -> Value:
    same = is_static(i) and i.operands[0].array.dtype == i.array.dtype
    if same:
        return _both(replace(i, opcode="reshape", attrs={}), operands)
    return _bitcast_convert(i, operands)


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "broadcast", "reshape", "transpose", "slice", "pad", "concatenate", "reverse",
            "dynamic-slice", "dynamic-update-slice", "gather",
        ),
        _both,
    ),
    "copy": _copy,
    "constant": _constant,
    "iota": _iota,
    "bitcast-convert": _bitcast_convert,
    "bitcast": _bitcast,
}  # fmt: skip
