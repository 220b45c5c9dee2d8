"""Linear models: regression and classification."""

from __future__ import annotations

import numpy as np

from .....dtypes import f32, s64
from ....lax import functions, indexing, linear, reductions, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from .domain import DOMAIN, transformed


def _scores(node: Node, count: int) -> Term:
    """``X coefficientsᵀ + intercepts``, by f32: ``[n, count]``."""
    x = node.input(0).to(f32)
    rows = shaping.reshape(x, (-1, x.dims[-1])) if x.rank != 2 else x
    weights = np.array(node.floats("coefficients") or [], np.float32).reshape(count, -1)
    found = linear.matmul(rows, node.constant(weights.T))
    intercepts = node.floats("intercepts")
    return found + node.constant(intercepts, f32) if intercepts else found


@operator("LinearRegressor", domain=DOMAIN)
def linear_regressor(node: Node) -> Term:
    """One number for each target."""
    found = _scores(node, node.int_("targets", 1))
    return transformed(node, node.string("post_transform", "NONE"), found)


def labels_of(node: Node, name: str, count: int) -> Term:
    """The labels of classes, which are integers."""
    if node.strings("classlabels_strings"):
        node.unsupported("its labels are strings", "give it labels that are integers")
    return node.constant(node.ints(name) or list(range(count)), s64)


@operator("LinearClassifier", domain=DOMAIN)
def linear_classifier(node: Node) -> tuple[Term, Term]:
    """The label of the best class, and the scores; a single score is that of the second class."""
    labels = node.ints("classlabels_ints") or []
    count = len(node.floats("intercepts") or labels) or 1
    found = _scores(node, count)
    name = node.string("post_transform", "NONE")
    if count == 1 and len(labels) == 2:
        best = (found > 0).to(s64)
        other = functions.sigmoid(-found) if name == "LOGISTIC" else -found
        mine = functions.sigmoid(found) if name == "LOGISTIC" else found
        scores = shaping.concatenate([other, mine], 1)
        best = shaping.reshape(best, (found.dims[0],))
    else:
        best = reductions.argmax(found, 1)
        scores = transformed(node, name, found)
    return indexing.take(labels_of(node, "classlabels_ints", count), best, 0), scores
