"""Holes: taps of a convolution outside its input, or between the elements of a dilated input.

XLA skips them, whatever the weight. Filling the holes with zeros and multiplying gives the same for
finite weights, but NaN for weights that are infinite or NaN.
"""

from __future__ import annotations

from .attributes import SKIPS
from .nodes import Instruction, WindowDim
from .signatures import dilated


def multiplies_holes(i: Instruction) -> bool:
    """True for a float convolution that has holes and may multiply by zeros in them."""
    labels = i.attrs.get("dim_labels")
    if labels is None or i.attrs.get(SKIPS) or not i.array.dtype.is_float:
        return False
    if not i.array.size or not i.operands[1].array.size:
        return False
    return any(
        has_holes(w, i.operands[0].array.dims[d], i.array.dims[o])
        for w, d, o in zip(i.attrs["window"], labels.lhs_spatial, labels.out_spatial, strict=True)
    )


def has_holes(w: WindowDim, size: int, count: int) -> bool:
    """True if any of ``count`` window positions has a tap that hits no element of a dimension of
    ``size``."""
    last = (count - 1) * w.stride + (w.size - 1) * w.rhs_dilate - w.pad_low
    if w.pad_low > 0 or last >= dilated(size, w.lhs_dilate):
        return True
    steps = (w.pad_low, w.stride if count > 1 else 0, w.rhs_dilate if w.size > 1 else 0)
    return any(step % w.lhs_dilate for step in steps)
