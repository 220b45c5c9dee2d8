"""Maps from labels to numbers: those of results become arrays, those of inputs are refused."""

from __future__ import annotations

from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from .domain import DOMAIN


@operator("ZipMap", domain=DOMAIN)
def zip_map(node: Node) -> Term:
    """The numbers ``[n, classes]`` as they are: their columns are in the order of the labels."""
    labels = node.ints("classlabels_int64s") or node.strings("classlabels_strings") or []
    x = node.input(0)
    if x.rank not in (1, 2) or x.dims[-1] != len(labels):
        node.malformed(f"it gives {len(labels)} labels to an array of {list(x.dims)}")
    return x


@operator("DictVectorizer", "CastMap", domain=DOMAIN)
def from_map(node: Node) -> Term:
    """Refused: arrays alone go into what is compiled."""
    node.unsupported(
        "HLO has no maps",
        "give the model an array of the map's numbers, in the order of their keys",
    )
