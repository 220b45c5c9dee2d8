"""Factors and triangular systems of small matrices, written out: arithmetic on whole batches.

A routine of LAPACK is a call of the host for each matrix. What a few rows take is less than that,
goes through all matrices of a batch in lanes, and is part of the loops around it. The results are
the routine's up to rounding: pivots count from 1, ``info`` is the first that failed.
Golub and Van Loan, Matrix Computations, algorithms 3.1.1, 3.4.1 and 4.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from ....dtypes import f32, f64, s32
from ....errors import LibraryError
from ....library import registry
from ....library.lapack import Flags
from ...library import library_call
from ...nodes import HloModule, Instruction, Shape, SliceDim
from ...patterns import build
from ...rewrite import make, map_computations, rebuild
from . import batched_factors, batched_reflectors
from .columns import compare, select

Cells: TypeAlias = list[list[Instruction]]
"""The elements of matrices by row and column, each an array of the batch's shape."""

FACTORED = 4
"""Rows and columns, up to which LU and Cholesky factors are written out: some 100 operations."""

SOLVED = 8
"""Rows, up to which triangular systems are."""


def expand_small_factors(module: HloModule) -> HloModule:
    """``cholesky`` and ``triangular-solve`` of few rows, and LAPACK's, become arithmetic."""
    return map_computations(module, lambda c: rebuild(c, _rule))


def _rule(i: Instruction) -> Instruction | None:
    name = i.opcode
    if name == "custom-call":
        name = str(i.attrs.get("custom_call_target", ""))
        if registry.is_registered(name):
            return None
    expand = _EXPANSIONS.get(name)
    if expand is None or not i.operands or not all(map(_is_real, i.operands)):
        return None
    if len(i.operands[0].array.dims) < 2:
        return None
    try:
        return expand(i)
    except LibraryError:  # flags that are none: the routine's function says so
        return None


def _is_real(x: Instruction) -> bool:
    match x.shape:
        case Shape(dtype=dtype, dims=dims, dynamic=dynamic):
            return dtype in (f32, f64) and bool(dims) and 0 not in dims and not any(dynamic)
        case _:
            return False


def _cholesky(i: Instruction) -> Instruction | None:
    (a,) = i.operands
    *batch, n, _ = a.array.dims
    lower = bool(i.attrs.get("lower", False))
    if n > FACTORED:
        return _looped_cholesky(i, lower) if batched_factors.pays(a) else None
    made, good = _factor(_cells(a) if lower else _turned(_cells(a)))
    nan = build.full(float("nan"), a.array.dtype, tuple(batch))
    zero = build.full(0, a.array.dtype, tuple(batch))
    kept = [[select(good, made[r][c] if c <= r else zero, nan) for c in range(n)] for r in range(n)]
    return _matrix(kept if lower else _turned(kept))


def _looped_cholesky(i: Instruction, lower: bool) -> Instruction:
    (a,) = i.operands
    *batch, _, _ = dims = a.array.dims
    dtype = a.array.dtype
    made, diagonal = batched_factors.cholesky(i, a, lower)
    bad = batched_factors.first_without(_finite_or_zero(diagonal))
    good = compare("EQ", build.reshape(bad, tuple(batch)), _number(0, batch))
    kept = select(_triangle(dims, lower), made, build.full(0, dtype, dims))
    whole = build.broadcast(good, tuple(range(len(batch))), dims)
    return select(whole, kept, build.full(float("nan"), dtype, dims))


def _finite_or_zero(x: Instruction) -> Instruction:
    zero = build.full(0, x.array.dtype, x.array.dims)
    return select(build.pointwise("is-finite", x), x, zero)


def _looped_potrf(a: Instruction, i: Instruction, lower: bool) -> Instruction:
    *batch, _, _ = dims = a.array.dims
    made, diagonal = batched_factors.cholesky(i, a, lower)
    kept = select(_triangle(dims, lower), made, a)
    info = build.reshape(batched_factors.first_without(diagonal), tuple(batch))
    return build.tuple_of([kept, info])


def _triangle(dims: tuple[int, ...], lower: bool) -> Instruction:
    """Return where the lower triangle of matrices is, or the upper one."""
    row, column = (build.iota(s32, dims, len(dims) - d) for d in (2, 1))
    return compare("GE" if lower else "LE", row, column)


def _potrf(i: Instruction) -> Instruction | None:
    """The factor in its triangle, the other one as it was; ``info`` says where it failed."""
    (a,) = i.operands
    *batch, n, _ = a.array.dims
    lower = Flags(library_call(i)).letter("uplo") == "L"
    if n > FACTORED:
        return _looped_potrf(a, i, lower) if batched_factors.pays(a) else None
    given = _cells(a) if lower else _turned(_cells(a))
    made, _ = _factor(given)
    kept = [[(made if c <= r else given)[r][c] for c in range(n)] for r in range(n)]
    info = _number(0, batch)
    for r in reversed(range(n)):
        positive = compare("GT", made[r][r], build.full(0, a.array.dtype, tuple(batch)))
        info = select(positive, info, _number(r + 1, batch))
    return build.tuple_of([_matrix(kept if lower else _turned(kept)), info])


