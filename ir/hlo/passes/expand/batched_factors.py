"""LU and Cholesky factors of batches of small matrices: loops over columns, in lanes over a batch.

Each iteration of a loop eliminates one column of all matrices ``[rows, columns, batch]``: what it
reads is contiguous, and the update is one kernel, in place. Rows are not swapped: ``place`` says
where LAPACK would have each by now. An iteration stores its column of L and its row of U aside, so
that what is done need not be kept from further updates.
Golub and Van Loan, Matrix Computations, algorithms 3.4.1 and 4.2.1, right-looking.
"""

from __future__ import annotations

from math import prod

from ....dtypes import s32, s64
from ...nodes import Instruction
from ...patterns import build
from ...patterns.counted import Values, counted_loop
from ...rewrite import make
from .columns import compare, less, over, put, reduce, select

ROWS = 32
"""Rows and columns, up to which a loop beats the routine."""

UPDATES = 1_000_000
"""Elements that all iterations update, up to which it does: what is in caches. Beyond, a routine
does fewer for each matrix, and threads share the matrices."""


def pays(a: Instruction) -> bool:
    """Is a loop over the columns of ``a[..., m, n]`` faster than the routine?"""
    *_, m, n = a.array.dims
    return max(m, n) <= ROWS and min(m, n) * prod(a.array.dims) <= UPDATES


def pays_to_solve(a: Instruction, b: Instruction) -> bool:
    """The same of a system ``a x = b``, or ``x a = b``."""
    n = a.array.dims[-1]
    return n <= ROWS and n * prod(b.array.dims) <= UPDATES


def lu(origin: Instruction, a: Instruction) -> tuple[Instruction, Instruction, Instruction]:
    """Return LAPACK's L and U in one matrix, pivots from 1, and the first zero of the diagonal."""
    *batch, m, n = a.array.dims
    count, steps, dtype = prod(batch), min(m, n), a.array.dtype
    given = build.transpose(build.reshape(a, (count, m, n)), (1, 2, 0))
    starts = [
        given,
        build.iota(s32, (m, count)),
        build.full(0, dtype, (steps, m, count)),
        build.full(0, dtype, (steps, n, count)),
        build.full(0, s32, (steps, count)),
    ]
    _, place, lower, upper, pivots = counted_loop(origin, steps, starts, [], _eliminate)
    both = _joined(_ordered(lower, place), build.transpose(upper, (2, 0, 1)))
    zero = compare("EQ", _diagonal(upper), build.full(0, dtype, (steps, count)))
    return (
        build.reshape(both, (*batch, m, n)),
        build.reshape(build.transpose(pivots, (1, 0)), (*batch, steps)),
        build.reshape(_first(zero), tuple(batch)),
    )


def _eliminate(number: Instruction, carried: Values, fixed: Values) -> Values:
    """Choose a pivot, store its row and the multipliers of the others, and update the rest."""
    a, place, lower, upper, pivots = carried
    (m, n, count), dtype = a.array.dims, a.array.dtype
    k = build.convert(number, s32)
    column = build.reshape(build.rows(a, number, 1, 1), (m, count))
    live = compare("GE", place, over(k, (m, count)))
    at = _pivot(column, place, live, k)
    chosen = compare("EQ", place, over(at, (m, count), 1))
    row = _sum(build.broadcast(chosen, (0, 2), (m, n, count)), a)
    pivot = build.reshape(build.rows(row, number, 1), (count,))
    zero = compare("EQ", pivot, build.full(0, dtype, (count,)))
    by = select(zero, build.full(1, dtype, (count,)), pivot)
    below = build.pointwise("and", live, build.pointwise("not", chosen))
    factors = build.pointwise("divide", column, over(by, (m, count), 1))
    factors = select(below, factors, build.full(0, dtype, (m, count)))
    here = compare("EQ", place, over(k, (m, count)))
    moved = select(here, over(at, (m, count), 1), place)
    moved = select(chosen, over(k, (m, count)), moved)
    told = build.pointwise("add", at, build.full(1, s32, (count,)))
    return [
        less(a, factors, row),
        moved,
        put(lower, factors, number),
        put(upper, row, number),
        put(pivots, told, number),
    ]


def _pivot(
    column: Instruction, place: Instruction, live: Instruction, k: Instruction
) -> Instruction:
    """Return the place of the largest element that is live, the first of equals."""
    (m, count), dtype = column.array.dims, column.array.dtype
    low = build.full(-1, dtype, (m, count))
    size = select(live, build.pointwise("abs", column), low)
    most = reduce("maximum", size, build.scalar(-1, dtype))
    none = build.full(m, s32, (m, count))
    places = select(compare("EQ", size, over(most, (m, count), 1)), place, none)
    at = reduce("minimum", places, build.scalar(m, s32))
    found = compare("LT", at, build.full(m, s32, (count,)))
    return select(found, at, over(k, (count,)))  # a NaN is equal to none


