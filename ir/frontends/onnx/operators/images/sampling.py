"""Images read at computed places: GridSample and DeformConv."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....lax import linear, sampling, shaping
from ....lax.sampling import MODES, linear_taps, padded, sample
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


@operator("DeformConv", since=19)
def deform_conv(node: Node) -> Term:
    """A convolution whose kernel reads at places that ``offset`` moves, weighed by ``mask``."""
    x, w, offset = node.input(0), node.input(1), node.input(2)
    bias, mask = node.optional(3), node.optional(4)
    spatial = x.rank - 2
    kernel, out = w.dims[2:], offset.dims[2:]
    groups, parts = node.int_("group"), node.int_("offset_group")
    strides, dilations = (node.ints(n) or [1] * spatial for n in ("strides", "dilations"))
    pads = node.ints("pads") or [0] * (2 * spatial)
    n, c = x.dims[:2]
    taps_n, points = prod(kernel), prod(out)
    if offset.dims[1] != parts * taps_n * spatial or c % parts:
        node.malformed(f"offsets {list(offset.dims)} do not fit {parts} groups of {list(kernel)}")
    moved = shaping.reshape(offset, (n * parts, taps_n, spatial, points))
    taps = []
    for k, size in enumerate(x.dims[2:]):
        base = _kernel_places(x, k, kernel, out, strides[k], dilations[k], pads[k])
        by = shaping.squeeze(shaping.slice_in_dim(moved, k, k + 1, 2), [2])
        at = shaping.reshape(by + base, (n * parts, taps_n * points))
        taps.append(padded(linear_taps(at), size, "zeros", (0.0, 0.0)))
    rows = shaping.reshape(x, (n * parts, c // parts, *x.dims[2:]))
    columns = shaping.reshape(sample(rows, taps), (n, parts, c // parts, taps_n, points))
    if mask is not None:
        columns = columns * shaping.reshape(mask, (n, parts, 1, taps_n, points))
    columns = shaping.reshape(columns, (n, groups, (c // groups) * taps_n, points))
    weights = shaping.reshape(w, (groups, w.dims[0] // groups, (c // groups) * taps_n))
    made = linear.dot_general(weights, columns, ([2], [2]), ([0], [1]))  # [groups, o, n, points]
    y = shaping.reshape(shaping.transpose(made, (2, 0, 1, 3)), (n, w.dims[0], *out))
    return y if bias is None else y + shaping.reshape(bias, (-1, *[1] * spatial))


def _kernel_places(
    x: Term, k: int, kernel: Sequence[int], out: Sequence[int], stride: int, step: int, low: int
) -> Term:
    """Where kernel elements read along dimension ``k`` without offsets: ``[taps, points]``."""
    dims = (*kernel, *out)
    inside = shaping.iota(x.site, x.dtype, dims, k) * step
    at = shaping.iota(x.site, x.dtype, dims, len(kernel) + k) * stride
    return shaping.reshape(inside + at - low, (prod(kernel), prod(out)))