def _factor(a: Cells) -> tuple[Cells, Instruction]:
    """Return the lower Cholesky factor of the lower triangle, and where its diagonal is good."""
    n = len(a)
    made: Cells = [list(row) for row in a]
    good: Instruction | None = None
    for c in range(n):
        for r in range(c, n):
            for k in range(c):
                made[r][c] = _less(made[r][c], made[r][k], made[c][k])
            root = build.pointwise("sqrt", made[r][c])
            made[r][c] = root if r == c else build.pointwise("divide", made[r][c], made[c][c])
        zero = build.full(0, root.array.dtype, root.array.dims)
        positive = compare("GT", made[c][c], zero)
        finite = build.pointwise("and", positive, build.pointwise("is-finite", made[c][c]))
        good = finite if good is None else build.pointwise("and", good, finite)
    assert good is not None
    return made, good


def _getrf(i: Instruction) -> Instruction | None:
    (a,) = i.operands
    *batch, m, n = a.array.dims
    if max(m, n) > FACTORED:
        return build.tuple_of(batched_factors.lu(i, a)) if batched_factors.pays(a) else None
    rows, pivots, info = _cells(a), [], _number(0, batch)
    for k in range(min(m, n)):
        at = _pivot(rows, k, batch)
        pivots.append(build.pointwise("add", at, _number(1, batch)))
        _swap(rows, k, at, batch)
        zero = compare("EQ", rows[k][k], build.full(0, a.array.dtype, tuple(batch)))
        first = build.pointwise("and", zero, compare("EQ", info, _number(0, batch)))
        info = select(first, _number(k + 1, batch), info)
        one = build.full(1, a.array.dtype, tuple(batch))
        by = select(zero, one, rows[k][k])
        for r in range(k + 1, m):
            rows[r][k] = build.pointwise("divide", rows[r][k], by)
            for c in range(k + 1, n):
                rows[r][c] = _less(rows[r][c], rows[r][k], rows[k][c])
    return build.tuple_of([_matrix(rows), _joined(pivots), info])


def _pivot(rows: Cells, k: int, batch: Sequence[int]) -> Instruction:
    """Return the row, from ``k`` on, of the largest element of a column: the first of equals."""
    at = _number(k, batch)
    most = build.pointwise("abs", rows[k][k])
    for r in range(k + 1, len(rows)):
        size = build.pointwise("abs", rows[r][k])
        more = compare("GT", size, most)
        most, at = select(more, size, most), select(more, _number(r, batch), at)
    return at


def _swap(rows: Cells, k: int, at: Instruction, batch: Sequence[int]) -> None:
    """Swap row ``k`` with the row ``at``, which is one of those from ``k`` on."""
    old = list(rows[k])
    for r in range(k + 1, len(rows)):
        here = compare("EQ", at, _number(r, batch))
        for c, x in enumerate(old):
            rows[k][c], rows[r][c] = (
                select(here, rows[r][c], rows[k][c]),
                select(here, x, rows[r][c]),
            )


def _geqrf(i: Instruction) -> Instruction | None:
    (a,) = i.operands
    if not batched_factors.pays(a):
        return None
    return build.tuple_of(batched_reflectors.factored(i, a))


def _orgqr(i: Instruction) -> Instruction | None:
    if len(i.operands) != 2:
        return None
    a, tau = i.operands
    (*batch, m, n), (*others, steps) = a.array.dims, tau.array.dims
    fits = m >= n >= steps and batch == others and a.array.dtype == tau.array.dtype
    if not fits or not batched_factors.pays(a):
        return None
    return batched_reflectors.made_whole(i, a, tau)


def _triangular_solve(i: Instruction) -> Instruction | None:
    get = i.attrs.get
    turned = str(get("transpose_a", "NO_TRANSPOSE")) in ("TRANSPOSE", "ADJOINT")
    left, lower = bool(get("left_side", False)), bool(get("lower", False))
    return _solved(i, left, lower, bool(get("unit_diagonal", False)), turned)


def _trsm(i: Instruction) -> Instruction | None:
    flags = Flags(library_call(i))
    unit, left = flags.letter("diag", 0) == "U", flags.letter("side", 1) == "L"
    turned, lower = flags.letter("trans_x", 2) in "TC", flags.letter("uplo", 3) == "L"
    return _solved(i, left, lower, unit, turned)


