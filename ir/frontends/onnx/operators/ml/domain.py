"""The name of the domain of ONNX's classical machine learning, and what follows its scores."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from ....lax import functions, special
from ....lax.term import Term
from ...nodes.node import Node

DOMAIN = "ai.onnx.ml"


def _softmax_zero(x: Term) -> Term:
    """Softmax of the scores that are not 0; those stay 0."""
    live = x.differs(0)
    lowered = live.select(x, -float("inf"))
    made = functions.softmax(lowered, [1])
    return live.select(made, 0)


def _probit(x: Term) -> Term:
    """The inverse of the normal distribution's function."""
    return special.erf_inv(x * 2 - 1) * sqrt(2)


TRANSFORMS: dict[str, Callable[[Term], Term]] = {
    "NONE": lambda x: x,
    "SOFTMAX": lambda x: functions.softmax(x, [1]),
    "LOGISTIC": lambda x: functions.sigmoid(x),
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}
"""By ``post_transform``, which newer operators number in this order."""


def transformed(node: Node, name: str, x: Term) -> Term:
    """Scores ``[n, classes]`` as the node's ``post_transform`` makes them."""
    if name not in TRANSFORMS:
        node.malformed(f"post_transform is `{name}`")
    return TRANSFORMS[name](x)
