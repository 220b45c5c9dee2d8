"""Views of an array's bytes as elements of another type."""

from __future__ import annotations

from ....dtypes import DType, f32, f64, pred, to_numpy, u8
from ....hlo.nodes import Shape
from ...lax.fft import complex_of_pairs, pairs_of_complex
from ...lax.shaping import reshape
from ...lax.term import Term
from .call import AtenCall, Rows
from .logic import truth


def _view_dtype(c: AtenCall, x: Term, dtype: DType) -> Term:
    """The same bytes under another type: the last dimension shrinks or grows.

    Truth values are bytes of 0 and 1, complex numbers are pairs of floats.
    """
    return reshape(_typed(_plain(reshape(x, (-1,))), dtype), c.dims)


def _plain(x: Term) -> Term:
    """A vector whose elements have bits: bytes for truth values, floats for complex numbers."""
    if x.dtype.kind == "complex":
        return reshape(pairs_of_complex(x), (-1,))
    return x.to(u8) if x.dtype == pred else x


def _typed(x: Term, dtype: DType) -> Term:
    """The bytes of a vector, which have bits, as elements of any type."""
    if dtype == pred:
        return truth(_typed(x, u8))
    if dtype.kind == "complex":
        pairs = _typed(x, f32 if dtype.bits == 2 * f32.bits else f64)
        return complex_of_pairs(reshape(pairs, (pairs.dims[0] // 2, 2)))
    if dtype == x.dtype:
        return x
    old, new = (to_numpy(d).itemsize for d in (x.dtype, dtype))
    count = x.dims[0] * old // new
    if old < new:
        x = reshape(x, (count, new // old))
    dims = (*x.dims, old // new) if old > new else (count,)
    bits = x.site.add("bitcast-convert", Shape(dtype, dims), [x.value])
    return reshape(Term(x.site, bits), (count,))


ROWS: Rows = {
    "aten.view.dtype": _view_dtype,
    "prims.view_element_type.default": _view_dtype,
}
