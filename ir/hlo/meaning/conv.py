"""Convolution with any strides, dilations, paddings, groups and dimension labels.

Taps on padding, or between the elements of a dilated input, are skipped: an infinite or NaN weight
has no effect there.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from ...arrays import Array
from ...dtypes import to_numpy
from ..nodes import Instruction, PadDim, Window
from ..signatures import dilated
from .linear import is_whole, narrow, widen
from .shaping import padded
from .values import CallEvaluator, Value

_NO_PAD = PadDim(0, 0)


def convolution(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Convolve an input with a kernel, in the element type that ``widen`` chooses.

    Operands are brought to ``[batch, spatial.., group, feature]`` and ``[spatial.., group, in,
    out]``. Batch groups become feature groups: group g holds the g-th part of the batch.
    """
    labels, window = i.attrs["dim_labels"], i.attrs.get("window", ())
    lhs, rhs = args
    groups, batch_groups = (
        i.attrs.get("feature_group_count", 1),
        i.attrs.get("batch_group_count", 1),
    )
    x = lhs.transpose([labels.lhs_batch, *labels.lhs_spatial, labels.lhs_feature])
    w = rhs.transpose([*labels.rhs_spatial, labels.rhs_input, labels.rhs_output])
    space, kernel = x.shape[1:-1], w.shape[:-2]
    if batch_groups > 1:
        x = x.reshape(batch_groups, x.shape[0] // batch_groups, *space, x.shape[-1])
        x = np.moveaxis(x, 0, -2)
        groups = batch_groups
    else:
        x = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    w = w.reshape(*w.shape[:-1], groups, w.shape[-1] // groups)
    w = np.moveaxis(w, -2, -3)  # [spatial.., group, in, out]
    flips = tuple(k for k, d in enumerate(window) if d.reversal)
    w = np.flip(w, flips) if flips else w
    depth = prod(kernel) * w.shape[-2]
    to = to_numpy(i.array.dtype)
    whole = is_whole(x, w, to)
    x, w = widen(x, w, depth, to)
    spread = [PadDim(d.pad_low, d.pad_high, d.lhs_dilate - 1) for d in window]
    x = padded(x, np.zeros((), x.dtype), (_NO_PAD, *spread, _NO_PAD, _NO_PAD))
    out_space = [i.array.dims[d] for d in labels.out_spatial]
    if any(d.pad_low > 0 or d.pad_high > 0 or d.lhs_dilate > 1 for d in window) and not (
        np.isfinite(w).all() if np.issubdtype(w.dtype, np.inexact) else True
    ):
        out = _skip(x, w, out_space, window, space)
    else:
        out = _slide(x, w, out_space, window)
    out = out.reshape(out.shape[0], *out_space, out.shape[-2] * out.shape[-1])
    place = [labels.out_batch, *labels.out_spatial, labels.out_feature]
    return narrow(out.transpose(np.argsort(place).tolist()), to, whole)


def _slide(x: Array, w: Array, out_space: list[int], window: Window) -> Array:
    """Return ``[batch, out.., group, out feature]`` for ``x [batch, space.., group, in]``.

    The loop runs over the positions of the kernel or those of the output, whichever are fewer, with
    one matrix product per position.
    """
    kernel = w.shape[: len(window)]
    groups, features = w.shape[-3], w.shape[-1]
    if prod(kernel) <= prod(out_space):
        out = np.zeros((x.shape[0], *out_space, groups, features), x.dtype)
        for at in product(*map(range, kernel)):
            if out.size:
                out += _group_matmul(x[(slice(None), *_cut(at, out_space, window))], w[at])
        return out
    out = np.zeros((x.shape[0], *out_space, groups, features), x.dtype)
    depth = prod(kernel) * w.shape[-2]
    flat = np.moveaxis(w, -3, 0).reshape(groups, depth, features)  # [group, kernel.. * in, out]
    for at in product(*map(range, out_space)):
        cut = [
            slice(o * d.stride, o * d.stride + (n - 1) * d.rhs_dilate + 1, d.rhs_dilate)
            for o, n, d in zip(at, kernel, window, strict=True)
        ]
        patch = np.moveaxis(x[(slice(None), *cut)], -2, 0)  # [group, batch, kernel.., in]
        joined = np.matmul(patch.reshape(groups, x.shape[0], flat.shape[1]), flat)
        place: tuple[slice | int, ...] = (slice(None), *at)
        out[place] = np.moveaxis(joined, 0, 1)
    return out


def _skip(
    x: Array, w: Array, out_space: list[int], window: Window, space: tuple[int, ...]
) -> Array:
    """Like ``_slide``, but skip the products of taps that hit no element of the input.

    ``space`` are the input's spatial extents before padding and dilation.
    """
    out = np.zeros((x.shape[0], *out_space, *w.shape[-3:-2], w.shape[-1]), x.dtype)
    for at in product(*map(range, w.shape[: len(window)])):
        hit = np.ones((), np.bool_)
        for k, d, n, count in zip(at, window, space, out_space, strict=True):
            place = np.arange(count) * d.stride + k * d.rhs_dilate - d.pad_low
            on = (place >= 0) & (place < dilated(n, d.lhs_dilate)) & (place % d.lhs_dilate == 0)
            hit = hit[..., None] & on
        if out.size and hit.any():
            products = _group_matmul(x[(slice(None), *_cut(at, out_space, window))], w[at])
            out += np.where(hit[..., None, None], products, 0)
    return out


def _cut(at: tuple[int, ...], out_space: list[int], window: Window) -> list[slice]:
    """Return the elements that one kernel position reads, as a slice of each spatial dimension."""
    return [
        slice(k * d.rhs_dilate, k * d.rhs_dilate + (n - 1) * d.stride + 1, d.stride)
        for k, n, d in zip(at, out_space, window, strict=True)
    ]


def _group_matmul(x: Array, w: Array) -> Array:
    """Return ``x [.., group, in]`` times ``w [group, in, out]`` as ``[.., group, out]``."""
    groups, depth, features = w.shape
    if depth == 1:
        return np.asarray(x * w[:, 0])
    if groups == 1:
        rows = np.matmul(x.reshape(prod(x.shape[:-2]), depth), w[0])
        return np.asarray(rows).reshape(*x.shape[:-1], features)
    rows = np.matmul(np.moveaxis(x, -2, 0).reshape(groups, prod(x.shape[:-2]), depth), w)
    return np.moveaxis(rows.reshape(groups, *x.shape[:-2], features), 0, -2)
