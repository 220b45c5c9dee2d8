"""QR factors of batches of small matrices: loops over columns, in lanes over a batch.

A reflector is ``I - tau v v^T`` with ``v`` zero above the diagonal and 1 on it, as LAPACK has it.
Golub and Van Loan, Matrix Computations, algorithms 5.1.1, 5.2.1 and section 5.1.6.
"""

from __future__ import annotations

from math import prod

from ....dtypes import f32, s32, s64
from ...nodes import Instruction, Shape
from ...patterns import build
from ...patterns.counted import Values, counted_loop
from ...rewrite import make
from .columns import compare, less, over, put, reduce, select


def factored(origin: Instruction, a: Instruction) -> tuple[Instruction, Instruction]:
    """Return R above the reflectors of ``a[..., m, n]``, and their ``tau``."""
    *batch, m, n = a.array.dims
    count, steps, dtype = prod(batch), min(m, n), a.array.dtype
    given = build.transpose(build.reshape(a, (count, m, n)), (1, 2, 0))
    starts = [given, build.full(0, dtype, (steps, count))]
    made, tau = counted_loop(origin, steps, starts, [], _reflect)
    return (
        build.reshape(build.transpose(made, (2, 0, 1)), (*batch, m, n)),
        build.reshape(build.transpose(tau, (1, 0)), (*batch, steps)),
    )


def _reflect(number: Instruction, carried: Values, fixed: Values) -> Values:
    """Find the reflector that clears a column below the diagonal, and apply it to later ones."""
    a, factors = carried
    (m, n, count), dtype = a.array.dims, a.array.dtype
    zero, k = build.full(0, dtype, (count,)), build.convert(number, s32)
    column = build.reshape(build.rows(a, number, 1, 1), (m, count))
    row, here = build.iota(s32, (m, count)), over(k, (m, count))
    below = select(compare("GT", row, here), column, build.full(0, dtype, (m, count)))
    alpha = build.reshape(build.rows(column, number, 1), (count,))
    most = reduce("maximum", build.pointwise("abs", below), build.scalar(0, dtype))
    still = compare("EQ", most, zero)
    beta = select(still, alpha, _opposite(_norm(alpha, below, most), alpha))
    apart = build.pointwise("subtract", alpha, beta)
    tau = select(still, zero, build.pointwise("divide", build.pointwise("negate", apart), beta))
    by = select(still, build.full(1, dtype, (count,)), apart)
    v = build.pointwise("divide", below, over(by, (m, count), 1))
    told = select(compare("GT", row, here), v, column)
    told = select(compare("EQ", row, here), over(beta, (m, count), 1), told)
    later = _reflected(a, _reflector(v, k), tau)
    place, at = build.iota(s32, (m, n, count), 1), over(k, (m, n, count))
    kept = select(compare("GT", place, at), later, a)
    turned = build.broadcast(told, (0, 2), (m, n, count))
    return [select(compare("EQ", place, at), turned, kept), put(factors, tau, number)]


def _reflector(column: Instruction, k: Instruction) -> Instruction:
    """Return ``v`` of row ``k``: what a column has below it, and 1 there."""
    dims, dtype = column.array.dims, column.array.dtype
    row, here = build.iota(s32, dims), over(k, dims)
    below = select(compare("GT", row, here), column, build.full(0, dtype, dims))
    return select(compare("EQ", row, here), build.full(1, dtype, dims), below)


def _norm(alpha: Instruction, below: Instruction, most: Instruction) -> Instruction:
    """Return the length of a column, scaled so that no square overflows or underflows.

    ``most`` is the largest size of what is ``below`` the number ``alpha``.
    """
    (m, count), dtype = below.array.dims, below.array.dtype
    most = build.pointwise("maximum", most, build.pointwise("abs", alpha))
    by = select(
        compare("GT", most, build.full(0, dtype, (count,))), most, build.full(1, dtype, (count,))
    )
    first, rest = (
        build.pointwise("divide", alpha, by),
        build.pointwise("divide", below, over(by, (m, count), 1)),
    )
    squares = reduce("add", build.pointwise("multiply", rest, rest), build.scalar(0, dtype))
    total = build.pointwise("add", squares, build.pointwise("multiply", first, first))
    return build.pointwise("multiply", by, build.pointwise("sqrt", total))


def _opposite(size: Instruction, sign: Instruction) -> Instruction:
    """Return a size with the other sign than a number, so that their difference loses nothing.

    Of zeros the sign counts as well: LAPACK's ``R`` has a row of the other sign for ``-0``.
    """
    integer = s32 if sign.array.dtype == f32 else s64
    bits = make("bitcast-convert", Shape(integer, sign.array.dims), (sign,))
    below = compare("LT", bits, build.full(0, integer, sign.array.dims))
    return select(below, size, build.pointwise("negate", size))


def _reflected(a: Instruction, v: Instruction, tau: Instruction) -> Instruction:
    """Return ``a - tau v (v^T a)`` of ``a[m, n, batch]``."""
    m, n, count = a.array.dims
    products = build.pointwise("multiply", build.broadcast(v, (0, 2), (m, n, count)), a)
    sums = reduce("add", products, build.scalar(0, a.array.dtype))
    return less(a, v, build.pointwise("multiply", over(tau, (n, count), 1), sums))


def made_whole(origin: Instruction, a: Instruction, tau: Instruction) -> Instruction:
    """Return the first columns of Q, as many as ``a[..., m, n]`` has, of reflectors in ``a``."""
    (*batch, m, n), dtype = a.array.dims, a.array.dtype
    count, steps = prod(batch), tau.array.dims[-1]
    given = build.transpose(build.reshape(a, (count, m, n)), (1, 2, 0))
    factors = build.transpose(build.reshape(tau, (count, steps)), (1, 0))
    dims = (m, n, count)
    one = compare("EQ", build.iota(s32, dims), build.iota(s32, dims, 1))
    start = select(one, build.full(1, dtype, dims), build.full(0, dtype, dims))

    def iteration(number: Instruction, carried: Values, fixed: Values) -> Values:
        (q,), (given, factors) = carried, fixed
        at = build.pointwise("subtract", build.scalar(steps - 1, s64), number)
        column = build.reshape(build.rows(given, at, 1, 1), (m, count))
        v = _reflector(column, build.convert(at, s32))
        return [_reflected(q, v, build.reshape(build.rows(factors, at, 1), (count,)))]

    (q,) = counted_loop(origin, steps, [start], [given, factors], iteration)
    return build.reshape(build.transpose(q, (2, 0, 1)), a.array.dims)
