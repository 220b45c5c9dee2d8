"""Channels that no instruction takes become taps of the kernel: first layers of narrow numbers.

A lane adds up several neighbors of a row (``ir/lane_dots``), and an image has three channels. But
the taps of a row of the kernel are neighbors with all their channels, so both are one dimension
whose window moves by as many elements as a pixel has. Taps of 0 fill the last lane.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from .....lane_dots import lane_dot
from .....target import Target
from ....nodes import HloModule, Instruction, PadDim, Window
from ....patterns import build
from ....rewrite import constant, make, map_computations, rebuild

Padding = tuple[PadDim, ...]


def merged_taps(module: HloModule, target: Target) -> HloModule:
    """``convolution`` of 3 channels by 7 taps  ->  one of 1 channel by 24 taps, in steps of 3"""
    rule = partial(_rewrite, target=target)
    return map_computations(module, lambda c: rebuild(c, rule))


def _rewrite(i: Instruction, target: Target) -> Instruction | None:
    """Rewrite a canonical convolution of one group that neither dilates nor widens its rows."""
    window: Window = i.attrs.get("window", ())
    if i.opcode != "convolution" or not window or i.attrs.get("feature_group_count", 1) > 1:
        return None
    x, w = i.operands
    channels, row = x.array.dims[-1], window[-1]
    dot = lane_dot(target, x.array.dtype, w.array.dtype)
    if dot is None or dot.sums != i.array.dtype or channels % dot.depth == 0 or not i.array.size:
        return None
    if row.lhs_dilate != 1 or row.rhs_dilate != 1:
        return None
    taps = row.size * channels
    more = -taps % dot.depth
    *sizes, _, outputs = w.array.dims
    flat = build.reshape(w, (*sizes[:-1], taps, 1, outputs))
    step = replace(row, size=taps + more, stride=row.stride * channels, pad_low=0, pad_high=0)
    return make(
        "convolution",
        i.array,
        (_rows(x, row.pad_low, row.pad_high, more), _longer(flat, len(sizes) - 1, more)),
        name=i.name,
        metadata=i.metadata,
        **{**i.attrs, "window": (*window[:-1], step)},
    )


def _rows(x: Instruction, low: int, high: int, more: int) -> Instruction:
    """Return an input with pixels' channels as neighbors, padded by so many pixels and elements.

    A pad that is there already is made wider.
    """
    inner, value, channels = x, build.scalar(0, x.array.dtype), x.array.dims[-1]
    padding: Padding = (PadDim(0, 0),) * x.array.rank
    if x.opcode == "pad" and not (low or high) and _is_plain(x.attrs["padding"]):
        inner, value, padding = x.operands[0], x.operands[1], x.attrs["padding"]
        low, high = padding[-2].low, padding[-2].high
    *outer, columns, _ = inner.array.dims
    flat = build.reshape(inner, (*outer, columns * channels, 1))
    wide = PadDim(low * channels, high * channels + more)
    return build.pad(flat, value, (*padding[:-2], wide, PadDim(0, 0)))


def _is_plain(padding: Padding) -> bool:
    """True if rows are padded by whole pixels, and not between them."""
    return padding[-1] == PadDim(0, 0) and padding[-2].interior == 0


def _longer(x: Instruction, dim: int, more: int) -> Instruction:
    """Return an array with so many zeros after a dimension; of a constant, the constant."""
    if x.opcode != "constant":
        return build.extended(x, dim, more)
    ends = [(0, more if d == dim else 0) for d in range(x.array.rank)]
    return constant(np.pad(x.attrs["literal"], ends), name=x.name)
