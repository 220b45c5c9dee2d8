"""Sums and other reductions of values with errors: whatever the order of the terms.

A sum of n terms is off by what rounding adds at each step. Steps round independently, so the error
grows as the square root of their number (Higham and Mary, A new approach to probabilistic rounding
error analysis, 2019), each in proportion to the partial sum there, which lies about where the
mean (S / n) and the spread (Q, the sum of squares) of the terms put it. Where the terms have few
different values, steps round alike, and the error grows as their number. Errors of the terms
themselves may all have one sign and are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...arrays import Array
from ...dtypes import DType, accumulator, f64, to_numpy
from ...elementwise import identity
from ..nodes import Instruction
from .bounded import Bounded, MachineRounding, ends, hull, least, rounded, unit

SPREAD = 4.0  # standard deviations, several times over: a step's is a quarter of what is taken
CUT = 0.5  # share of the steps that count where errors do not average out
SAMPLE = 2048  # elements that are looked at to tell whether there are few different values
GRIDS = tuple(2.0**-k for k in (0, 4, 8, 16))  # steps of which the terms of an exact sum are whole

Fold = Callable[[Array], Array]
"""A linear sum of an array's elements, the same way for values, errors and squares."""


def growth(count: float | Array, rounding: MachineRounding) -> Array:
    """By how many units the error of a sum of so many terms may grow."""
    free = SPREAD * np.sqrt(np.maximum(1.0, count))
    return np.asarray(free if rounding.steady else np.maximum(free, CUT * np.asarray(count)))


def grid(*arrays: Array) -> float | None:
    """Return the step of which products of elements are multiples: that of their steps, if any."""
    step = 1.0
    for a in arrays:
        for g in GRIDS:
            if _whole(_sample(a) / g) and _whole(a / g):
                step *= g
                break
        else:
            return None
    return step


def exact_in_any_order(x: Bounded, dtype: DType) -> Array:
    """Return where no sum of elements along the first dimension needs rounding in a type."""
    if not dtype.is_float or not x.certain or not plain(x.value):
        return np.full(x.value.shape[1:], x.certain and not dtype.is_float)
    step = grid(x.value)
    return np.asarray(np.abs(x.value).sum(0) * unit(dtype) <= (step or -1.0))


def _whole(a: Array) -> bool:
    return bool((np.rint(a) == a).all())


def total(
    value: Array,
    squares: Array,
    error: Array | None,
    count: float | Array,
    step: float | None,
    dtype: DType,
    to: DType,
    rounding: MachineRounding,
    operands: float = 0.0,
    bits: int = 0,
) -> Bounded:
    """Return a sum of ``count`` terms kept in ``dtype`` and rounded to ``to`` at last.

    ``squares`` is the sum of the terms' squares, ``error`` of their errors, ``step`` what they are
    all multiples of (None: nothing). ``operands``: the relative error of each term. ``bits``: those
    of the sums' significands, where they are fewer than the type's.
    """
    last = 2.0**-bits if bits else unit(dtype)
    with np.errstate(all="ignore"):
        most = float(np.max(count, initial=1.0))
        steps = growth(count, rounding)
        spread = np.sqrt(squares)
        own = steps * last * (np.abs(value) + spread) + SPREAD * operands * spread
        own = np.where(np.isfinite(value), own, 0.0)
        if step is not None and not operands:
            # Of multiples of a step a, sum |t| <= sum t^2 / a, and by Cauchy <= sqrt(n sum t^2).
            reach = np.minimum(squares / step, np.sqrt(most * squares))
            own = np.where(reach <= step / last, 0.0, own)
        if error is not None:
            own = own + error
        own = np.where(np.isnan(own), np.inf, own)
        if dtype != to:
            return rounded(value, own, to)
        return rounded(value, own, to, units=0.0)


def few_values(a: Array) -> bool:
    """True if most elements other than zero equal another one, as far as a sample shows."""
    taken = _sample(a)
    taken = taken[taken != 0]
    return bool(len(np.unique(taken)) <= 0.5 * len(taken))


