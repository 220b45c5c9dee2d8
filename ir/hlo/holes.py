"""Taps of a convolution that fall beside its input, or between its elements: holes.

XLA skips them, whatever the weight there is. Who puts zeros into the holes and multiplies gets the
same from finite weights, and NaN from those that are infinite or NaN.
"""

from __future__ import annotations

from .nodes import Instruction, WindowDim
from .signatures import dilated

SKIPS = "skips_holes"
"""Attribute of a convolution whose kernel is to skip its holes rather than multiply them."""


def multiplies_holes(i: Instruction) -> bool:
    """Whether ``i`` is a convolution of floats that has holes and may fill them with zeros."""
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
    """Whether one of ``count`` places of a window has a tap on no element of a dimension."""
    last = (count - 1) * w.stride + (w.size - 1) * w.rhs_dilate - w.pad_low
    if w.pad_low > 0 or last >= dilated(size, w.lhs_dilate):
        return True
    steps = (w.pad_low, w.stride if count > 1 else 0, w.rhs_dilate if w.size > 1 else 0)
    return any(step % w.lhs_dilate for step in steps)
