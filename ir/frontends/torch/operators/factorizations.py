"""Factorizations of matrices and systems of equations, by calls of LAPACK's routines.

Where a matrix has no such factor, as a singular one no inverse, torch raises an error after it has
looked at ``info``; here what it computed is NaN. Batches go through a routine one by one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cache

import numpy as np

from ....dtypes import DType, c64, c128, f32, f64, s32, to_numpy
from ....hlo.nodes import Raw, Shape, TupleShape
from ...lax import control, indexing, linear, reductions, shaping
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


def _factored(c: AtenCall, x: Term) -> tuple[Term, Term]:
    """L and U, and pivots, as torch's determinants hand them to their gradients.

    They are of the transposed matrix where the operand is real and in row-major order: LAPACK reads
    that one without a copy, and the gradients take it so.
    """
    factors, pivots, _info = _lu(c, shaping.swap_axes(x, -1, -2) if _turns(c, x) else x)
    return factors, pivots


@cache
def solutions_turn() -> bool:
    """True if this torch factors such matrices transposed for solutions, too, as 2.9 does."""
    if "torch" not in sys.modules:
        return False
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        return bool(torch._linalg_solve_ex(a, a)[1][0, 0] == 2)


def _turns(c: AtenCall, a: Term) -> bool:
    expected, plain = 1, True
    strides = c.first[0] if c.first is not None else ()
    for size, stride in zip(reversed(a.dims), reversed(strides), strict=False):
        plain = plain and (size == 1 or stride == expected)
        expected *= size
    return a.dtype not in _REAL and (plain or not a.shape.size)


def _solved(c: AtenCall, a: Term, b: Term) -> tuple[Term, Term]:
    """Return what solves ``a x = b``, and ``info``, for matrices ``b``."""
    shapes = a.shape, _batch(a, a.dims[-1], dtype=s32), b.shape, _batch(a, dtype=s32)
    _factors, _pivots, found, info = _routine(c, "gesv", [a, b], shapes)
    return _where_done(found, info), info


def _solve(
    c: AtenCall, a: Term, b: Term, *, left: bool = True, **_: bool
) -> tuple[Term, Term, Term, Term]:
    vector = b.rank == 1 or (b.rank + 1 == a.rank and b.dims == a.dims[:-1])
    columns = shaping.expand_dims(b, [b.rank]) if vector else b
    lead = c.dims[: len(c.dims) - (1 if vector else 2)]
    every = shaping.broadcast_to(a, (*lead, *a.dims[-2:]))
    columns = shaping.broadcast_to(columns, (*lead, *columns.dims[-2:]))
    if left or vector:
        found, info = _solved(c, every, columns)
    else:
        rows = shaping.swap_axes(columns, -1, -2)
        found, info = _solved(c, shaping.swap_axes(every, -1, -2), rows)
        found = shaping.swap_axes(found, -1, -2)
    found = shaping.squeeze(found, [-1]) if vector else found
    turned = solutions_turn() and _turns(c, a)
    factors, pivots, _info = _lu(c, shaping.swap_axes(every, -1, -2) if turned else every)
    return found, factors, pivots, info


def _inverse(c: AtenCall, x: Term, **_: bool) -> tuple[Term, Term]:
    return _solved(c, x, _unit(x))


def _diagonal(x: Term) -> Term:
    rows, columns = (shaping.iota(x.site, s32, x.dims, x.rank - k) for k in (2, 1))
    return reductions.sum_(rows.equals(columns).select(x, 0), [-1])


def _swaps(pivots: Term, dtype: DType) -> Term:
    """-1 for an odd number of rows that were swapped, else 1."""
    own = shaping.iota(pivots.site, s32, pivots.dims, pivots.rank - 1) + 1
    return reductions.prod_(1 - pivots.differs(own).to(dtype) * 2, [-1])


def _determinant(c: AtenCall, x: Term) -> tuple[Term, Term, Term]:
    factors, pivots = _factored(c, x)
    return reductions.prod_(_diagonal(factors), [-1]) * _swaps(pivots, x.dtype), factors, pivots


def _log_determinant(c: AtenCall, x: Term) -> tuple[Term, Term, Term, Term]:
    factors, pivots = _factored(c, x)
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
    if full_matrices and not short:  # LAPACK leaves them as they were
        u, vh = (_unit(shaping.full(c.graph, 0, x.dtype, part.dims)) for part in (u, vh))
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


def _pseudo_inverse(
    c: AtenCall,
    x: Term,
    *,
    atol: Term | None = None,
    rtol: Term | None = None,
    hermitian: bool = False,
) -> Term:
    """By singular values, or those of a Hermitian matrix; what is below both limits is left out."""
    if not c.shape.size:
        return shaping.full(c.graph, 0, c.dtype, c.dims)
    real = _real(x.dtype)
    if hermitian:
        values, left = _eigh(c, x)
        right = shaping.swap_axes(conj(left) if x.dtype in _REAL else left, -1, -2)
        sizes = values.do("abs")
    else:
        left, sizes, right = _svd(c, x)
        values = sizes
    share = float(np.finfo(to_numpy(real)).eps) * max(x.dims[-2:])
    largest = reductions.max_(sizes, [-1], keep=True)
    least = largest * share if rtol is None else _limit(rtol, largest) * largest
    if atol is not None:
        given = _limit(atol, largest)
        least = least.do("maximum", given) if rtol is not None else (given > 0).select(given, least)
    kept = sizes > shaping.broadcast_to(least, sizes.dims)
    inverse = kept.select(1 / kept.select(values, 1), 0).to(x.dtype)
    both = [shaping.swap_axes(p, -1, -2) for p in (left, right)]
    u, v = (conj(p) if x.dtype in _REAL else p for p in both)
    scaled = v * shaping.broadcast_to(shaping.expand_dims(inverse, [-2]), v.dims)
    return linear.matmul(scaled, u)


def _limit(given: Term, like: Term) -> Term:
    """A limit for each matrix, or one for all."""
    return shaping.broadcast_to(shaping.expand_dims(given.to(like.dtype), [given.rank]), like.dims)


def _older_triangular_solve(
    c: AtenCall,
    b: Term,
    a: Term,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Term, Term]:
    lead = c.dims[:-2]
    a, b = (shaping.broadcast_to(x, (*lead, *x.dims[-2:])) for x in (a, b))
    turned = shaping.swap_axes(a, -1, -2) if transpose else a
    flags = {"upper": upper is not transpose, "unitriangular": unitriangular}
    return _solve_triangular(c, turned, b, **flags), a


def _older_cholesky(c: AtenCall, x: Term, upper: bool = False) -> Term:
    return _cholesky(c, x, upper=upper)[0]


def _unit(x: Term) -> Term:
    """The unit matrix, for each matrix of ``x``."""
    rows, columns = (shaping.iota(x.site, s32, x.dims[-2:], axis) for axis in (0, 1))
    return shaping.broadcast_to(rows.equals(columns).to(x.dtype), x.dims)


def _cholesky_inverse(c: AtenCall, factor: Term, upper: bool = False) -> Term:
    return _cholesky_solve(c, _unit(factor), factor, upper)


def _order(pivots: Term, rows: int) -> Term:
    """The numbers of rows, ``[.., rows]``, in the order that swaps by pivots bring them into."""
    dims = (*pivots.dims[:-1], rows)
    own = shaping.iota(pivots.site, s32, dims, len(dims) - 1)

    if not pivots.shape.size:
        return own

    def part(x: Term, k: Term) -> Term:
        return indexing.dynamic_slice(x, [*[0] * (x.rank - 1), k], [*x.dims[:-1], 1])

    def swap(k: Term, order: Term) -> list[Term]:
        to = shaping.broadcast_to(part(pivots, k) - 1, dims)
        here = shaping.broadcast_to(part(order, k), dims)
        there = reductions.sum_(own.equals(to).select(order, 0), [-1], keep=True)
        there = shaping.broadcast_to(there, dims)
        return [own.equals(k).select(there, own.equals(to).select(here, order))]

    return control.fori_loop(pivots.dims[-1], swap, [own])[0]


def _unpacked(c: AtenCall, factors: Term, pivots: Term) -> tuple[Term, Term, Term]:
    """P, L and U."""
    rows, columns = factors.dims[-2:]
    short = min(rows, columns)
    lower = shaping.tril(shaping.slice_in_dim(factors, 0, short, -1), -1)
    upper = shaping.triu(shaping.slice_in_dim(factors, 0, short, -2))
    dims = (*factors.dims[:-2], rows, rows)
    own = shaping.iota(c.graph, s32, dims, len(dims) - 2)
    taken = shaping.broadcast_to(shaping.expand_dims(_order(pivots, rows), [-2]), dims)
    diagonal = [shaping.iota(c.graph, s32, lower.dims, lower.rank - k) for k in (2, 1)]
    unit = diagonal[0].equals(diagonal[1]).select(lower.number(1).like(lower.shape), lower)
    return own.equals(taken).to(factors.dtype), unit, upper


def _lu_unpack(
    c: AtenCall, factors: Term, pivots: Term, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Term, Term, Term]:
    places, lower, upper = _unpacked(c, factors, pivots)
    empty = shaping.full(c.graph, 0, factors.dtype, (0,))
    data = (lower, upper) if unpack_data else (empty, empty)
    return places if unpack_pivots else empty, *data


def _lu_parts(c: AtenCall, x: Term, *, pivot: bool = True) -> tuple[Term, Term, Term]:
    factors, pivots, _info = _lu_factor(c, x, pivot=pivot)
    return _unpacked(c, factors, pivots)


def _lu_solve(
    c: AtenCall, factors: Term, pivots: Term, b: Term, *, left: bool = True, adjoint: bool = False
) -> Term:
    """Solve ``a x = b``, with the adjoint of ``a`` or from the right if so asked."""
    if not c.shape.size:
        return shaping.full(c.graph, 0, c.dtype, c.dims)
    lead = c.dims[:-2]
    factors, b = (shaping.broadcast_to(x, (*lead, *x.dims[-2:])) for x in (factors, b))
    pivots = shaping.broadcast_to(pivots, (*lead, pivots.dims[-1]))
    if not left:  # of x a = b both sides are transposed
        b = shaping.swap_axes(b, -1, -2)
        factors = conj(factors) if adjoint and factors.dtype in _REAL else factors
    order = _order(pivots, factors.dims[-1])
    if left is adjoint:
        how = "ADJOINT" if left else "TRANSPOSE"
        half = _triangular(factors, b, lower=False, how=how)
        found = _in_order(_triangular(factors, half, lower=True, how=how), _inverted(order))
    else:
        half = _triangular(factors, _in_order(b, order), lower=True)
        found = _triangular(factors, half, lower=False)
    return found if left else shaping.swap_axes(found, -1, -2)


def _in_order(x: Term, order: Term) -> Term:
    rows = shaping.broadcast_to(shaping.expand_dims(order, [-1]), x.dims)
    return indexing.take_along_axis(x, rows, -2)


def _inverted(order: Term) -> Term:
    """The places of numbers in an order."""
    dims = (*order.dims, order.dims[-1])
    wanted, place = (shaping.iota(order.site, s32, dims, len(dims) - k) for k in (2, 1))
    there = shaping.broadcast_to(shaping.expand_dims(order, [-2]), dims)
    return reductions.sum_(there.equals(wanted).select(place, 0), [-1])


def _triangular(factors: Term, b: Term, *, lower: bool, how: str = "NO_TRANSPOSE") -> Term:
    """Solve a system of one triangle; the diagonal of the lower one is of ones."""
    found = factors.site.add(
        "triangular-solve",
        b.shape,
        [factors.value, b.value],
        left_side=True,
        lower=lower,
        unit_diagonal=lower,
        transpose_a=how,
    )
    return Term(factors.site, found)


_MOST_HALVINGS = 1100  # more than any finite norm asks for
PADE = {
    f32: (3.925724783138660, (17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1)),
    f64: (
        5.371920351148152,
        (
            64764752532480000,
            32382376266240000,
            7771770303897600,
            1187353796428800,
            129060195264000,
            10559470521600,
            670442572800,
            33522128640,
            1323241920,
            40840800,
            960960,
            16380,
            182,
            1,
        ),
    ),
}
"""The norm up to which a Padé approximant of exp is exact enough, and its coefficients
(N. Higham, 2005)."""


def _exponential(c: AtenCall, x: Term) -> Term:
    """exp of a matrix: that of a small part of it, squared as often as it was halved."""
    real = _real(x.dtype)
    if real not in PADE:
        c.refuse(f"no approximant of matrices of {x.dtype} is known", "convert the matrix to f32")
    bound, numbers = PADE[real]
    norm = reductions.max_(reductions.sum_(x.do("abs"), [-2]), [-1])
    wanted = ((norm / bound).do("maximum", 1).do("log") / math.log(2)).do("ceil")
    halvings = wanted.do("minimum", _MOST_HALVINGS).to(s32)
    scale = (norm * 0 + 2) ** -halvings.to(real)
    small = x * _for_each(scale, x).to(x.dtype)
    power, square = _unit(x), linear.matmul(small, small)
    even, odd = power * numbers[0], power * numbers[1]
    for k in range(2, len(numbers), 2):
        power = linear.matmul(power, square)
        even, odd = even + power * numbers[k], odd + power * numbers[k + 1]
    odd = linear.matmul(small, odd)
    made = _solved(c, even - odd, even + odd)[0]

    def squared(k: Term, y: Term) -> list[Term]:
        return [_for_each(k < halvings, y).select(linear.matmul(y, y), y)]

    return control.fori_loop(reductions.max_(halvings), squared, [made])[0]


def _for_each(number: Term, x: Term) -> Term:
    """A number for each matrix of ``x``, for all its elements."""
    return shaping.broadcast_to(shaping.expand_dims(number, [-2, -1]), x.dims)


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
    "aten.triangular_solve.default": _older_triangular_solve,
    "aten.linalg_pinv.atol_rtol_tensor": _pseudo_inverse,
    "aten.cholesky.default": _older_cholesky,
    "aten.cholesky_inverse.default": _cholesky_inverse,
    "aten.linalg_lu.default": _lu_parts,
    "aten.lu_unpack.default": _lu_unpack,
    "aten.linalg_lu_solve.default": _lu_solve,
    "aten.linalg_matrix_exp.default": _exponential,
}
