"""Normalizations, softmaxes and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....dtypes import f32, pred, s64
from ...lax import bounded, functions, reductions
from ...lax.shaping import (
    broadcast_to,
    expand_dims,
    full,
    iota,
    per_channel,
    reshape,
    unreshaped,
)
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator
from .constants import uniform


def repeated(x: Term, count: int) -> Term:
    """Return ``x[g]`` with each element ``count`` times."""
    wide = broadcast_to(expand_dims(x, [1]), (x.dims[0], count))
    return reshape(wide, (x.dims[0] * count,))


@operator("BatchNormalization", sized=True)
def _batch_normalization(node: Node) -> tuple[Term, ...]:
    x, scale, bias, mean, variance = (node.input(n) for n in range(5))
    wide = max((x, scale, mean), key=lambda t: t.dtype.bits).dtype
    training = node.int_("training_mode", 0) or (node.version < 14 and any(node.outputs[1:]))
    if training:  # up to operator set 13, further outputs say so
        node.leave_out(spatial=1)
        scale, bias = scale.to(wide), bias.to(wide)
        y, means, variances = _batch_normalized(node, x.to(wide), scale, bias, mean, variance)
        return y.to(x.dtype), means, variances
    scale, bias, mean, variance = (t.to(wide) for t in (scale, bias, mean, variance))
    epsilon = node.float_("epsilon", 1e-5)
    if node.version < 9 and not node.int_("spatial"):
        root = (variance + epsilon).do("rsqrt")
        return (((x.to(wide) - mean) * root * scale + bias).to(x.dtype),)
    found = functions.batch_normalized(x.to(wide), scale, bias, mean, variance, epsilon)
    return (found.to(x.dtype),)


def _batch_normalized(
    node: Node, x: Term, scale: Term, bias: Term, mean: Term, variance: Term
) -> tuple[Term, ...]:
    """In training: by the batch's own moments, which the running ones take up."""
    axes = [0, *range(2, x.rank)]
    normal, center, _ = functions.normalized(x, axes, node.float_("epsilon", 1e-5))
    apart = x - center
    spread = reshape(functions.mean(apart * apart, axes), variance.dims)
    kept = node.float_("momentum", 0.9)
    found = normal * per_channel(scale, x.rank) + per_channel(bias, x.rank)
    means = mean * kept + reshape(center, mean.dims).to(mean.dtype) * (1 - kept)
    return found, means, variance * kept + spread.to(variance.dtype) * (1 - kept)


@operator("InstanceNormalization", sized=True)
def _instance_normalization(node: Node) -> Term:
    """Of reshaped channels, as torch writes group norm, in the order that they have in memory."""
    x, scale, bias = node.arrays()
    epsilon, whole = node.float_("epsilon", 1e-5), unreshaped(x)
    if whole is not None and _is_grouped(whole.dims, x.dims):
        count = whole.dims[1] // x.dims[1]
        scale, bias = (per_channel(repeated(t, count), whole.rank) for t in (scale, bias))
        normal = functions.group_normalized(whole, x.dims[1], epsilon)[0]
        return reshape(normal * scale + bias, x.dims)
    normal = functions.normalized(x, range(2, x.rank), epsilon)[0]
    return normal * per_channel(scale, x.rank) + per_channel(bias, x.rank)


def _is_grouped(whole: Sequence[int], dims: Sequence[int]) -> bool:
    """True if each channel of ``dims`` is some of the channels of ``whole``, and all of those."""
    known = 0 not in whole and len(whole) > 2 and len(dims) > 2
    return known and whole[0] == dims[0] and whole[1] % dims[1] == 0


@operator("GroupNormalization", sized=True)
def _group_normalization(node: Node) -> Term:
    """Of operator set 21 on; the checker refuses those of 18 to 20, which are deprecated."""
    x, scale, bias = node.arrays()
    groups, wide = node.int_("num_groups"), functions.wide(x.dtype)
    normal = functions.group_normalized(x.to(wide), groups, node.float_("epsilon", 1e-5))[0]
    return normal.to(x.dtype) * per_channel(scale, x.rank) + per_channel(bias, x.rank)


