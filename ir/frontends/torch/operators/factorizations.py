"""Factorizations of matrices and systems of equations, by calls of LAPACK's routines.

Where a matrix has no such factor, as a singular one no inverse, torch raises an error after it has
looked at ``info``; here what it computed is NaN. Batches go through a routine one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dtypes import DType, c64, c128, f32, f64, s32
from ....hlo.nodes import Raw, Shape, TupleShape
from ...lax import reductions, shaping
from ...lax.arithmetic import conj
from ...lax.term import Term
from .call import AtenCall, Rows

_LETTERS = {f32: "s", f64: "d", c64: "c", c128: "z"}
_REAL = {c64: f32, c128: f64}


def _real(dtype: DType) -> DType:
    return _REAL.get(dtype, dtype)


def _routine(
    c: AtenCall, name: str, operands: Sequence[Term], results: Sequence[Shape], **flags: str
) -> list[Term]:
    """Call a routine of LAPACK for the type of the first operand; ``flags`` are letters."""
    letter = _LETTERS.get(operands[0].dtype)
    if letter is None:
        c.refuse(f"LAPACK has no {operands[0].dtype}", "convert the matrix to f32")
    config = ", ".join(f"{k} = {ord(v)} : ui8" for k, v in flags.items())
    call = c.graph.add(
        "custom-call",
        TupleShape(tuple(results)),
        [x.value for x in operands],
        custom_call_target=f"lapack_{letter}{name}_ffi",
        api_version="API_VERSION_TYPED_FFI",
        backend_config=Raw(f"{{{config}}}"),
    )
    return [
        Term(c.graph, c.graph.add("get-tuple-element", shape, [call], index=n))
        for n, shape in enumerate(results)
    ]


def _where_done(x: Term, info: Term) -> Term:
    """``x``, NaN for the matrices of a batch whose ``info`` is not 0."""
    done = info.equals(0)
    apart = shaping.expand_dims(done, range(done.rank, x.rank))
    nan = float("nan")
    missing = x.number(nan) if x.dtype not in _REAL else x.number(complex(nan, nan))
    return shaping.broadcast_to(apart, x.dims).select(x, missing)


def _batch(x: Term, *dims: int, dtype: DType | None = None) -> Shape:
    """The shape of a result for each matrix of ``x``."""
    return Shape(dtype or x.dtype, (*x.dims[:-2], *dims))


def _cholesky(c: AtenCall, x: Term, *, upper: bool = False, **_: bool) -> tuple[Term, Term]:
    shapes = x.shape, _batch(x, dtype=s32)
    found, info = _routine(c, "potrf", [x], shapes, uplo="U" if upper else "L")
    triangle = shaping.triu(found) if upper else shaping.tril(found)
    return _where_done(triangle, info), info


def _lu(c: AtenCall, x: Term) -> tuple[Term, Term, Term]:
    """L and U in one matrix, pivots from 1, and ``info``."""
    shapes = x.shape, _batch(x, min(x.dims[-2:]), dtype=s32), _batch(x, dtype=s32)
    factors, pivots, info = _routine(c, "getrf", [x], shapes)
    return factors, pivots, info


def _lu_factor(c: AtenCall, x: Term, *, pivot: bool = True, **_: bool) -> tuple[Term, Term, Term]:
    if not pivot:
        c.refuse("it takes no pivots")
    return _lu(c, x)


def _solved(c: AtenCall, a: Term, b: Term) -> tuple[Term, Term, Term, Term]:
    """L and U, pivots, what solves ``a x = b`` and ``info``, for matrices ``b``."""
    shapes = a.shape, _batch(a, a.dims[-1], dtype=s32), b.shape, _batch(a, dtype=s32)
    factors, pivots, found, info = _routine(c, "gesv", [a, b], shapes)
    return factors, pivots, _where_done(found, info), info


def _solve(
    c: AtenCall, a: Term, b: Term, *, left: bool = True, **_: bool
) -> tuple[Term, Term, Term, Term]:
    vector = b.rank == 1 or (b.rank + 1 == a.rank and b.dims == a.dims[:-1])
    columns = shaping.expand_dims(b, [b.rank]) if vector else b
    lead = c.dims[: len(c.dims) - (1 if vector else 2)]
    a = shaping.broadcast_to(a, (*lead, *a.dims[-2:]))
    columns = shaping.broadcast_to(columns, (*lead, *columns.dims[-2:]))
    if left or vector:
        factors, pivots, found, info = _solved(c, a, columns)
    else:
        turned = shaping.swap_axes(columns, -1, -2)
        factors, pivots, found, info = _solved(c, shaping.swap_axes(a, -1, -2), turned)
        found = shaping.swap_axes(found, -1, -2)
    return (shaping.squeeze(found, [-1]) if vector else found), factors, pivots, info


def _inverse(c: AtenCall, x: Term, **_: bool) -> tuple[Term, Term]:
    rows, columns = (shaping.iota(c.graph, s32, x.dims[-2:], axis) for axis in (0, 1))
    unit = shaping.broadcast_to(rows.equals(columns).to(x.dtype), x.dims)
    *_rest, found, info = _solved(c, x, unit)
    return found, info


def _diagonal(x: Term) -> Term:
    rows, columns = (shaping.iota(x.site, s32, x.dims, x.rank - k) for k in (2, 1))
    return reductions.sum_(rows.equals(columns).select(x, 0), [-1])


def _swaps(pivots: Term, dtype: DType) -> Term:
    """-1 for an odd number of rows that were swapped, else 1."""
    own = shaping.iota(pivots.site, s32, pivots.dims, pivots.rank - 1) + 1
    return reductions.prod_(1 - pivots.differs(own).to(dtype) * 2, [-1])


def _determinant(c: AtenCall, x: Term) -> tuple[Term, Term, Term]:
    factors, pivots, _info = _lu(c, x)
    return reductions.prod_(_diagonal(factors), [-1]) * _swaps(pivots, x.dtype), factors, pivots


def _log_determinant(c: AtenCall, x: Term) -> tuple[Term, Term, Term, Term]:
    factors, pivots, _info = _lu(c, x)
    diagonal = _diagonal(factors)
    size = diagonal.do("abs")
    sign = reductions.prod_(diagonal.do("sign"), [-1]) * _swaps(pivots, x.dtype)
    return sign, reductions.sum_(size.do("log"), [-1]), factors, pivots


def _qr(c: AtenCall, x: Term, mode: str = "reduced") -> tuple[Term, Term]:
    rows, columns = x.dims[-2:]
    short = min(rows, columns)
    found, tau = _routine(c, "geqrf", [x], [x.shape, _batch(x, short)])
    upper = shaping.triu(found)
    width = rows if mode == "complete" else short
    r = upper if mode == "complete" else shaping.slice_in_dim(upper, 0, short, -2)
    if mode == "r":
        return shaping.full(c.graph, 0, x.dtype, (0,)), r
    reflectors = shaping.slice_in_dim(found, 0, short, -1)
    if width > short:
        high = [0] * (x.rank - 1) + [width - short]
        reflectors = shaping.pad(reflectors, 0, [0] * x.rank, high)
    name = "ungqr" if x.dtype in _REAL else "orgqr"
    (q,) = _routine(c, name, [reflectors, tau], [reflectors.shape])
    return q, r


def _eigh(c: AtenCall, x: Term, uplo: str = "L", compute_v: bool = True) -> tuple[Term, Term]:
    real, n = _real(x.dtype), x.dims[-1]
    shapes = x.shape, _batch(x, n, dtype=real), _batch(x, dtype=s32)
    name = "heevd" if x.dtype in _REAL else "syevd"
    flags = {"mode": "V" if compute_v else "N", "uplo": uplo.upper()}
    vectors, values, info = _routine(c, name, [x], shapes, **flags)
    empty = shaping.full(c.graph, 0, x.dtype, (0,))
    return _where_done(values, info), _where_done(vectors, info) if compute_v else empty


def _svd(
    c: AtenCall,
    x: Term,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[Term, Term, Term]:
    rows, columns = x.dims[-2:]
    short = min(rows, columns)
    left = _batch(x, rows, rows if full_matrices else short)
    right = _batch(x, columns if full_matrices else short, columns)
    values = _batch(x, short, dtype=_real(x.dtype))
    mode = "N" if not compute_uv else "A" if full_matrices else "S"
    shapes = x.shape, values, left, right, _batch(x, dtype=s32)
    _rest, s, u, vh, info = _routine(c, "gesdd", [x], shapes, mode=mode)
    s, u, vh = (_where_done(part, info) for part in (s, u, vh))
    empty = shaping.full(c.graph, 0, x.dtype, (0,))
    return (u, s, vh) if compute_uv else (empty, s, empty)


def _solve_triangular(
    c: AtenCall, a: Term, b: Term, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Term:
    a = shaping.broadcast_to(a, (*c.dims[:-2], *a.dims[-2:]))
    b = shaping.broadcast_to(b, c.dims)
    found = c.graph.add(
        "triangular-solve",
        b.shape,
        [a.value, b.value],
        left_side=left,
        lower=not upper,
        unit_diagonal=unitriangular,
        transpose_a="NO_TRANSPOSE",
    )
    return Term(c.graph, found)


def _cholesky_solve(c: AtenCall, b: Term, factor: Term, upper: bool = False) -> Term:
    turned = shaping.swap_axes(factor, -1, -2)
    turned = conj(turned) if factor.dtype in _REAL else turned
    first, second = (turned, factor) if upper else (factor, turned)
    half = _solve_triangular(c, first, b, upper=False)
    return _solve_triangular(c, second, half, upper=True)


ROWS: Rows = {
    "aten.linalg_cholesky_ex.default": _cholesky,
    "aten.linalg_lu_factor_ex.default": _lu_factor,
    "aten._linalg_solve_ex.default": _solve,
    "aten.linalg_inv_ex.default": _inverse,
    "aten._linalg_det.default": _determinant,
    "aten._linalg_slogdet.default": _log_determinant,
    "aten.linalg_qr.default": _qr,
    "aten._linalg_eigh.default": _eigh,
    "aten._linalg_svd.default": _svd,
    "aten.linalg_solve_triangular.default": _solve_triangular,
    "aten.cholesky_solve.default": _cholesky_solve,
}
