"""Channels that no instruction takes become taps of the kernel: first layers of narrow numbers.

A lane adds up several neighbors of a row (``ir/lane_dots``), and an image has three channels. But
the taps of a row of the kernel are neighbors with all their channels, so both are one dimension
whose window moves by as many elements as a pixel has. Taps of 0 fill the last lane. What they
multiply counts for nothing, unless it is an infinity or NaN: where results have to be as exact as
the graph's, channels of 0 fill the lanes of floats.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .....lane_dots import lane_dot
from .....target import Target
from ....nodes import HloModule, Instruction, PadDim, Window, WindowDim
from ....patterns import build
from ....patterns.match import is_splat
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
    more = -row.size * channels % dot.depth
    if not dot.sums.is_float or target.accuracy:
        return _merged(i, *_rows(x, window, more), more)
    if not more:
        *outer, columns, _ = x.array.dims
        return _merged(i, build.reshape(x, (*outer, columns * channels, 1)), window, 0)
    return _filled(i, -channels % dot.depth) if channels > 1 else None


def _merged(i: Instruction, rows: Instruction, window: Window, more: int) -> Instruction:
    """Return a convolution whose last dimension is that of pixels and channels, with more taps."""
    w, row = i.operands[1], window[-1]
    *sizes, channels, outputs = w.array.dims
    flat = build.reshape(w, (*sizes[:-1], row.size * channels, 1, outputs))
    step = replace(
        row,
        size=row.size * channels + more,
        stride=row.stride * channels,
        pad_low=row.pad_low * channels,
        pad_high=row.pad_high * channels,
    )
    attrs = {**i.attrs, "window": (*window[:-1], step)}
    return _like(i, (rows, _longer(flat, len(sizes) - 1, more)), attrs)


def _filled(i: Instruction, more: int) -> Instruction:
    """Return a convolution of so many channels more, which are 0 in both operands."""
    x, w = i.operands
    operands = build.extended(x, x.array.rank - 1, more), _longer(w, w.array.rank - 2, more)
    return _like(i, operands, dict(i.attrs))


def _like(
    i: Instruction, operands: tuple[Instruction, Instruction], attrs: dict[str, Any]
) -> Instruction:
    return make("convolution", i.array, operands, name=i.name, metadata=i.metadata, **attrs)


def _rows(x: Instruction, window: Window, more: int) -> tuple[Instruction, Window]:
    """Return an input with pixels' channels as neighbors, padded, and the window without padding.

    Rows have so many elements ``more`` at least. A pad that is there already is made wider.
    """
    *outer, row = window
    inner, value, channels = x, build.scalar(0, x.array.dtype), x.array.dims[-1]
    padding: Padding = (PadDim(0, 0),) * x.array.rank
    low, high = row.pad_low, row.pad_high
    if x.opcode == "pad" and not (low or high) and _is_plain(x.attrs["padding"]):
        inner, value, padding = x.operands[0], x.operands[1], x.attrs["padding"]
        low, high = padding[-2].low, padding[-2].high
    wide = PadDim(low, high - (-more // channels))
    around = padding[1:-2]
    if is_splat(value, 0) and wide != PadDim(0, 0):
        around, outer = _with_columns(around, outer)
    padded = build.pad(inner, value, (padding[0], *around, wide, padding[-1]))
    *sizes, columns, _ = padded.array.dims
    rows = build.reshape(padded, (*sizes, columns * channels, 1))
    return rows, (*outer, replace(row, pad_low=0, pad_high=0))


def _with_columns(around: Padding, outer: list[WindowDim]) -> tuple[Padding, list[WindowDim]]:
    """Move the padding of a window's other dimensions into that of the input: it is copied once."""
    pads, dims = [], []
    for p, d in zip(around, outer, strict=True):
        moves = d.lhs_dilate == 1 and min(d.pad_low, d.pad_high, p.low, p.high) >= 0
        pads.append(replace(p, low=p.low + d.pad_low, high=p.high + d.pad_high) if moves else p)
        dims.append(replace(d, pad_low=0, pad_high=0) if moves else d)
    return tuple(pads), dims


def _is_plain(padding: Padding) -> bool:
    """True if rows are padded by whole pixels, and not between them."""
    return padding[-1] == PadDim(0, 0) and padding[-2].interior == 0


def _longer(x: Instruction, dim: int, more: int) -> Instruction:
    """Return an array with so many zeros after a dimension; of a constant, the constant."""
    if x.opcode != "constant":
        return build.extended(x, dim, more)
    ends = [(0, more if d == dim else 0) for d in range(x.array.rank)]
    return constant(np.pad(x.attrs["literal"], ends), name=x.name)
