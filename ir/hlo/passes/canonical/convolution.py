"""Convolutions in canonical form: ``b01f_01io->b01f``, or a dot where it is one.

Dimensions are transposed into place, reversed windows become reversed weights, batch groups become
feature groups, and a zero ``pad`` of the input becomes padding of the window.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...nodes import ConvLabels, HloModule, Instruction, PadDim, Shape, Window, WindowDim
from ...patterns import build
from ...patterns.match import all_static, inverse, is_splat
from ...rewrite import make, map_computations, rebuild, with_attrs, with_operands
from .phases import by_phases


def canonical_convolution(module: HloModule) -> HloModule:
    """Any ``convolution``  ->  one with ``dim_labels=b01f_01io->b01f``, or a ``dot``."""
    return map_computations(module, lambda c: rebuild(c, _rewrite))


def labels(spatial: int) -> ConvLabels:
    """Return ``b01f_01io->b01f`` for this number of spatial dimensions."""
    s = tuple(range(1, spatial + 1))
    w = tuple(range(spatial))
    return ConvLabels(0, spatial + 1, s, spatial, spatial + 1, w, 0, spatial + 1, s)


def _rewrite(i: Instruction) -> Instruction | None:
    if i.opcode != "convolution" or not all_static(i):
        return None
    if not isinstance(i.attrs["dim_labels"], ConvLabels):
        return None
    window: Window = i.attrs.get("window", ())
    if i.attrs["dim_labels"] != labels(len(window)):
        return _relabelled(i, window)
    if any(w.reversal for w in window):
        plain = _unreversed(i, window)
        return _rewrite(plain) or plain
    if i.attrs.get("batch_group_count", 1) > 1:
        plain = _grouped_by_feature(i)
        return _rewrite(plain) or plain
    if (unpadded := without_pad(i)) is not None:
        return _rewrite(unpadded) or unpadded
    if (found := _as_dot(i, window) or _apart(i, window)) is not None:
        return found
    return by_phases(i)


def _relabelled(i: Instruction, window: Window) -> Instruction:
    old: ConvLabels = i.attrs["dim_labels"]
    x, w = i.operands
    lhs = build.transpose(x, (old.lhs_batch, *old.lhs_spatial, old.lhs_feature))
    rhs = build.transpose(w, (*old.rhs_spatial, old.rhs_input, old.rhs_output))
    order = (old.out_batch, *old.out_spatial, old.out_feature)
    shape = Shape(i.array.dtype, tuple(i.array.dims[d] for d in order))
    attrs = {**i.attrs, "dim_labels": labels(len(window))}
    new = make("convolution", shape, (lhs, rhs), name=i.name, metadata=i.metadata, **attrs)
    return build.transpose(_rewrite(new) or new, inverse(order))


def _unreversed(i: Instruction, window: Window) -> Instruction:
    x, w = i.operands
    axes = tuple(d for d, part in enumerate(window) if part.reversal and part.size > 1)
    flipped = make("reverse", w.shape, (w,), dimensions=axes) if axes else w
    plain = tuple(replace(part, reversal=False) for part in window)
    return with_operands(with_attrs(i, window=plain), (x, flipped))


def _grouped_by_feature(i: Instruction) -> Instruction:
    """Batch ``g * n + k`` of group ``g``  ->  batch ``k``, feature ``g``

    The features become the first spatial dimension, which the window spans. In the gradient of a
    depthwise kernel they are the images of the batch, and the groups are the channels: neighbors
    in memory on both sides.
    """
    x, w = i.operands
    groups = i.attrs["batch_group_count"]
    batch, *spatial, features = x.array.dims
    split = build.reshape(x, (groups, batch // groups, *spatial, features))
    last = split.array.rank - 1
    image = build.transpose(split, (1, last, *range(2, last), 0))
    *sizes, _, outputs = w.array.dims
    kernel = build.transpose(w, (len(sizes), *range(len(sizes)), len(sizes) + 1))
    window: Window = i.attrs.get("window", ())
    attrs = {k: v for k, v in i.attrs.items() if k != "batch_group_count"}
    attrs["feature_group_count"] = groups
    attrs["window"] = (WindowDim(features), *window)
    attrs["dim_labels"] = labels(len(window) + 1)
    first, *rest = i.array.dims
    new = make(
        "convolution",
        Shape(i.array.dtype, (first, 1, *rest)),
        (image, build.reshape(kernel, (features, *sizes, 1, outputs))),
        name=i.name,
        metadata=i.metadata,
        **attrs,
    )
    return build.reshape(new, i.array.dims)


def without_pad(i: Instruction) -> Instruction | None:
    """``convolution(pad(x, 0))  ->  convolution(x)`` that pads; None for other canonical ones.

    A transposition of the pad moves before it.
    """
    x, w = i.operands
    window: Window = i.attrs.get("window", ())
    turned = x.attrs["dimensions"] if x.opcode == "transpose" else tuple(range(x.array.rank))
    x = x.operands[0] if x.opcode == "transpose" else x
    if x.opcode != "pad" or not is_splat(x.operands[1], 0):
        return None
    first, *spatial, last = (x.attrs["padding"][d] for d in turned)
    pairs = list(zip(spatial, window, strict=True))
    if first != PadDim(0, 0) or last != PadDim(0, 0) or not all(_joins(p, d) for p, d in pairs):
        return None
    padded = tuple(_joined(p, d) for p, d in pairs)
    bare = build.transpose(x.operands[0], turned)
    return with_operands(with_attrs(i, window=padded), (bare, w))


def _joins(p: PadDim, w: WindowDim) -> bool:
    return p.low >= 0 and p.high >= 0 and w.lhs_dilate == 1


def _joined(p: PadDim, w: WindowDim) -> WindowDim:
    return replace(
        w,
        pad_low=w.pad_low + p.low,
        pad_high=w.pad_high + p.high,
        lhs_dilate=p.interior + 1,
    )


def _as_dot(i: Instruction, window: Window) -> Instruction | None:
    """convolution by a window of one pixel, or of the whole image  ->  dot"""
    x, w = i.operands
    if i.attrs.get("feature_group_count", 1) != 1 or 0 in (*x.array.dims, *i.array.dims):
        return None
    spatial = x.array.dims[1:-1]
    point = all(d == WindowDim(1) for d in window)
    whole = all(
        d.size == n and d.pad_low == d.pad_high == 0 and d.lhs_dilate == d.rhs_dilate == 1
        for d, n in zip(window, spatial, strict=True)
    )
    if not point and not whole:
        return None
    *_, features, outputs = w.array.dims
    k = features if point else math.prod(spatial) * features
    m = x.array.size // k
    rows, weights = build.reshape(x, (m, k)), build.reshape(w, (k, outputs))
    dot = make(
        "dot",
        Shape(i.array.dtype, (m, outputs)),
        (rows, weights),
        name=i.name,
        metadata=i.metadata,
        lhs_contracting_dims=(1,),
        rhs_contracting_dims=(0,),
    )
    return build.reshape(dot, i.array.dims)


def _apart(i: Instruction, window: Window) -> Instruction | None:
    """A window that sees one pixel between the zeros of dilation  ->  dot

    So each pixel of the input makes a block of the result, as in a transposed convolution whose
    strides are its window's sizes.
    """
    x, w = i.operands
    if i.attrs.get("feature_group_count", 1) != 1 or 0 in (*x.array.dims, *i.array.dims):
        return None
    if any(d != WindowDim(d.size, 1, d.size - 1, d.size - 1, d.size) for d in window):
        return None
    n, *spatial, features = x.array.dims
    sizes, outputs = [d.size for d in window], w.array.dims[-1]
    rank = len(sizes)
    flipped = make("reverse", w.shape, (w,), dimensions=tuple(range(rank)))
    weights = build.transpose(flipped, (rank, *range(rank), rank + 1))
    dot = make(
        "dot",
        Shape(i.array.dtype, (x.array.size // features, math.prod(sizes) * outputs)),
        (
            build.reshape(x, (x.array.size // features, features)),
            build.reshape(weights, (features, math.prod(sizes) * outputs)),
        ),
        name=i.name,
        metadata=i.metadata,
        lhs_contracting_dims=(1,),
        rhs_contracting_dims=(0,),
    )
    blocks = build.reshape(dot, (n, *spatial, *sizes, outputs))
    pairs = [d for k in range(rank) for d in (1 + k, 1 + rank + k)]
    return build.reshape(build.transpose(blocks, (0, *pairs, 2 * rank + 1)), i.array.dims)
