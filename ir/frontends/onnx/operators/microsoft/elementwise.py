"""GELU and its relatives with a bias, and products with transposes or activations in them."""

from __future__ import annotations

from collections.abc import Callable

from ....lax import functions, linear, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from ..convolution import convolved, with_bias
from .domain import DOMAIN


def _biased(node: Node) -> Term:
    bias = node.optional(1)
    return node.input(0) if bias is None else node.input(0) + bias


@operator("Gelu", "BiasGelu", domain=DOMAIN)
def gelu(node: Node) -> Term:
    """The exact GELU of the input and a bias."""
    return functions.gelu(_biased(node))


@operator("FastGelu", domain=DOMAIN)
def fast_gelu(node: Node) -> Term:
    """The approximation of GELU by a hyperbolic tangent."""
    return functions.gelu_tanh(_biased(node))


@operator("QuickGelu", domain=DOMAIN)
def quick_gelu(node: Node) -> Term:
    """``x sigmoid(alpha x)``."""
    return functions.silu(node.input(0), node.float_("alpha", 1.702))


@operator("BiasAdd", domain=DOMAIN)
def bias_add(node: Node) -> Term:
    """The sum of an array, a bias and another array."""
    x, bias, skip = node.arrays()
    return x + bias + skip


@operator("BiasSplitGelu", domain=DOMAIN)
def bias_split_gelu(node: Node) -> Term:
    """One half of the last dimension times the GELU of the other."""
    x = _biased(node)
    left, right = shaping.split(x, [x.dims[-1] // 2] * 2, -1)
    return left * functions.gelu(right)


@operator("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(node: Node) -> Term:
    """``alpha A B``, the matrices transposed, or a matrix's rows and batch dimensions exchanged."""
    a, b = (_turned(node, node.input(n), side) for n, side in enumerate("AB"))
    found = linear.matmul(a, b)
    alpha = node.float_("alpha", 1.0)
    return found if alpha == 1 else found * alpha


def _turned(node: Node, x: Term, side: str) -> Term:
    if x.rank < 2:
        return x
    if node.int_(f"transBatch{side}", 0):
        x = shaping.move_axis(x, 0, -2)
    return shaping.swap_axes(x, x.rank - 2, x.rank - 1) if node.int_(f"trans{side}", 0) else x


def _parameters(node: Node, count: int) -> list[float]:
    given = node.floats("activation_params") or []
    if len(given) != count:
        node.malformed(f"its activation has {len(given)} parameters and takes {count}")
    return given


def _leaky(node: Node, x: Term) -> Term:
    (alpha,) = _parameters(node, 1)
    return functions.leaky_relu(x, alpha)


def _clip(node: Node, x: Term) -> Term:
    low, high = _parameters(node, 2)
    return functions.clamp(x, low, high)


def _hard_sigmoid(node: Node, x: Term) -> Term:
    alpha, beta = _parameters(node, 2)
    return functions.hard_sigmoid(x, alpha, beta)


ACTIVATIONS: dict[str, Callable[[Node, Term], Term]] = {
    "": lambda node, x: x,
    "Relu": lambda node, x: functions.relu(x),
    "Tanh": lambda node, x: x.do("tanh"),
    "Sigmoid": lambda node, x: functions.sigmoid(x),
    "LeakyRelu": _leaky,
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
}
"""By the attribute ``activation``."""


def _activated(node: Node, x: Term) -> Term:
    name = node.string("activation", "")
    if name not in ACTIVATIONS:
        node.unsupported(f"activation `{name}` is not known", ", ".join(ACTIVATIONS))
    return ACTIVATIONS[name](node, x)


@operator("FusedConv", domain=DOMAIN)
def fused_conv(node: Node) -> Term:
    """A convolution with bias, another array added, and an activation."""
    found = with_bias(convolved(node, node.input(0), node.input(1)), node.optional(2))
    more = node.optional(3)
    return _activated(node, found if more is None else found + more)


@operator("FusedGemm", domain=DOMAIN)
def fused_gemm(node: Node) -> Term:
    """``activation(alpha A B + beta C)``."""
    a, b = (_turned(node, node.input(n), side) for n, side in enumerate("AB"))
    found, more = linear.matmul(a, b) * node.float_("alpha", 1.0), node.optional(2)
    return _activated(node, found if more is None else found + more * node.float_("beta", 1.0))
