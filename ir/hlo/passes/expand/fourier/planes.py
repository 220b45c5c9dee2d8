"""Arrays of complex numbers as planes, the real and the imaginary parts, and roots of unity."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from .....arrays import Array
from .....dtypes import DType, c128, f32, f64
from ....nodes import Instruction, Shape, SliceDim
from ....patterns import build
from ....rewrite import make

Planes: TypeAlias = tuple[Instruction, Instruction]
"""Real and imaginary parts."""


def part_type(x: Instruction) -> DType:
    """Return the type of the parts of complex numbers, or that of real ones."""
    return f64 if x.array.dtype in (f64, c128) else f32


def planes_of(x: Instruction) -> Planes:
    """Return the parts of a complex array."""
    shape = Shape(part_type(x), x.array.dims)
    return make("real", shape, (x,)), make("imag", shape, (x,))


def times(a: Planes, b: Planes) -> Planes:
    """Return the products of complex numbers, by plane."""
    (p, q), (c, d) = a, b
    ac, bd, ad, bc = (
        build.pointwise("multiply", x, y) for x, y in ((p, c), (q, d), (p, d), (q, c))
    )
    return build.pointwise("subtract", ac, bd), build.pointwise("add", ad, bc)


def cut(x: Instruction, dim: int, start: int, count: int) -> Instruction:
    """Return ``count`` indices of a dimension, from ``start`` on."""
    if x.array.dims[dim] == count:
        return x
    kept = tuple(
        SliceDim(start, start + count) if d == dim else SliceDim(0, n)
        for d, n in enumerate(x.array.dims)
    )
    dims = tuple(s.limit - s.start for s in kept)
    return make("slice", Shape(x.array.dtype, dims), (x,), slice=kept)


def roots_of_unity(n: int, powers: Array, sign: int) -> Array:
    """Return ``exp(sign 2 pi i k / n)`` for each power k, in c128; multiples of i are exact."""
    found = np.exp(sign * 2j * np.pi * (powers % n) / n)
    exact = np.rint(found.real) + 1j * np.rint(found.imag)
    return np.where(4 * powers % n == 0, exact, found)
