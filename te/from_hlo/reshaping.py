"""Reshapes as index arithmetic: dimensions are matched up, so that common reshapes stay simple.

``[8, 12, 64] -> [8, 768]`` merges two dimensions and leaves one alone: the groups are
``[8] ~ [8]`` and ``[12, 64] ~ [768]``, and only the second needs a division.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from ...ir.loop.build import add, const, mul
from ...ir.loop.nodes import Expr
from .emitter import ElementEmitter

Positions: TypeAlias = tuple[int, ...]


def groups(source: Sequence[int], result: Sequence[int]) -> list[tuple[Positions, Positions]]:
    """The smallest runs of dimensions with equal products, as positions; extents of 1 left out."""
    a = [n for n, extent in enumerate(source) if extent != 1]
    b = [n for n, extent in enumerate(result) if extent != 1]
    found: list[tuple[Positions, Positions]] = []
    while a or b:
        xs, ys = [a.pop(0)], [b.pop(0)]
        while (p := prod(source[n] for n in xs)) != (q := prod(result[n] for n in ys)):
            if p < q:
                xs.append(a.pop(0))
            else:
                ys.append(b.pop(0))
        found.append((tuple(xs), tuple(ys)))
    return found


def is_clean(source: Sequence[int], result: Sequence[int]) -> bool:
    """True if the source index is linear in the result index: no group merges dimensions."""
    if 0 in source:
        return True
    return all(len(xs) == 1 or xs == () for xs, _ in groups(source, result))


def source_index(
    emitter: ElementEmitter, source: Sequence[int], result: Sequence[int], index: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Return the source index of the element at ``index`` of the reshaped array."""
    at: list[Expr] = [const(0)] * len(source)
    if 0 in source:
        return tuple(at)
    for xs, ys in groups(source, result):
        flat: Expr = const(0)
        for n in ys:
            flat = add(mul(flat, result[n]), index[n])
        for n in reversed(xs[1:]):
            flat, at[n] = emitter.divided(flat, source[n])
        at[xs[0]] = flat
    return tuple(at)
