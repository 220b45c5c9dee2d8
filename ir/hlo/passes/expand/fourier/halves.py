"""Spectra of real rows from those of complex rows of half the length, and back.

The complex row has the numbers at even places as real parts, those at odd places as imaginary ones.
With E and O for the spectra of the two, its own is ``Z[k] = E[k] + i O[k]``, and that of the real
row ``X[k] = E[k] + w^k O[k]``, where w is the root of unity for its length.
"""

from __future__ import annotations

from .....dtypes import s32
from ....nodes import Instruction, Shape
from ....patterns import build
from ....rewrite import make
from .planes import Planes, cut, planes_of, times


def told_apart(z: Instruction, roots: Instruction) -> Instruction:
    """Return X ``[rows, n + 1]`` of Z ``[rows, n]``; ``roots`` are ``[2 n, 2]``."""
    rows, n = z.array.dims
    parts = planes_of(z)
    again = tuple(_appended(p, cut(p, 1, 0, 1)) for p in parts)  # the number at n is that at 0
    even, odd = _halves((again[0], again[1]))
    odd = odd[1], build.pointwise("negate", odd[0])  # divided by i
    turned = times(odd, _powers(roots, rows, n + 1))
    planes = tuple(build.pointwise("add", e, t) for e, t in zip(even, turned, strict=True))
    return make("complex", Shape(z.array.dtype, (rows, n + 1)), planes)


def woven(x: Instruction, roots: Instruction) -> Instruction:
    """Return Z ``[rows, n]`` of X ``[rows, n + 1]``; imaginary parts at its ends are not read."""
    rows, n = x.array.dims[0], x.array.dims[1] - 1
    whole, im = planes_of(x)
    dims = im.array.dims
    place = build.iota(s32, dims, 1)
    ends = [
        build.pointwise("compare", place, build.full(k, s32, dims), direction="EQ") for k in (0, n)
    ]
    zero = build.full(0, im.array.dtype, dims)
    im = build.pointwise("select", build.pointwise("or", *ends), zero, im)
    even, odd = ((cut(a, 1, 0, n), cut(b, 1, 0, n)) for a, b in _halves((whole, im)))
    c, d = _powers(roots, rows, n)
    turned = times(odd, (c, build.pointwise("negate", d)))
    planes = (
        build.pointwise("subtract", even[0], turned[1]),
        build.pointwise("add", even[1], turned[0]),
    )
    return make("complex", Shape(x.array.dtype, (rows, n)), planes)


def _halves(z: Planes) -> tuple[Planes, Planes]:
    """Half the sum and half the difference of numbers k and n - k, the latter conjugate."""
    a, b = z
    c, d = (make("reverse", p.array, (p,), dimensions=(1,)) for p in z)
    half = build.full(0.5, a.array.dtype, a.array.dims)
    total = build.pointwise("add", a, c), build.pointwise("subtract", b, d)
    gap = build.pointwise("subtract", a, c), build.pointwise("add", b, d)
    even, odd = (tuple(build.pointwise("multiply", p, half) for p in q) for q in (total, gap))
    return (even[0], even[1]), (odd[0], odd[1])


def _powers(roots: Instruction, rows: int, count: int) -> Planes:
    """Return the first of the roots, for all rows."""
    used = cut(roots, 0, 0, count)
    columns = (build.reshape(cut(used, 1, part, 1), (count,)) for part in range(2))
    re, im = (build.broadcast(c, (1,), (rows, count)) for c in columns)
    return re, im


def _appended(x: Instruction, last: Instruction) -> Instruction:
    (rows, n), (_, more) = x.array.dims, last.array.dims
    return make("concatenate", Shape(x.array.dtype, (rows, n + more)), (x, last), dimensions=(1,))
