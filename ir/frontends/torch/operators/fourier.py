"""Fourier transforms, and complex numbers as pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...lax.shaping import concatenate, expand_dims, move_axis, reshape, slice_in_dim
from ...lax.term import Term
from .call import AtenCall, Rows

Ints = Sequence[int]


def _transform(x: Term, axis: int, kind: str, length: int) -> Term:
    rows = move_axis(x, axis, -1)
    value = rows.site.infer("fft", [rows.value], fft_type=kind, fft_length=(length,))
    return move_axis(Term(x.site, value), -1, axis)


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
        x = _transform(x, d % x.rank, "FFT" if forward else "IFFT", x.dims[d])
    return _scale(x, sizes, normalization, not forward)


def _r2c(c: AtenCall, x: Term, dim: Ints, normalization: int, onesided: bool) -> Term:
    sizes = [x.dims[d] for d in dim]
    last = dim[-1] % x.rank
    if onesided:
        found = _transform(x, last, "RFFT", x.dims[last])
    else:
        found = _transform(x.do("complex", x * 0), last, "FFT", x.dims[last])
    for d in dim[:-1]:
        found = _transform(found, d % x.rank, "FFT", x.dims[d])
    return _scale(found, sizes, normalization, False)


def _c2r(c: AtenCall, x: Term, dim: Ints, normalization: int, last_dim_size: int) -> Term:
    sizes = [x.dims[d] for d in dim[:-1]] + [last_dim_size]
    for d in dim[:-1]:
        x = _transform(x, d % x.rank, "IFFT", x.dims[d])
    found = _transform(x, dim[-1] % x.rank, "IRFFT", last_dim_size)
    return _scale(found, sizes, normalization, True)


def _view_as_real(c: AtenCall, x: Term) -> Term:
    parts = [expand_dims(x.do(part), [x.rank]) for part in ("real", "imag")]
    return concatenate(parts, x.rank)


def _view_as_complex(c: AtenCall, x: Term) -> Term:
    real, imag = (reshape(slice_in_dim(x, k, k + 1, x.rank - 1), x.dims[:-1]) for k in (0, 1))
    return real.do("complex", imag)


ROWS: Rows = {
    "aten._fft_c2c.default": _c2c,
    "aten._fft_r2c.default": _r2c,
    "aten._fft_c2r.default": _c2r,
    "aten.view_as_real.default": _view_as_real,
    "aten.view_as_complex.default": _view_as_complex,
}
