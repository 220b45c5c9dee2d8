"""Fourier transforms as products with matrices of roots of unity.

A library's transform of a few hundred numbers takes less time than the call of it. A length of two
factors is transformed in two steps (Cooley and Tukey, An Algorithm for the Machine Calculation of
Complex Fourier Series, 1965): of ``j = j1 n2 + j2`` and ``k = k1 + n1 k2``, first over ``j1``, then
times the roots for ``j2 k1``, then over ``j2``. Real and imaginary parts, the planes, stand beside
each other in one product, so that planes which are zero or which nothing reads cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TypeAlias

import numpy as np

from .....accuracy import LEAST_WEIGHTS
from .....arrays import Array
from .....dtypes import DType, to_numpy
from ....nodes import HloModule, Instruction, PadDim, Shape
from ....patterns import build
from ....rewrite import constant, make, map_computations, rebuild
from .lanes import is_smooth
from .planes import cut, planes_of, roots_of_unity, times

WHOLE = 16
"""The length, up to which one product takes the place of two."""

FACTOR = 32
"""The largest factor, and the largest length that has none."""

LONGEST = 1 << 20
"""The longest row; the roots between two products are as many."""

TERMS = 1 << 22
"""Terms of products in two steps, up to which they beat the library of a processor. One step always
does.
"""

Parts: TypeAlias = tuple[Instruction, ...]
"""The real part, and the imaginary one if it is not zero."""


def expand_transforms(module: HloModule) -> HloModule:
    """``fft`` of short lengths with large prime factors  ->  ``dot``

    Others wait for a target: a processor transforms them by ``dft``.
    """
    return map_computations(module, lambda c: rebuild(c, _left_by_lanes))


def product_transforms(module: HloModule) -> HloModule:
    """``fft`` of lengths without large prime factors  ->  ``dot``"""
    return map_computations(module, lambda c: rebuild(c, _rule))


def _left_by_lanes(i: Instruction) -> Instruction | None:
    if i.opcode != "fft" or all(is_smooth(n) for n in i.attrs["fft_length"]):
        return None
    elements = prod(i.array.dims[: -len(i.attrs["fft_length"])]) * prod(i.attrs["fft_length"])
    factors = [_factors(n) for n in i.attrs["fft_length"]]
    terms = elements * sum(sum(f) for f in factors if len(f) > 1)
    return _rule(i) if terms <= TERMS and max(map(len, factors)) <= 2 else None


def _rule(i: Instruction) -> Instruction | None:
    if i.opcode != "fft" or any(i.array.dynamic) or 0 in i.array.dims:
        return None
    lengths = tuple(i.attrs["fft_length"])
    if not all(map(_factors, lengths)):
        return None
    return _transform(i, str(i.attrs["fft_type"]), lengths)


@cache
def _factors(n: int) -> tuple[int, ...]:
    """The lengths of the products for a transform of ``n`` numbers; none if there are no such."""
    if 1 < n <= WHOLE:
        return (n,)
    pairs = [(k, n // k) for k in range(2, FACTOR + 1) if n % k == 0 and k <= n // k <= FACTOR]
    if pairs or 1 < n <= FACTOR:
        return max(pairs, default=(n,))
    first = next((k for k in range(FACTOR, 1, -1) if n % k == 0), 0)
    rest = _factors(n // first) if first and n <= LONGEST else ()
    return (first, *rest) if rest else ()


def _transform(i: Instruction, kind: str, lengths: Sequence[int]) -> Instruction:
    (x,), rank = i.operands, len(i.array.dims)
    sign, last = (-1 if kind in ("FFT", "RFFT") else 1), rank - 1
    others = range(rank - len(lengths), last)
    planes: Parts = (x,) if kind == "RFFT" else planes_of(x)
    if kind != "IRFFT":
        n = lengths[-1]
        planes = _along(planes, last, n, sign, n // 2 + 1 if kind == "RFFT" else n)
    for axis in others:
        n = lengths[axis - others.start]
        planes = _along(planes, axis, n, sign, n)
    if kind == "IRFFT":
        return _along(_weighted(planes, lengths[-1]), last, lengths[-1], sign, lengths[-1], 1)[0]
    return make("complex", i.array, planes, name=i.name, metadata=i.metadata)


def _weighted(planes: Parts, n: int) -> Parts:
    """The first half of a spectrum, whose other half is its conjugate: the real part of what twice
    it gives is what both give. Followed by zeros.
    """
    half = n // 2 + 1
    weights = np.full(half, 2.0)
    weights[0] = 1
    weights[n // 2 :] = 1 if n % 2 == 0 else 2
    dims, dtype = planes[0].array.dims, planes[0].array.dtype
    factor = build.broadcast(_constant(weights, dtype), (len(dims) - 1,), dims)
    zero = build.scalar(0, dtype)
    padding = [PadDim(0, 0, 0)] * (len(dims) - 1) + [PadDim(0, n - half, 0)]
    return tuple(build.pad(build.pointwise("multiply", p, factor), zero, padding) for p in planes)


def _along(planes: Parts, axis: int, n: int, sign: int, count: int, made: int = 2) -> Parts:
    """Transform along a dimension, of which ``count`` numbers are wanted, in ``made`` planes.

    The sign is that of the exponent; with a positive one the result is scaled by ``1 / n``.
    """
    dims = planes[0].array.dims
    order = [d for d in range(len(dims)) if d != axis] + [axis]
    outer = tuple(dims[d] for d in order[:-1])
    flat = tuple(build.reshape(build.transpose(p, order), (prod(outer), n)) for p in planes)
    found = _of_rows(flat, n, sign, count, made)
    back = [order.index(d) for d in range(len(dims))]
    return tuple(build.transpose(build.reshape(p, (*outer, count)), back) for p in found)


def _of_rows(planes: Parts, n: int, sign: int, count: int, made: int) -> Parts:
    """Transform planes ``[rows, n]``."""
    match _factors(n):
        case (_,):
            return _once(planes, n, sign, count, made)
        case (_, _):
            return _twice(planes, n, sign, count, made)
        case (n1, *_):
            return _in_steps(planes, n, n1, sign, count, made)
        case _:
            raise AssertionError(f"{n} has no factors")


def _in_steps(planes: Parts, n: int, n1: int, sign: int, count: int, made: int) -> Parts:
    """As ``_twice``, with a transform of ``n / n1`` numbers for the second product."""
    batch, n2, rows = planes[0].array.dims[0], n // n1, -(-count // n1)
    turned = _first(planes, n, n1, sign)
    flat = tuple(build.reshape(build.transpose(p, (0, 2, 1)), (batch * n1, n2)) for p in turned)
    found = (build.reshape(p, (batch, n1, rows)) for p in _of_rows(flat, n2, sign, rows, made))
    whole = (build.reshape(build.transpose(p, (0, 2, 1)), (batch, rows * n1)) for p in found)
    return tuple(cut(p, 1, 0, count) for p in whole)


def _once(planes: Parts, n: int, sign: int, count: int, made: int) -> Parts:
    return _products(_joined(planes), _by_planes(_roots(n, count, sign), len(planes), made), made)


def _twice(planes: Parts, n: int, sign: int, count: int, made: int) -> Parts:
    batch, (n1, n2) = planes[0].array.dims[0], _factors(n)
    rows = -(-count // n1)
    turned = _first(planes, n, n1, sign)
    found = _products(_joined(turned), _by_planes(_roots(n2, rows, sign), 2, made), made)
    flat = (build.reshape(build.transpose(p, (0, 2, 1)), (batch, rows * n1)) for p in found)
    return tuple(cut(p, 1, 0, count) for p in flat)


def _first(planes: Parts, n: int, n1: int, sign: int) -> Parts:
    """Return the first product, over ``j1``, times the roots for ``j2 k1``: ``[batch, j2, k1]``."""
    batch, n2 = planes[0].array.dims[0], n // n1
    given = _joined([build.reshape(p, (batch, n1, n2)) for p in planes])
    real, imaginary = _products(given, _by_planes(_roots(n1, n1, sign), len(planes), 2), 2)
    dims, dtype = real.array.dims, real.array.dtype
    roots = roots_of_unity(n, np.outer(np.arange(n2), np.arange(n1)), sign)
    a, b = (build.broadcast(_constant(x, dtype), (1, 2), dims) for x in (roots.real, roots.imag))
    return times((real, imaginary), (a, b))


def _roots(n: int, count: int, sign: int) -> Array:
    """Return the matrix ``[n, count]`` of a transform, scaled by ``1 / n`` for a positive sign."""
    found = roots_of_unity(n, np.outer(np.arange(n), np.arange(count)), sign)
    return found / n if sign > 0 else found


def _by_planes(roots: Array, given: int, made: int) -> Array:
    """The matrix whose product with planes beside each other is that of complex numbers."""
    whole = np.block([[roots.real, roots.imag], [-roots.imag, roots.real]])
    n, count = roots.shape
    return whole[: given * n, : made * count]


def _constant(values: Array, dtype: DType) -> Instruction:
    return constant(np.ascontiguousarray(values.astype(to_numpy(dtype))))


def _joined(planes: Sequence[Instruction]) -> Instruction:
    """Parts behind each other in dimension 1."""
    if len(planes) == 1:
        return planes[0]
    batch, n, *rest = planes[0].array.dims
    shape = Shape(planes[0].array.dtype, (batch, len(planes) * n, *rest))
    return make("concatenate", shape, tuple(planes), dimensions=(1,))


def _products(x: Instruction, matrix: Array, made: int) -> Parts:
    """The product with a matrix, by plane: one product, unless its matrix would pass for weights,
    which users may have narrowed.
    """
    dtype = x.array.dtype
    if matrix.size >= LEAST_WEIGHTS:
        return tuple(_product(x, _constant(m, dtype)) for m in np.split(matrix, made, axis=1))
    found, size = _product(x, _constant(matrix, dtype)), matrix.shape[1] // made
    last = len(found.array.dims) - 1
    return tuple(cut(found, last, k * size, size) for k in range(made))


def _product(x: Instruction, matrix: Instruction) -> Instruction:
    """Contract dimension 1 of ``x`` with dimension 0 of a matrix, whose other one comes last."""
    batch, _, *rest = x.array.dims
    shape = Shape(x.array.dtype, (batch, *rest, matrix.array.dims[1]))
    return make("dot", shape, (x, matrix), lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