@operator("LayerNormalization", sized=True)
def _layer_normalization(node: Node) -> tuple[Term, ...]:
    x, scale, bias = node.input(0), node.input(1), node.optional(2)
    stash = node.dtype("stash_type", f32)
    axes = range(node.axis("axis", x.rank, -1), x.rank)
    found, mean, deviation = functions.normalized(x.to(stash), axes, node.float_("epsilon", 1e-5))
    scaled = found.to(x.dtype) * scale
    return scaled if bias is None else scaled + bias, mean, deviation


@operator("RMSNormalization", sized=True)
def _rms_normalization(node: Node) -> Term:
    x, scale, stash = node.input(0), node.input(1), node.dtype("stash_type", f32)
    axes = range(node.axis("axis", x.rank, -1), x.rank)
    normal = functions.rms_normalized(x.to(stash), axes, node.float_("epsilon", 1e-5))[0]
    return normal.to(scale.dtype) * scale


@operator("LRN", sized=True)
def _lrn(node: Node) -> Term:
    """Local response normalization over neighboring channels (Krizhevsky et al., 2012)."""
    x, size = node.input(0), node.int_("size")
    ones = [1] * (x.rank - 2)
    edges = [(0, 0), ((size - 1) // 2, size // 2), *([(0, 0)] * len(ones))]
    near = reductions.reduce_window(x * x, "add", [1, size, *ones], padding=edges)
    scale = near * (node.float_("alpha", 1e-4) / size) + node.float_("bias", 1.0)
    return x / scale ** node.float_("beta", 0.75)


@operator("LpNormalization", sized=True)
def _lp_normalization(node: Node) -> Term:
    """A row of zeros stays one."""
    x, p = node.input(0), node.int_("p", 2)
    axis = node.axis("axis", x.rank, -1)
    powers = x.do("abs") if p == 1 else x * x
    total = reductions.sum_(powers, [axis], keep=True)
    norm = total if p == 1 else total.do("sqrt")
    return norm.equals(0).select(0, x / norm)


@operator("Softmax", "LogSoftmax", "Hardmax", since=13, sized=True)
def _softmax(node: Node) -> Term:
    x = node.input(0)
    return _along(node.op, x, node.axis("axis", x.rank, -1))


@operator("Softmax", "LogSoftmax", "Hardmax", sized=True)
def _softmax_of_rows(node: Node) -> Term:
    """Of all dimensions from ``axis`` on, as one."""
    x = node.input(0)
    axis = node.axis("axis", x.rank, 1)
    rows = reshape(x, (prod(x.dims[:axis]), prod(x.dims[axis:])))
    return reshape(_along(node.op, rows, 1), x.dims)


def _along(op: str, x: Term, axis: int) -> Term:
    match op:
        case "Softmax":
            return functions.softmax(x, [axis])
        case "LogSoftmax":
            return functions.log_softmax(x, [axis])
        case _:
            best = reductions.argmax(x, axis, s64, keep=True)
            found = iota(x.site, s64, x.dims, axis).equals(best).to(x.dtype)
            return bounded.alike(found, x)


@operator("Dropout", sized=True)
def _dropout(node: Node) -> tuple[Term, ...]:
    """In training, elements are dropped by numbers that the node's seed gives."""
    x = node.input(0)
    ratio = float(node.known(1).reshape(())) if node.has(1) else node.float_("ratio", 0.5)
    training = bool(node.known(2).reshape(())) if node.has(2) else False
    if not training or ratio == 0:
        kind = pred if node.version >= 10 else x.dtype
        return x, bounded.alike(full(node.graph, 1, kind, x.dims), x)
    kept = uniform(node, x.dims) >= ratio
    return kept.select(x * (1 / (1 - ratio)), 0), kept
