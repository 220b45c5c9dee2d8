"""Products of matrices in quadrants with seven products instead of eight, and their powers.

``C = A B`` of 2 x 2 quadrants: ``M[e] = (sum of a[e][q] A[q]) (sum of b[e][q] B[q])`` for seven e,
``C[q] = sum of c[q][e] M[e]`` (Strassen, Gaussian Elimination is not Optimal, 1969). Quadrants that
are multiplied in the same way give 49 products of sixteenths, and so on. Winograd's variant takes
15 sums instead of 18, and adds more to the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..ir.dtypes import DType
from ..ir.loop.build import op
from ..ir.loop.nodes import Expr

Signs: TypeAlias = tuple[tuple[int, ...], ...]
Namer: TypeAlias = Callable[[Expr], Expr]

PRODUCTS = 7
LEFT: Signs = (
    (1, 0, 0, 1),
    (0, 0, 1, 1),
    (1, 0, 0, 0),
    (0, 0, 0, 1),
    (1, 1, 0, 0),
    (-1, 0, 1, 0),
    (0, 1, 0, -1),
)
RIGHT: Signs = (
    (1, 0, 0, 1),
    (1, 0, 0, 0),
    (0, 1, 0, -1),
    (-1, 0, 1, 0),
    (0, 0, 0, 1),
    (1, 1, 0, 0),
    (0, 0, 1, 1),
)
RESULT: Signs = (
    (1, 0, 0, 1, -1, 0, 1),
    (0, 0, 1, 0, 1, 0, 0),
    (0, 1, 0, 1, 0, 0, 0),
    (1, -1, 1, 0, 0, 1, 0),
)
"""Rows of ``LEFT`` and ``RIGHT`` are products, their columns the quadrants row by row."""


def quadrants(levels: int) -> list[tuple[int, int]]:
    """Return the (row, column) of each part, in the order in which ``combined`` takes them.

    The quadrant of the first level is the digit that changes slowest.
    """
    found = [(0, 0)]
    for _ in range(levels):
        found = [(2 * y + q // 2, 2 * x + q % 2) for y, x in found for q in range(4)]
    return found


def combined(signs: Signs, values: Sequence[Expr], dtype: DType, named: Namer) -> list[Expr]:
    """Return the sums of ``values`` by a power of ``signs``, level by level.

    ``values`` are the columns' number to the power of the levels; ``named`` gives each sum of an
    outer level a name, since several inner ones use it.
    """
    width = len(signs[0])
    if len(values) == width:
        return [total(row, values, dtype) for row in signs]
    size = len(values) // width
    parts = [values[n : n + size] for n in range(0, len(values), size)]
    found: list[Expr] = []
    for row in signs:
        outer = [named(total(row, column, dtype)) for column in zip(*parts, strict=True)]
        found += combined(signs, outer, dtype, named)
    return found


def total(row: Sequence[int], values: Sequence[Expr], dtype: DType) -> Expr:
    """Return the sum of values with signs; a positive one comes first if there is one."""
    terms = sorted(((c, v) for c, v in zip(row, values, strict=True) if c), key=lambda t: t[0] < 0)
    (sign, found), *rest = terms
    if sign < 0:
        found = op("negate", found)
    for c, v in rest:
        found = op("add" if c > 0 else "subtract", found, v)
    return found


def additions(signs: Signs, levels: int) -> int:
    """Return the additions in ``combined`` sums by a power of ``signs``."""
    if not levels:
        return 0
    own = sum(abs(c) for row in signs for c in row) - len(signs)
    outer: int = own * len(signs[0]) ** (levels - 1)
    return outer + len(signs) * additions(signs, levels - 1)


def growth(levels: int) -> float:
    """Return how many times larger errors become than those of plain products, as root mean square.

    That of independent errors in proportion to each product, for operands of normally distributed
    elements: 2 for one level.
    """
    sizes = [sum(map(abs, a)) * sum(map(abs, b)) for a, b in zip(LEFT, RIGHT, strict=True)]
    squares = [sum(c * c * s for c, s in zip(row, sizes, strict=True)) for row in RESULT]
    return math.sqrt(sum(squares) / (2 * len(squares))) ** levels
