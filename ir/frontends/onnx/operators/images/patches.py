"""Images cut to a size or filled up to it, about their centers."""

from __future__ import annotations

from ....lax import shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator


@operator("CenterCropPad", since=18)
def center_crop_pad(node: Node) -> Term:
    """Where a margin is odd, its larger half is at the end."""
    x, sizes = node.input(0), node.known_ints(1)
    axes = [node.dimension(a, x.rank) for a in node.ints("axes") or range(x.rank)]
    low, high = [0] * x.rank, [0] * x.rank
    for d, size in zip(axes, sizes, strict=True):
        extra = size - x.dims[d]
        low[d] = extra // 2 if extra > 0 else -(-extra // 2)
        high[d] = extra - low[d]
    return shaping.pad(x, 0, low, high)
