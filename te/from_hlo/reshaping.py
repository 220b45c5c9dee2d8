"""Reshapes as index arithmetic: dimensions are matched up, so that common reshapes stay simple.

``[8, 12, 64] -> [8, 768]`` merges two dimensions and leaves one alone: the runs are
``[8] ~ [8]`` and ``[12, 64] ~ [768]``, and only the second needs a division.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.hlo.patterns.match import segments
from ...ir.loop.build import const, number_of
from ...ir.loop.nodes import Expr
from .emitter import ElementEmitter


def is_clean(source: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """True if the source index is linear in the result index: no run merges dimensions."""
    return all(len(xs) == 1 for xs, _ in segments(source, result) or ())


def source_index(
    emitter: ElementEmitter,
    source: tuple[int, ...],
    result: tuple[int, ...],
    index: Sequence[Expr],
) -> tuple[Expr, ...]:
    """Return the source index of the element at ``index`` of the reshaped array."""
    at: list[Expr] = [const(0)] * len(source)
    for xs, ys in segments(source, result) or ():
        flat = number_of([index[n] for n in ys], [result[n] for n in ys])
        for n in reversed(xs[1:]):
            flat, at[n] = emitter.divided(flat, source[n])
        at[xs[0]] = flat
    return tuple(at)
