"""Convolutions and transposed convolutions, and the columns that they are sums of."""

from __future__ import annotations

from math import prod

from ...lax.linear import conv, conv_transpose
from ...lax.shaping import per_channel, reshape
from ...lax.term import Term
from ...lax.windows import Windows, overlap_add
from ..nodes.node import Node
from ..nodes.table import operator
from .windows import Pads, window


@operator("Conv", sized=True)
def _conv(node: Node) -> Term:
    x, kernel = node.input(0), node.input(1)
    found = convolved(node, x, kernel)
    return with_bias(found, node.optional(2))


def convolved(node: Node, x: Term, kernel: Term) -> Term:
    """Return the convolution by the node's window, without a bias."""
    if x.rank < 3 or kernel.rank != x.rank:
        node.malformed(f"data {list(x.dims)} and weights {list(kernel.dims)} do not fit")
    shape = window(node, x, kernel.dims[2:])
    if shape.kernel != kernel.dims[2:]:
        node.malformed(f"kernel_shape {list(shape.kernel)} and weights {list(kernel.dims)}")
    groups = node.int_("group", 1)
    return conv(x, kernel, shape.strides, shape.pads, rhs_dilation=shape.dilations, groups=groups)


def with_bias(x: Term, bias: Term | None) -> Term:
    """Return ``x[n, c, ..]`` with ``bias[c]`` added."""
    return x if bias is None else x + per_channel(bias, x.rank)


@operator("ConvTranspose", sized=True)
def _conv_transpose(node: Node) -> Term:
    x, kernel, groups = node.input(0), node.input(1), node.int_("group", 1)
    if x.rank < 3 or kernel.rank != x.rank or groups < 1 or kernel.dims[0] % groups:
        node.malformed(f"data {list(x.dims)} and weights {list(kernel.dims)} do not fit")
    shape = window(node, x, kernel.dims[2:])
    more = node.ints("output_padding") or [0] * (x.rank - 2)
    node.fixed(x, range(2, x.rank))
    pads = _transposed_pads(node, x, more)
    sizes = [
        (d - 1) * stride + span + extra - sum(edge)
        for d, stride, span, extra, edge in zip(
            x.dims[2:], shape.strides, shape.spans, more, pads, strict=True
        )
    ]
    low = [edge[0] for edge in pads]
    found = conv_transpose(x, kernel, sizes, shape.strides, low, shape.dilations, groups=groups)
    return with_bias(found, node.optional(2))


def _transposed_pads(node: Node, x: Term, more: list[int]) -> Pads:
    """The padding of a transposed convolution, which its result's size may be given by."""
    sizes = x.dims[2:]
    shape = window(node, x, node.input(1).dims[2:])
    wanted, mode = node.ints("output_shape"), node.string("auto_pad", "NOTSET")
    if wanted is None and mode in ("NOTSET", "", "VALID"):
        return shape.pads
    if wanted is None:
        wanted = [d * s for d, s in zip(sizes, shape.strides, strict=True)]
    wanted = wanted[-len(sizes) :]
    found = []
    for d, s, k, extra, size in zip(sizes, shape.strides, shape.spans, more, wanted, strict=True):
        total = s * (d - 1) + extra + k - size
        small, large = max(total, 0) // 2, total - max(total, 0) // 2
        found.append((small, large) if mode == "SAME_UPPER" or total < 0 else (large, small))
    return tuple(found)


@operator("Col2Im")
def _col2im(node: Node) -> Term:
    """Blocks added up at their places in an image."""
    x, image, block = node.input(0), node.known_ints(1), node.known_ints(2)
    n = len(image)
    strides, dilations = node.ints("strides") or [1] * n, node.ints("dilations") or [1] * n
    pads = node.ints("pads") or [0] * (2 * n)
    wide = [d + a + b for d, a, b in zip(image, pads[:n], pads[n:], strict=True)]
    spans = [(k - 1) * d + 1 for k, d in zip(block, dilations, strict=True)]
    counts = [(w - s) // t + 1 for w, s, t in zip(wide, spans, strides, strict=True)]
    batch, channels = x.dims[0], x.dims[1] // prod(block)
    windows = Windows(
        dims=tuple(image),
        counts=tuple(counts),
        sizes=tuple(block),
        strides=tuple(strides),
        dilations=tuple(dilations),
        padding=tuple(zip(pads[:n], pads[n:], strict=True)),
    )
    return overlap_add(reshape(x, (batch, channels, *block, *counts)), windows)
