"""Images read at computed places: GridSample and DeformConv."""

from __future__ import annotations

from math import prod

from ....lax.images import sampling
from ....lax.images.sampling import MODES
from ....lax.shaping import per_channel
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator


@operator("GridSample", since=16)
def grid_sample(node: Node) -> Term:
    """``X[n, c, d1, ..]`` at the places of ``grid[n, o1, .., k]``, which are -1 to 1, those of the
    last dimension first."""
    mode = node.string("mode", "linear")
    if mode not in MODES:
        node.unsupported(f"mode `{mode}` is not known", ", ".join(MODES))
    padding, corners = node.string("padding_mode"), bool(node.int_("align_corners"))
    return sampling.grid_sample(node.input(0), node.input(1), mode, padding, corners)


@operator("AffineGrid", since=20)
def affine_grid(node: Node) -> Term:
    """The grid by which GridSample reads an image of a size as ``theta`` turns it."""
    theta, size = node.input(0), node.known_ints(1)
    n, rank = size[0], len(size) - 2
    if rank not in (2, 3) or theta.dims != (n, rank, rank + 1):
        node.malformed(f"matrices {list(theta.dims)} do not fit images {size}")
    return sampling.affine_grid(theta, size[2:], bool(node.int_("align_corners")))


@operator("DeformConv", since=19)
def deform_conv(node: Node) -> Term:
    """A convolution whose kernel reads at places that ``offset`` moves, weighed by ``mask``."""
    x, w, offset = node.input(0), node.input(1), node.input(2)
    bias, mask = node.optional(3), node.optional(4)
    spatial, kernel = x.rank - 2, w.dims[2:]
    groups, parts = node.int_("group"), node.int_("offset_group")
    strides, dilations = (node.ints(n) or [1] * spatial for n in ("strides", "dilations"))
    pads = node.ints("pads") or [0] * (2 * spatial)
    if offset.dims[1] != parts * prod(kernel) * spatial or x.dims[1] % parts:
        node.malformed(f"offsets {list(offset.dims)} do not fit {parts} groups of {list(kernel)}")
    steps = list(zip(strides, dilations, pads[:spatial], strict=True))
    y = sampling.deformed_conv(x, w, offset, mask, steps, groups, parts)
    return y if bias is None else y + per_channel(bias, y.rank)
