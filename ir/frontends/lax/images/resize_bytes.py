"""Images of bytes at another size, in whole numbers as torch computes them (and Pillow does)."""

from __future__ import annotations

import numpy as np

from ....arrays import Array
from ....dtypes import s32, u8
from ..term import Term
from .resize import Rule, Samples, Stretch, resample, samples

_WEIGHT_BITS = 15
_MOST_SHIFT = 22


def resized_bytes(x: Term, axis: int, stretch: Stretch, rule: Rule) -> Term:
    """One dimension of an array of u8, resized.

    Weights are 16-bit integers over a power of two. Each dimension's sums are rounded and held in
    0 to 255 before the next: with negative weights that is not the same as once at the end.
    """
    found, shift = _whole_weights(samples(stretch, rule), stretch.size)
    total = resample(x.to(s32), axis, found) + (1 << (shift - 1))
    bounded = total.do("shift-right-arithmetic", shift).do("maximum", 0).do("minimum", 255)
    return bounded.to(u8)


def _whole_weights(found: Samples, size: int) -> tuple[Samples, int]:
    """Weights times a power of two, each rounded away from zero at halves; and its exponent.

    What falls on one element, at an edge, is added before it is rounded.
    """
    merged = np.zeros_like(found.weights)
    for k in range(merged.shape[1]):
        first = (found.positions == found.positions[:, k : k + 1]).argmax(1)
        merged[np.arange(len(merged)), first] += found.weights[:, k]
    shift = _exponent(float(merged.max(initial=0.0)))
    whole: Array = np.trunc(merged * (1 << shift) + np.where(merged < 0, -0.5, 0.5))
    return Samples(found.positions, whole), shift


def _exponent(largest: float) -> int:
    """The largest exponent of which the weights still fit 16 bits."""
    for shift in range(_MOST_SHIFT):
        if int(0.5 + largest * (1 << (shift + 1))) >= 1 << _WEIGHT_BITS:
            return shift
    return _MOST_SHIFT
