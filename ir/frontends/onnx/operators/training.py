"""Steps of optimizers: Adagrad, Adam and Momentum of ``ai.onnx.preview.training``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...lax import shaping
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator

DOMAIN = "ai.onnx.preview.training"
Step = Callable[..., Sequence[Term]]
"""Takes a parameter, its gradient and the state of both; returns them anew without the gradient."""


def _each(node: Node, step: Step, states: int) -> tuple[Term, ...]:
    """One step of each of several parameters, whose operands are listed kind by kind."""
    given = node.arrays()[2:]
    count = len(given) // (2 + states)
    if len(given) != count * (2 + states):
        node.malformed(f"{len(given)} arrays for parameters with {states} states each")
    kinds = [given[k * count : (k + 1) * count] for k in range(2 + states)]
    found = [step(*one) for one in zip(*kinds, strict=True)]
    return tuple(term for kind in zip(*found, strict=True) for term in kind)


def _scalars(node: Node, like: Term) -> tuple[Term, Term]:
    """The rate and the number of steps, in the parameters' type."""
    rate, number = (shaping.reshape(node.input(n), ()).to(like.dtype) for n in (0, 1))
    return rate, number


@operator("Adagrad", domain=DOMAIN)
def adagrad(node: Node) -> tuple[Term, ...]:
    """Duchi, Hazan and Singer, 2011."""
    decay, epsilon, norm = (node.float_(n) for n in ("decay_factor", "epsilon", "norm_coefficient"))
    rate, number = _scalars(node, node.input(2))

    def step(x: Term, gradient: Term, squares: Term) -> Sequence[Term]:
        slope = x * norm + gradient
        new = squares + slope * slope
        return [x - rate / (number * decay + 1) * slope / (new.do("sqrt") + epsilon), new]

    return _each(node, step, 1)


@operator("Adam", domain=DOMAIN)
def adam(node: Node) -> tuple[Term, ...]:
    """Kingma and Ba, 2014; its bias is corrected from the second step on."""
    alpha, beta, epsilon = (node.float_(n) for n in ("alpha", "beta", "epsilon"))
    norm, after = node.float_("norm_coefficient"), node.float_("norm_coefficient_post")
    rate, number = _scalars(node, node.input(2))
    later = number > 0
    safe = later.select(number, 1)
    bias = (1 - rate.number(beta) ** safe).do("sqrt") / (1 - rate.number(alpha) ** safe)
    rate = later.select(rate * bias, rate)

    def step(x: Term, gradient: Term, first: Term, second: Term) -> Sequence[Term]:
        slope = x * norm + gradient
        v = first * alpha + slope * (1 - alpha)
        h = second * beta + slope * slope * (1 - beta)
        return [(x - rate * (v / (h.do("sqrt") + epsilon))) * (1 - after), v, h]

    return _each(node, step, 2)


@operator("Momentum", domain=DOMAIN)
def momentum(node: Node) -> tuple[Term, ...]:
    """Gradient descent with momentum, plain or Nesterov's."""
    alpha, beta, norm = (node.float_(n) for n in ("alpha", "beta", "norm_coefficient"))
    nesterov = node.string("mode") == "nesterov"
    rate, number = _scalars(node, node.input(2))
    weight = (number > 0).select(rate.number(beta), 1)

    def step(x: Term, gradient: Term, held: Term) -> Sequence[Term]:
        slope = x * norm + gradient
        new = held * alpha + weight * slope
        return [x - rate * (slope + new * alpha if nesterov else new), new]

    return _each(node, step, 1)