def _sample(a: Array) -> Array:
    flat = a.reshape(-1)
    return flat[:: max(1, flat.size // SAMPLE)]


def plain(a: Array) -> bool:
    """True if every element is a finite number."""
    return bool(np.isfinite(a).all())


def in_f64(i: Instruction) -> Instruction:
    """Return the instruction with a result of f64: its handler then computes in f64."""
    return replace(i, shape=replace(i.array, dtype=f64))


def add(
    x: Bounded, start: Bounded, fold: Fold, count: float, dtype: DType, rounding: MachineRounding
) -> Bounded:
    """``start`` and the elements of ``x`` that ``fold`` brings together, added up."""
    acc = accumulator(dtype)
    with np.errstate(all="ignore"):
        value = fold(x.value) + start.value
        squares = fold(x.value * x.value) + start.value * start.value
        error = None
        if x.error is not None or start.error is not None:
            error = fold(x.errors) + start.errors
    rounding = replace(rounding, steady=rounding.steady and not few_values(x.value))
    step = grid(x.value, start.value) if plain(x.value) and plain(start.value) else None
    if step is not None and step < 1:  # the product of both steps; the finer one is meant
        step = grid(np.append(x.value.reshape(-1), start.value))
    return total(value, squares, error, count + 1, step, acc, dtype, rounding)


def extreme(
    x: Bounded, start: Bounded, fold: Fold, join: Callable[[Array, Array], Array]
) -> Bounded:
    """Return a maximum or minimum, at both ends of the ranges."""
    value = join(fold(x.value), start.value)
    if x.certain and start.certain:
        return Bounded(value)
    lows, highs = zip(ends(x), ends(start), strict=True)
    with np.errstate(all="ignore"):
        found = hull(value, join(fold(lows[0]), lows[1]), join(fold(highs[0]), highs[1]))
    lost = join(fold(np.isinf(x.errors)), np.isinf(start.errors)) if _lost(x, start) else None
    return Bounded(value, found if lost is None else np.where(lost, np.inf, found))


def _lost(*xs: Bounded) -> bool:
    return any(bool(np.isinf(x.errors).any()) for x in xs)


def product(
    x: Bounded,
    start: Bounded,
    fold: Fold,
    count: float | Array,
    acc: DType,
    to: DType,
    rounding: MachineRounding,
) -> Bounded:
    """``start`` and the elements of ``x`` that ``fold`` multiplies: relative errors add up.

    The product is kept in ``acc`` and rounded to ``to`` at last. In some order a part of it may
    be below the normal numbers, and what is lost there is multiplied by the rest.
    """
    with np.errstate(all="ignore"):
        value = fold(x.value) * start.value
        share = fold(1 + _share(x)) * (1 + _share(start)) - 1
        whole = plain(x.value) and plain(start.value) and grid(x.value, start.value) == 1.0
        whole = whole and bool((np.abs(value) * unit(acc) < 1).all())
        steps = growth(count, rounding)
        own = 0.0 if whole else steps * unit(acc)
        error = np.abs(value) * ((1 + share) * (1 + own) - 1)
        error = error + steps * least(acc) * _underflow(x, start, fold, acc)
        error = np.where(np.isnan(error), np.where(np.isnan(value), 0.0, np.inf), error)
    return rounded(value, error, to)


def _underflow(x: Bounded, start: Bounded, fold: Fold, acc: DType) -> Array:
    """By what the error of a part of a product grows; 0 where no part can be subnormal."""
    size, first = np.abs(x.value), np.abs(start.value)
    smallest = fold(np.minimum(size, 1.0)) * np.minimum(first, 1.0)
    factor = fold(np.maximum(size, 1.0)) * np.maximum(first, 1.0)
    exact = fold(np.where(size == 0, 0.0, 1.0)) * np.where(first == 0, 0.0, 1.0) == 0
    normal = float(np.finfo(to_numpy(acc)).tiny)
    return np.where((smallest < normal) & ~(exact & np.isfinite(factor)), factor, 0.0)


def _share(x: Bounded) -> Array:
    """Relative errors; infinite for what might be zero or have the other sign."""
    found = x.errors / (np.abs(x.value) - x.errors)
    sure = x.errors == 0
    return np.where(sure, 0.0, np.where((found >= 0) & np.isfinite(found), found, np.inf))


def neutral(op: str, dtype: DType) -> float:
    """Return the neutral element in f64."""
    return float(identity(op, dtype))
