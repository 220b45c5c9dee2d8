"""Regions of interest: RoiAlign and MaxRoiPool."""

from __future__ import annotations

from ....lax import bounded, shaping
from ....lax.images import regions
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator


@operator("RoiAlign", since=10, sized=True)
def roi_align(node: Node) -> Term:
    """Samples of each bin of each region, averaged, or the largest weighed neighbor of them."""
    x, rois, batch = (bounded.whole(node.input(n)) for n in range(3))
    half = node.version >= 16 and node.string("coordinate_transformation_mode") == "half_pixel"
    scale, ratio = node.float_("spatial_scale"), node.int_("sampling_ratio")
    edges = [c * scale - (0.5 if half else 0.0) for c in shaping.unstack(rois, 1)]
    axes = []
    for k, name in enumerate(("output_height", "output_width")):
        low, size = edges[1 - k], edges[3 - k] - edges[1 - k]
        length = size if half else size.do("maximum", 1)
        axes.append(regions.bins_of(low, length, node.int_(name), x.dims[2 + k], ratio))
    top = node.string("mode") == "max"
    found = (regions.roi_align_max if top else regions.roi_align)(x, batch, axes, ratio)
    return _of_regions(node, found)


def _of_regions(node: Node, found: Term) -> Term:
    """Results of as many regions as there are."""
    node.fixed(node.input(0), range(1, 4))
    rois = node.input(1)
    return bounded.resized(found, 0, bounded.size(rois, 0)) if bounded.varying(rois) else found


@operator("MaxRoiPool", sized=True)
def max_roi_pool(node: Node) -> Term:
    """The largest element of each bin of each region, 0 in an empty bin; bounds are rounded."""
    x, rois = (bounded.whole(node.input(n)) for n in range(2))
    bins, scale = node.ints("pooled_shape") or [], node.float_("spatial_scale")
    batch, *edges = shaping.unstack(rois, 1)
    x0, y0, x1, y1 = ((e * scale + 0.5).do("floor") for e in edges)
    axes = [
        regions.whole_bins(low, high - low + 1, bins[k], x.dims[2 + k], x.dims[2 + k])
        for k, (low, high) in enumerate(((y0, y1), (x0, x1)))
    ]
    return _of_regions(node, regions.roi_pool(x, batch, axes)[0])
