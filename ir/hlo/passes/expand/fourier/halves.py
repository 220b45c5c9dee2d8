"""Spectra of real rows from those of complex rows of half the length, and back.

The complex row has the numbers at even places as real parts, those at odd places as imaginary ones.
With E and O for the spectra of the two, its own is ``Z[k] = E[k] + i O[k]``, and that of the real
row ``X[k] = E[k] + w^k O[k]``, where w is the root of unity for its length.
"""

from __future__ import annotations

from typing import TypeAlias

from .....dtypes import f32, f64, s32
from ....nodes import Instruction, Shape, SliceDim
from ....patterns import build
from ....rewrite import make

Planes: TypeAlias = tuple[Instruction, Instruction]
"""Real and imaginary parts."""


def told_apart(z: Instruction, roots: Instruction) -> Instruction:
    """Return X ``[rows, n + 1]`` of Z ``[rows, n]``; ``roots`` are ``[2 n, 2]``."""
    rows, n = z.array.dims
    parts = _planes(z)
    again = tuple(_appended(p, _cut(p, 0, 1)) for p in parts)  # the number at n is that at 0
    even, odd = _halves((again[0], again[1]))
    odd = odd[1], build.pointwise("negate", odd[0])  # divided by i
    turned = _times(odd, _powers(roots, rows, n + 1))
    planes = tuple(build.pointwise("add", e, t) for e, t in zip(even, turned, strict=True))
    return make("complex", Shape(z.array.dtype, (rows, n + 1)), planes)


def woven(x: Instruction, roots: Instruction) -> Instruction:
    """Return Z ``[rows, n]`` of X ``[rows, n + 1]``; imaginary parts at its ends are not read."""
    rows, n = x.array.dims[0], x.array.dims[1] - 1
    whole, im = _planes(x)
    dims = im.array.dims
    place = build.iota(s32, dims, 1)
    ends = [
        build.pointwise("compare", place, build.full(k, s32, dims), direction="EQ") for k in (0, n)
    ]
    zero = build.full(0, im.array.dtype, dims)
    im = build.pointwise("select", build.pointwise("or", *ends), zero, im)
    even, odd = ((_cut(a, 0, n), _cut(b, 0, n)) for a, b in _halves((whole, im)))
    c, d = _powers(roots, rows, n)
    turned = _times(odd, (c, build.pointwise("negate", d)))
    planes = (
        build.pointwise("subtract", even[0], turned[1]),
        build.pointwise("add", even[1], turned[0]),
    )
    return make("complex", Shape(x.array.dtype, (rows, n)), planes)


def _planes(x: Instruction) -> Planes:
    shape = Shape(f32 if x.array.dtype.bits == 64 else f64, x.array.dims)
    return make("real", shape, (x,)), make("imag", shape, (x,))


def _halves(z: Planes) -> tuple[Planes, Planes]:
    """Half the sum and half the difference of numbers k and n - k, the latter conjugate."""
    a, b = z
    c, d = (make("reverse", p.array, (p,), dimensions=(1,)) for p in z)
    half = build.full(0.5, a.array.dtype, a.array.dims)
    total = build.pointwise("add", a, c), build.pointwise("subtract", b, d)
    gap = build.pointwise("subtract", a, c), build.pointwise("add", b, d)
    even, odd = (tuple(build.pointwise("multiply", p, half) for p in q) for q in (total, gap))
    return (even[0], even[1]), (odd[0], odd[1])


def _times(a: Planes, b: Planes) -> Planes:
    (p, q), (c, d) = a, b
    ac, bd, ad, bc = (
        build.pointwise("multiply", x, y) for x, y in ((p, c), (q, d), (p, d), (q, c))
    )
    return build.pointwise("subtract", ac, bd), build.pointwise("add", ad, bc)


def _powers(roots: Instruction, rows: int, count: int) -> Planes:
    """Return the first of the roots, for all rows."""
    found = []
    for part in range(2):
        dims = ((0, count), (part, part + 1))
        shape = Shape(roots.array.dtype, (count, 1))
        column = make("slice", shape, (roots,), slice=tuple(SliceDim(a, b) for a, b in dims))
        found.append(build.broadcast(build.reshape(column, (count,)), (1,), (rows, count)))
    return found[0], found[1]


def _cut(x: Instruction, start: int, stop: int) -> Instruction:
    """Return the numbers from one place to another of each row."""
    rows = x.array.dims[0]
    cut = SliceDim(0, rows), SliceDim(start, stop)
    return make("slice", Shape(x.array.dtype, (rows, stop - start)), (x,), slice=cut)


def _appended(x: Instruction, last: Instruction) -> Instruction:
    (rows, n), (_, more) = x.array.dims, last.array.dims
    return make("concatenate", Shape(x.array.dtype, (rows, n + more)), (x, last), dimensions=(1,))
