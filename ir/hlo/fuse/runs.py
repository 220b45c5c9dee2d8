"""The runs of columns that remain neighbors when views and transposes follow a product.

The lanes of a tile are columns of the product. Heads of 24 columns taken apart leave tiles of 8 or
16 lanes with others masked: the product then takes up to seven times as long, and a transpose
apart from it a twentieth of its time (Zen 4, 512 x 768 by 768 x 768). Heads of whole cache lines
cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..nodes import Instruction
from ..ops.registry import definition
from .kinds import dims, nbytes

SCATTERED = "scattered"
"""The name of products whose columns end in short runs, among the groups that only some take."""

LINE = 64
"""Bytes of sums in which lanes are whole vectors, on every processor."""

NEAR = 1 << 20
"""Bytes of a result that stays in L2 until its lines are whole, though its elements are apart."""

FEWEST = 7
"""Neighbors in a row for which a tile is turned in registers."""

NARROWEST = 4
"""Bytes of a sum; those of narrower results are f32."""

_Factor: TypeAlias = tuple[int, int]
"""An extent, and the columns that a step along it passes: 0 in another dimension of the product."""


def keeps_lanes(product: Instruction, chain: Sequence[Instruction]) -> bool:
    """True if columns stay whole in ``chain``, views and transposes, or in runs of whole lines.

    Where rows end as the neighbors instead, a tile is turned in registers: not if these are few and
    the result is far from the processor.
    """
    *_, columns = dims(product)
    if nbytes(product) > NEAR and _neighbors_in_rows(dims(product), chain) < FEWEST:
        return False
    run = run_of_columns(dims(product), chain)
    return run == columns or run * max(product.array.dtype.bytes, NARROWEST) % LINE == 0


def run_of_columns(before: tuple[int, ...], chain: Iterable[Instruction]) -> int:
    """Return how many columns are neighbors yet; 1 if that is not known.

    ``before`` are the product's dimensions, of which columns are the last. Where its rows are in
    parts, columns have to be neighbors along one dimension: a tile is of parts of both.
    """
    factors = _moved(before, chain)
    if factors is None:
        return 1
    flat = [f for each in factors for f in each]
    rows_apart = sum(n != 1 and not step for n, step in flat) > sum(n != 1 for n in before[:-1])
    return max(map(_run_of, factors if rows_apart else [flat]), default=1)


def _neighbors_in_rows(before: tuple[int, ...], chain: Iterable[Instruction]) -> float:
    """Return how many elements of one column are neighbors at the end; infinite if columns are."""
    factors = _moved(before, chain) or []
    extent, step = next((f for each in reversed(factors) for f in each[::-1] if f[0] != 1), (1, 1))
    return math.inf if step else extent


def _moved(before: tuple[int, ...], chain: Iterable[Instruction]) -> list[list[_Factor]] | None:
    """Return the factors of each dimension after a chain; None where one would be cut unevenly."""
    *others, columns = before
    factors: list[list[_Factor]] = [[(n, 0)] for n in others] + [[(columns, 1)]]
    for i in chain:
        if definition(i.opcode).permutes:
            factors = [factors[k] for k in i.attrs["dimensions"]]
            continue
        regrouped = _regrouped([f for each in factors for f in each], dims(i))
        if regrouped is None:
            return None
        factors = regrouped
    return factors


def _run_of(factors: list[_Factor]) -> int:
    """Return the columns that are neighbors among these factors, the last of them the nearest."""
    run = 1
    for extent, step in reversed([f for f in factors if f[0] != 1]):
        if step == run:
            run *= extent
        elif run > 1:
            break
    return run


def _regrouped(flat: list[_Factor], shape: tuple[int, ...]) -> list[list[_Factor]] | None:
    """The factors of each dimension after a reshape; None where one would be cut unevenly."""
    pending = [f for f in flat if f[0] != 1]
    found: list[list[_Factor]] = []
    for size in reversed(shape):
        mine: list[_Factor] = []
        while (left := size // math.prod(n for n, _ in mine)) > 1:
            if not pending:
                return None
            extent, step = pending.pop()
            taken = math.gcd(extent, left)
            if taken == 1 or taken not in (extent, left):
                return None
            if taken < extent:
                pending.append((extent // taken, step * taken))
            mine.insert(0, (taken, step))
        found.insert(0, mine)
    return found
