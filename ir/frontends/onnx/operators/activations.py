"""Functions of neural networks, element by element."""

from __future__ import annotations

from ....dtypes import f64
from ...lax import functions
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator


@operator("Relu", sized=True)
def _relu(node: Node) -> Term:
    return functions.relu(node.input(0))


@operator("LeakyRelu", sized=True)
def _leaky_relu(node: Node) -> Term:
    return functions.leaky_relu(node.input(0), node.float_("alpha", 0.01))


@operator("PRelu", sized=True)
def _prelu(node: Node) -> Term:
    return functions.leaky_relu(node.input(0), node.input(1))


@operator("ThresholdedRelu", sized=True)
def _thresholded_relu(node: Node) -> Term:
    return functions.thresholded_relu(node.input(0), node.float_("alpha", 1.0))


@operator("Elu", sized=True)
def _elu(node: Node) -> Term:
    return functions.elu(node.input(0), node.float_("alpha", 1.0))


@operator("Celu", sized=True)
def _celu(node: Node) -> Term:
    x, alpha = node.input(0), node.float_("alpha", 1.0)
    low = (x.do("minimum", 0) / alpha).do("exponential-minus-one") * alpha
    return x.do("maximum", 0) + low


@operator("Selu", sized=True)
def _selu(node: Node) -> Term:
    alpha, gamma = (node.float_(name, value) for name, value in functions.SELU.items())
    return functions.selu(node.input(0), alpha, gamma)


@operator("HardSigmoid", sized=True)
def _hard_sigmoid(node: Node) -> Term:
    slope, offset = node.float_("alpha", 0.2), node.float_("beta", 0.5)
    return functions.hard_sigmoid(node.input(0), slope, offset)


@operator("HardSwish", sized=True)
def _hard_swish(node: Node) -> Term:
    x = node.input(0)
    return x * functions.hard_sigmoid(x, 1 / 6, 0.5)


@operator("Swish", sized=True)
def _swish(node: Node) -> Term:
    return functions.silu(node.input(0), node.float_("alpha", 1.0))


@operator("Mish", sized=True)
def _mish(node: Node) -> Term:
    return functions.mish(node.input(0))


@operator("Softplus", sized=True)
def _softplus(node: Node) -> Term:
    return functions.softplus(node.input(0))


@operator("Softsign", sized=True)
def _softsign(node: Node) -> Term:
    return functions.soft_sign(node.input(0))


@operator("Gelu", sized=True)
def _gelu(node: Node) -> Term:
    x = node.input(0)
    match node.string("approximate", "none"):
        case "none":
            return functions.gelu(x)
        case "tanh":
            return functions.gelu_tanh(x)
        case other:
            node.malformed(f"its approximation is `{other}`")


@operator("Shrink", sized=True)
def _shrink(node: Node) -> Term:
    x, bias, threshold = node.input(0), node.float_("bias", 0.0), node.float_("lambd", 0.5)
    wide = x if x.dtype.is_float else x.to(f64)
    found = (wide < -threshold).select(wide + bias, (wide > threshold).select(wide - bias, 0))
    return found.to(x.dtype)
