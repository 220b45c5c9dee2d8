"""GELU and its relatives with a bias, and products with transposes or activations in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from ....lax import functions, linear, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from ..convolution import convolved, with_bias
from .domain import DOMAIN


def _biased(node: Node) -> Term:
    bias = node.optional(1)
    return node.input(0) if bias is None else node.input(0) + bias


@operator("Gelu", "BiasGelu", domain=DOMAIN, sized=True)
def gelu(node: Node) -> Term:
    """The exact GELU of the input and a bias."""
    return functions.gelu(_biased(node))


@operator("FastGelu", domain=DOMAIN, sized=True)
def fast_gelu(node: Node) -> Term:
    """The approximation of GELU by a hyperbolic tangent."""
    return functions.gelu_tanh(_biased(node))


@operator("QuickGelu", domain=DOMAIN, sized=True)
def quick_gelu(node: Node) -> Term:
    """``x sigmoid(alpha x)``."""
    return functions.silu(node.input(0), node.float_("alpha", 1.702))


@operator("BiasAdd", domain=DOMAIN, sized=True)
def bias_add(node: Node) -> Term:
    """The sum of an array, a bias and another array."""
    x, bias, skip = node.arrays()
    return x + bias + skip


@operator("BiasSplitGelu", domain=DOMAIN, sized=True)
def bias_split_gelu(node: Node) -> Term:
    """One half of the last dimension times the GELU of the other."""
    x = _biased(node)
    left, right = shaping.split(x, [x.dims[-1] // 2] * 2, -1)
    return left * functions.gelu(right)


@operator("FusedMatMul", "TransposeMatMul", domain=DOMAIN, sized=True)
def fused_matmul(node: Node) -> Term:
    """``alpha A B``, the matrices transposed, or a matrix's rows and batch dimensions exchanged."""
    a, b = (_turned(node, node.input(n), side) for n, side in enumerate("AB"))
    found = linear.matmul(a, b)
    alpha = node.float_("alpha", 1.0)
    return found if alpha == 1 else found * alpha


def _turned(node: Node, x: Term, side: str) -> Term:
    if x.rank < 2:
        node.ignore(f"transBatch{side}", f"trans{side}")
        return x
    if node.int_(f"transBatch{side}", 0):
        x = shaping.move_axis(x, 0, -2)
    return shaping.swap_axes(x, x.rank - 2, x.rank - 1) if node.int_(f"trans{side}", 0) else x


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of an array and of parameters, with the names and the values by default that they
    have in ONNX's operator."""

    function: Callable[..., Term]
    parameters: Mapping[str, float] = field(default_factory=dict)


ACTIVATIONS = {
    "": Activation(lambda x: x),
    "Relu": Activation(functions.relu),
    "Tanh": Activation(lambda x: x.do("tanh")),
    "Sigmoid": Activation(functions.sigmoid),
    "Softplus": Activation(functions.softplus),
    "Softsign": Activation(functions.soft_sign),
    "Elu": Activation(functions.elu, {"alpha": 1.0}),
    "LeakyRelu": Activation(functions.leaky_relu, {"alpha": 0.01}),
    "ThresholdedRelu": Activation(functions.thresholded_relu, {"alpha": 1.0}),
    "Selu": Activation(functions.selu, functions.SELU),
    "HardSigmoid": Activation(functions.hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "Clip": Activation(functions.clamp, {"min": -inf, "max": inf}),
}
"""By the attribute ``activation``."""


def _activation(node: Node) -> Activation:
    name = node.string("activation", "")
    if name not in ACTIVATIONS:
        node.unsupported(f"activation `{name}` is not known", ", ".join(filter(None, ACTIVATIONS)))
    return ACTIVATIONS[name]


@operator("FusedConv", domain=DOMAIN)
def fused_conv(node: Node) -> Term:
    """A convolution with bias, another array added, and an activation of listed parameters."""
    found = with_bias(convolved(node, node.input(0), node.input(1)), node.optional(2))
    more = node.optional(3)
    activation, given = _activation(node), node.floats("activation_params") or []
    if len(given) != len(activation.parameters):
        takes = len(activation.parameters)
        node.malformed(f"its activation has {len(given)} parameters and takes {takes}")
    return activation.function(found if more is None else found + more, *given)


@operator("NhwcConv", domain=DOMAIN)
def nhwc_conv(node: Node) -> Term:
    """A convolution with bias; the channels of data, weights and result are last."""
    x, kernel = (shaping.move_axis(node.input(n), -1, 1) for n in (0, 1))
    return shaping.move_axis(with_bias(convolved(node, x, kernel), node.optional(2)), 1, -1)


@operator("FusedGemm", domain=DOMAIN, sized=True)
def fused_gemm(node: Node) -> Term:
    """``activation(alpha A B + beta C)``; parameters are attributes ``activation_alpha`` etc."""
    a, b = (_turned(node, node.input(n), side) for n, side in enumerate("AB"))
    alpha, beta = (node.float_(name, 1.0) for name in ("alpha", "beta"))
    found, more = linear.matmul(a, b) * alpha, node.optional(2)
    found = found if more is None else found + more * beta
    activation = _activation(node)
    node.ignore(*(f"activation_{k}" for k in ("alpha", "beta", "gamma")))
    given = [node.float_(f"activation_{k}", v) for k, v in activation.parameters.items()]
    return activation.function(found, *given)