def _solved(
    i: Instruction, left: bool, lower: bool, unit: bool, turned: bool
) -> Instruction | None:
    """Return x of ``op(a) x = b``, or of ``x op(a) = b`` unless ``left``: by rows, or columns."""
    if len(i.operands) != 2:
        return None
    a, b = i.operands
    *batch, n, _ = a.array.dims
    side = -2 if left else -1
    if len(b.array.dims) != len(a.array.dims):
        return None
    fits = a.array.dims[-1] == n == b.array.dims[side] and list(b.array.dims[:-2]) == batch
    if not fits or a.array.dtype != b.array.dtype:
        return None
    if n > SOLVED:
        by_loop = batched_factors.pays_to_solve(a, b)
        return _looped_solve(i, left, lower, unit, turned) if by_loop else None
    coefficients = _cells(a)
    if turned == left:  # x a = b is a' x' = b'
        coefficients = _turned(coefficients)
        lower = not lower
    x = _strips(b, side)
    for r in range(n) if lower else reversed(range(n)):
        for k in range(r) if lower else range(r + 1, n):
            x[r] = _less(x[r], _spread(coefficients[r][k], x[r]), x[k])
        if not unit:
            x[r] = build.pointwise("divide", x[r], _spread(coefficients[r][r], x[r]))
    at = len(batch) + (0 if left else 1)
    dims = [1 if d == at else size for d, size in enumerate(b.array.dims)]
    return make("concatenate", b.array, [build.reshape(v, dims) for v in x], dimensions=(at,))


def _looped_solve(i: Instruction, left: bool, lower: bool, unit: bool, turned: bool) -> Instruction:
    a, b = i.operands
    (*batch, rows, columns), n = b.array.dims, a.array.dims[-1]
    count = prod(batch)
    if turned == left:
        a_order, lower = (2, 1, 0), not lower
    else:
        a_order = (1, 2, 0)
    given = build.transpose(build.reshape(a, (count, n, n)), a_order)
    b_order = (1, 2, 0) if left else (2, 1, 0)
    sides = build.transpose(build.reshape(b, (count, rows, columns)), b_order)
    x = batched_factors.solve(i, given, sides, lower, unit)
    return build.reshape(build.transpose(x, (2, 0, 1) if left else (2, 1, 0)), b.array.dims)


def _cells(a: Instruction) -> Cells:
    return [_strips(row, -1) for row in _strips(a, -2)]


def _strips(a: Instruction, dim: int) -> list[Instruction]:
    """Return the parts of an array at each index of a dimension, which they lack."""
    dims = a.array.dims
    at = dim % len(dims)
    rest = tuple(n for d, n in enumerate(dims) if d != at)
    one = Shape(a.array.dtype, tuple(1 if d == at else n for d, n in enumerate(dims)))
    found = []
    for k in range(dims[at]):
        cut = tuple(SliceDim(k, k + 1) if d == at else SliceDim(0, n) for d, n in enumerate(dims))
        found.append(build.reshape(make("slice", one, (a,), slice=cut), rest))
    return found


def _matrix(cells: Cells) -> Instruction:
    batch = cells[0][0].array.dims
    flat = _joined([x for row in cells for x in row])
    return build.reshape(flat, (*batch, len(cells), len(cells[0])))


def _joined(values: Sequence[Instruction]) -> Instruction:
    """Return arrays side by side, along a new last dimension."""
    dims = values[0].array.dims
    shape = Shape(values[0].array.dtype, (*dims, len(values)))
    parts = [build.reshape(v, (*dims, 1)) for v in values]
    return make("concatenate", shape, parts, dimensions=(len(dims),))


def _turned(cells: Cells) -> Cells:
    return [list(column) for column in zip(*cells, strict=True)]


def _spread(cell: Instruction, like: Instruction) -> Instruction:
    dims = like.array.dims
    return build.broadcast(cell, tuple(range(len(dims) - 1)), dims)


def _less(x: Instruction, a: Instruction, b: Instruction) -> Instruction:
    """Return ``x - a b``."""
    return build.pointwise("subtract", x, build.pointwise("multiply", a, b))


def _number(value: int, batch: Sequence[int]) -> Instruction:
    return build.full(value, s32, tuple(batch))


_LAPACK: Mapping[str, Callable[[Instruction], Instruction | None]] = {
    "getrf": _getrf,
    "potrf": _potrf,
    "trsm": _trsm,
    "geqrf": _geqrf,
    "orgqr": _orgqr,
}
_EXPANSIONS: Mapping[str, Callable[[Instruction], Instruction | None]] = {
    "cholesky": _cholesky,
    "triangular-solve": _triangular_solve,
    "Qr": _geqrf,
    "ProductOfElementaryHouseholderReflectors": _orgqr,
    **{f"lapack_{t}{name}_ffi": f for name, f in _LAPACK.items() for t in "sd"},
}