def _ordered(lower: Instruction, place: Instruction) -> Instruction:
    """Return L ``[batch, m, steps]`` with its rows, ``[steps, m, batch]``, where they belong."""
    steps, m, count = lower.array.dims
    cube = (m, m, count)
    is_at = compare("EQ", build.broadcast(place, (1, 2), cube), build.iota(s32, cube))
    zero = build.full(0, s32, cube)
    origin = reduce("add", select(is_at, build.iota(s32, cube, 1), zero), build.scalar(0, s32), 1)
    before = build.pointwise(
        "multiply", build.iota(s32, (count, m)), build.full(m, s32, (count, m))
    )
    index = build.pointwise("add", before, build.transpose(origin, (1, 0)))
    rows = build.reshape(build.transpose(lower, (2, 1, 0)), (count * m, steps))
    taken = make(
        "gather",
        rows.array,
        (rows, build.reshape(index, (count * m, 1))),
        offset_dims=(1,),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, steps),
    )
    return build.reshape(taken, (count, m, steps))


def _joined(lower: Instruction, upper: Instruction) -> Instruction:
    """Return L below the diagonal and U from there on, ``[batch, m, n]``."""
    (count, m, steps), n = lower.array.dims, upper.array.dims[2]
    dims = (count, m, n)
    lower, upper = build.extended(lower, 2, n - steps), build.extended(upper, 1, m - steps)
    above = compare("GE", build.iota(s32, dims, 2), build.iota(s32, dims, 1))
    return select(above, upper, lower)


def cholesky(origin: Instruction, a: Instruction, lower: bool) -> tuple[Instruction, Instruction]:
    """Return the factor of the lower triangle, else of the upper one, and its diagonal.

    The diagonal is ``[n, batch]``, NaN or 0 where there is no factor. The other triangle of the
    factor means nothing.
    """
    *batch, n, _ = a.array.dims
    count, dtype = prod(batch), a.array.dtype
    order = (1, 2, 0) if lower else (2, 1, 0)
    given = build.transpose(build.reshape(a, (count, n, n)), order)
    starts = [given, build.full(0, dtype, (n, n, count))]
    _, columns = counted_loop(origin, n, starts, [], _take_out)
    made = build.transpose(columns, (2, 1, 0) if lower else (2, 0, 1))
    return build.reshape(made, (*batch, n, n)), _diagonal(columns)


def _take_out(number: Instruction, carried: Values, fixed: Values) -> Values:
    """Store a column of the factor, and subtract its square from what is left."""
    a, columns = carried
    (n, _, count), dtype = a.array.dims, a.array.dtype
    column = build.reshape(build.rows(a, number, 1, 1), (n, count))
    root = build.pointwise("sqrt", build.reshape(build.rows(column, number, 1), (count,)))
    k, row = over(build.convert(number, s32), (n, count)), build.iota(s32, (n, count))
    scaled = build.pointwise("divide", column, over(root, (n, count), 1))
    below = select(compare("GT", row, k), scaled, build.full(0, dtype, (n, count)))
    made = select(compare("EQ", row, k), over(root, (n, count), 1), below)
    return [less(a, below, below), put(columns, made, number)]


def solve(
    origin: Instruction, a: Instruction, b: Instruction, lower: bool, unit: bool
) -> Instruction:
    """Return x ``[n, q, batch]`` of ``a x = b``, with the triangle of ``a [n, n, batch]``."""
    n, dtype = a.array.dims[0], b.array.dtype

    def iteration(number: Instruction, carried: Values, fixed: Values) -> Values:
        (left, x), (a,) = carried, fixed
        (_, q, count), at = left.array.dims, number
        if not lower:
            at = build.pointwise("subtract", build.scalar(n - 1, s64), number)
        column = build.reshape(build.rows(a, at, 1, 1), (n, count))
        row = build.reshape(build.rows(left, at, 1), (q, count))
        if not unit:
            pivot = build.reshape(build.rows(column, at, 1), (count,))
            row = build.pointwise("divide", row, over(pivot, (q, count), 1))
        x = put(x, row, at)
        # Read from there, the row does not keep the update from being in place.
        row = build.reshape(build.rows(x, at, 1), (q, count))
        return [less(left, column, row), x]

    return counted_loop(origin, n, [b, build.full(0, dtype, b.array.dims)], [a], iteration)[1]


def first_without(diagonal: Instruction) -> Instruction:
    """Return the first row, from 1, whose diagonal element is not positive; 0 where all are."""
    dims = diagonal.array.dims
    positive = compare("GT", diagonal, build.full(0, diagonal.array.dtype, dims))
    return _first(build.pointwise("not", positive))


def _first(where: Instruction) -> Instruction:
    """Return the first row, from 1, of ``[n, batch]`` that is true; 0 where none is."""
    n, count = where.array.dims
    none = build.full(n, s32, (n, count))
    found = select(where, build.iota(s32, (n, count)), none)
    at = reduce("minimum", found, build.scalar(n, s32))
    told = build.pointwise("add", at, build.full(1, s32, (count,)))
    zero = build.full(0, s32, (count,))
    return select(compare("EQ", at, build.full(n, s32, (count,))), zero, told)


def _diagonal(x: Instruction) -> Instruction:
    """Return the diagonal ``[m, batch]`` of ``[m, n, batch]``."""
    dims = x.array.dims
    here = compare("EQ", build.iota(s32, dims), build.iota(s32, dims, 1))
    return _sum(here, x, 1)


def _sum(where: Instruction, x: Instruction, dim: int = 0) -> Instruction:
    """Return the sum, along a dimension, of the elements that are chosen: of one of them."""
    zero = build.scalar(0, x.array.dtype)
    chosen = select(where, x, build.full(0, x.array.dtype, x.array.dims))
    return reduce("add", chosen, zero, dim)
