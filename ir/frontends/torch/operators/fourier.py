"""Fourier transforms, and complex numbers as pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....dtypes import to_numpy
from ...lax.fft import complex_of_pairs, fft, pairs_of_complex
from ...lax.term import Term
from .call import AtenCall, Operator, Rows

Ints = Sequence[int]


def _scale(x: Term, sizes: Ints, normalization: int, inverse: bool) -> Term:
    """torch leaves out or divides by the count or its root; HLO's inverse divides by the count."""
    count = math.prod(sizes)
    wanted = {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[normalization]
    factor = wanted * count if inverse else wanted
    if factor == 1:
        return x
    if x.dtype.kind != "complex":
        return x * factor
    return (x.do("real") * factor).do("complex", x.do("imag") * factor)


def _c2c(c: AtenCall, x: Term, dim: Ints, normalization: int, forward: bool) -> Term:
    sizes = [x.dims[d] for d in dim]
    for d in dim:
        x = fft(x, "FFT" if forward else "IFFT", x.dims[d], d)
    return _scale(x, sizes, normalization, not forward)


def _r2c(c: AtenCall, x: Term, dim: Ints, normalization: int, onesided: bool) -> Term:
    sizes = [x.dims[d] for d in dim]
    last = dim[-1] % x.rank
    if onesided:
        found = fft(x, "RFFT", x.dims[last], last)
    else:
        found = fft(x.do("complex", 0), "FFT", x.dims[last], last)
    for d in dim[:-1]:
        found = fft(found, "FFT", x.dims[d], d)
    return _scale(found, sizes, normalization, False)


def _c2r(c: AtenCall, x: Term, dim: Ints, normalization: int, last_dim_size: int) -> Term:
    sizes = [x.dims[d] for d in dim[:-1]] + [last_dim_size]
    for d in dim[:-1]:
        x = fft(x, "IFFT", x.dims[d], d)
    found = fft(x, "IRFFT", last_dim_size, dim[-1])
    return _scale(found, sizes, normalization, True)


def _frequencies(spaced: Callable[..., Any]) -> Operator:
    """A constant: the frequencies of a transform's elements, as NumPy has them."""

    def operator(c: AtenCall, n: int, d: float = 1.0, **rest: Any) -> Term:
        return Term(c.graph, c.graph.constant(spaced(n, d).astype(to_numpy(c.dtype))))

    return operator


def _unscaled(transform: Operator, last: str) -> Operator:
    """The row of a transform without normalization, whose arguments are named."""

    def operator(c: AtenCall, x: Term, *, dim: Ints, **rest: Any) -> Term:
        found: Term = transform(c, x, dim, 0, rest[last])
        return found

    return operator


ROWS: Rows = {
    "aten._fft_c2c.default": _c2c,
    "aten._fft_r2c.default": _r2c,
    "aten._fft_c2r.default": _c2r,
    "prims.fft_c2c.default": _unscaled(_c2c, "forward"),
    "prims.fft_r2c.default": _unscaled(_r2c, "onesided"),
    "prims.fft_c2r.default": _unscaled(_c2r, "last_dim_size"),
    "aten.fft_fftfreq.default": _frequencies(np.fft.fftfreq),
    "aten.fft_rfftfreq.default": _frequencies(np.fft.rfftfreq),
    "aten.view_as_real.default": lambda c, x: pairs_of_complex(x),
    "aten.view_as_complex.default": lambda c, x: complex_of_pairs(x),
}
