"""Padding of a convolution whose input is codes, for which another number than 0 means zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....nodes import Instruction, PadDim, Window
from ....patterns import build


def with_padding(
    product: Instruction, x: Instruction, value: int
) -> tuple[Instruction, dict[str, Any]]:
    """Return an input that holds ``value`` where a canonical product pads or dilates it, and the
    attributes of a product of that; for ``value`` 0, and for dots, all as they are.

    ``x`` has the dimensions of the product's first operand.
    """
    window: Window = product.attrs.get("window", ())
    around = tuple(PadDim(w.pad_low, w.pad_high, w.lhs_dilate - 1) for w in window)
    if not value or all(p == PadDim(0, 0) for p in around):
        return x, dict(product.attrs)
    padding = (PadDim(0, 0), *around, PadDim(0, 0))
    filled = build.pad(x, build.scalar(value, x.array.dtype), padding)
    plain = tuple(replace(w, pad_low=0, pad_high=0, lhs_dilate=1) for w in window)
    return filled, {**product.attrs, "window": plain}
