"""The matrices of minimal filtering F(m, r), and their products as straight-line expressions.

F(m, r) computes m outputs of a filter of r taps with m + r - 1 products instead of m * r:
``y = A^T [(G g) * (B^T d)]`` (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and
Gray, 2015). The matrices come from interpolation at small points and at infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from ..ir.dtypes import DType
from ..ir.loop.build import op
from ..ir.loop.nodes import Const, Expr
from .excess_error import rounding_error

Matrix: TypeAlias = tuple[tuple[Fraction, ...], ...]
_POINTS: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {3: ("0", "1", "-1"), 5: ("0", "3/4", "-3/4", "3/2", "-3/2")}
)
"""The finite points by their number: p and -p in turn, for these share half of their work.

Of five, 3/4 and 3/2 give half the error of the usual 1 and 2, and are exact in binary.
"""


@dataclass(frozen=True, slots=True)
class Filtering:
    """The matrices of F(m, r): ``output`` is A^T, ``weights`` is G, ``input`` is B^T."""

    output: Matrix
    weights: Matrix
    input: Matrix


@lru_cache(maxsize=16)
def filtering(m: int, r: int) -> Filtering:
    """Return the matrices of F(m, r), those of inputs and outputs of integers.

    G has the divisions, since weights are often transformed ahead of time.
    """
    points = tuple(map(Fraction, _POINTS[m + r - 2]))
    others = [[q for q in points if q != p] for p in points]
    output = [[p**i for p in points] + [Fraction(i == m - 1)] for i in range(m)]
    weights = [
        [p**j / math.prod((p - q for q in rest), start=Fraction(1)) for j in range(r)]
        for p, rest in zip(points, others, strict=True)
    ]
    weights.append([Fraction(j == r - 1) for j in range(r)])
    inputs = [[*_polynomial(rest), Fraction(0)] for rest in others]
    inputs.append(_polynomial(points))
    return Filtering(*(tuple(map(tuple, x)) for x in (output, weights, inputs)))


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of the monic polynomial with these roots, the constant first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)
        found = [a - root * b for a, b in shifted]
    return found


def product(matrix: Matrix, values: Sequence[Expr], dtype: DType) -> list[Expr]:
    """Return ``matrix @ values`` as expressions that share what rows have in common.

    Terms are grouped so that rows which differ in signs have equal subexpressions: the code
    generator computes these once.
    """
    if _paired(matrix):
        return [_by_pairs(row, values, dtype) for row in matrix]
    return [_by_parity(row, values, dtype) for row in matrix]


def _paired(matrix: Matrix) -> bool:
    """True if the columns of points p and -p differ in signs only."""
    inner = range(1, len(matrix[0]) - 1, 2)
    return all(abs(row[n]) == abs(row[n + 1]) for row in matrix for n in inner)


def _by_pairs(row: Sequence[Fraction], values: Sequence[Expr], dtype: DType) -> Expr:
    terms = [(row[0], values[0])]
    for n in range(1, len(row) - 1, 2):
        name = "add" if row[n] == row[n + 1] else "subtract"
        terms.append((row[n], op(name, values[n], values[n + 1])))
    return _total([*terms, (row[-1], values[-1])], dtype)


def _by_parity(row: Sequence[Fraction], values: Sequence[Expr], dtype: DType) -> Expr:
    even, odd = (list(zip(row, values, strict=True))[n::2] for n in (0, 1))
    halves = [half for half in (even, odd) if any(c for c, _ in half)]
    if len(halves) == 1:
        return _total(halves[0], dtype)
    scale = next(c for c, _ in reversed(odd) if c)
    part = _total([(c / scale, v) for c, v in odd], dtype)
    return _total([(Fraction(1), _total(even, dtype)), (scale, part)], dtype)


def _total(terms: Sequence[tuple[Fraction, Expr]], dtype: DType) -> Expr:
    """Return a sum of terms; the coefficient 1 comes first, and costs no product."""
    rest = sorted((t for t in terms if t[0]), key=lambda t: (t[0] != 1, t[0] < 0))
    (c, v), *more = rest
    found = v if c == 1 else op("multiply", v, Const(float(c), dtype))
    for c, v in more:
        term = v if abs(c) == 1 else op("multiply", v, Const(float(abs(c)), dtype))
        found = op("add" if c > 0 else "subtract", found, term)
    return found


def product_on_both_sides(
    matrix: Matrix,
    values: Sequence[Sequence[Expr]],
    dtype: DType,
    named: Callable[[Expr], Expr],
) -> list[list[Expr]]:
    """Return ``matrix @ values @ matrix.T``; ``named`` gives each intermediate value a name."""
    columns = [product(matrix, column, dtype) for column in zip(*values, strict=True)]
    rows = zip(*([named(e) for e in column] for column in columns), strict=True)
    return [product(matrix, row, dtype) for row in rows]


def relative_error(m: int, r: int, channels: int) -> float:
    """Estimate the error of F(m x m, r x r) in f32, relative to the root mean square of the result.

    Rounding adds errors of about a unit in the last place to each of the products, in proportion to
    their sizes; A^T adds them up.
    """
    f = filtering(m, r)
    sizes = [_norm2(g) * _norm2(b) for g, b in zip(f.weights, f.input, strict=True)]
    grown = sum(sum(a * a * s for a, s in zip(row, sizes, strict=True)) for row in f.output)
    return rounding_error(channels, float(grown / (m * r)))


def _norm2(row: Sequence[Fraction]) -> Fraction:
    return sum((x * x for x in row), start=Fraction(0))
