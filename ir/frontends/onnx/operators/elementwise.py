"""Arithmetic, comparisons, logic and bits, element by element."""

from __future__ import annotations

from functools import reduce
from math import inf

from ....dtypes import f32, f64, pred
from ...lax.arithmetic import magnitude, remainder, right_shift, sign
from ...lax.functions import is_nan
from ...lax.shaping import full
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator
from ..nodes.values import Value

UNARY = {
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "not",
    "Ceil": "ceil",
    "Cos": "cosine",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exponential",
    "Floor": "floor",
    "Log": "log",
    "Neg": "negate",
    "Not": "not",
    "Round": "round-nearest-even",
    "Sigmoid": "logistic",
    "Sin": "sine",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
"""Operators of one input and the HLO operations that they are."""

BINARY = {
    "Add": "add",
    "And": "and",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "Div": "divide",
    "Mul": "multiply",
    "Or": "or",
    "Sub": "subtract",
    "Xor": "xor",
}

COMPARED = {
    "Equal": "EQ",
    "Greater": "GT",
    "GreaterOrEqual": "GE",
    "Less": "LT",
    "LessOrEqual": "LE",
}

MANY = {"Max": "maximum", "Min": "minimum", "Sum": "add"}
"""Operators of any number of inputs."""


@operator(*UNARY, sized=True)
def _unary(node: Node) -> Term:
    return node.input(0).do(UNARY[node.op])


@operator("Abs", sized=True)
def _abs(node: Node) -> Term:
    return magnitude(node.input(0))


@operator("Sign", sized=True)
def _sign(node: Node) -> Term:
    return sign(node.input(0))


@operator(*BINARY, sized=True)
def _binary(node: Node) -> Term:
    return node.input(0).do(BINARY[node.op], node.input(1))


@operator(*COMPARED, sized=True)
def _compared(node: Node) -> Term:
    return node.input(0).do("compare", node.input(1), direction=COMPARED[node.op])


@operator(*MANY, sized=True)
def _many(node: Node) -> Term:
    return reduce(lambda a, b: a.do(MANY[node.op], b), node.arrays())


@operator("Mean", sized=True)
def _mean(node: Node) -> Term:
    terms = node.arrays()
    return reduce(lambda a, b: a + b, terms) / len(terms)


@operator("Reciprocal", sized=True)
def _reciprocal(node: Node) -> Term:
    return 1 / node.input(0)


@operator("Identity", sized=True)
def _identity(node: Node) -> Value:
    return node.inputs[0]


@operator("Pow", sized=True)
def _power(node: Node) -> Term:
    """The base's type is the result's; an integer to a power that is a float is computed wide."""
    base, exponent = node.input(0), node.input(1)
    if base.dtype == exponent.dtype:
        return base**exponent
    if base.dtype.is_float:
        known = exponent.known()
        if known is not None and known.size == 1 and exponent.rank == 0:
            return base ** float(known.reshape(())) if known != 2 else base * base
        return base ** exponent.to(base.dtype)
    if exponent.dtype.is_int:
        return base ** exponent.to(base.dtype)
    wide = f64 if f64 in (base.dtype, exponent.dtype) or base.dtype.bits > 16 else f32
    return (base.to(wide) ** exponent.to(wide)).to(base.dtype)


@operator("Mod", sized=True)
def _modulo(node: Node) -> Term:
    """The remainder: of the dividend's sign with ``fmod``, else of the divisor's."""
    a, b = node.input(0), node.input(1)
    return a.do("remainder", b) if node.int_("fmod", 0) else remainder(a, b)


@operator("BitShift", sized=True)
def _bit_shift(node: Node) -> Term:
    x, amount = node.input(0), node.input(1)
    match node.string("direction"):
        case "LEFT":
            return x.do("shift-left", amount)
        case "RIGHT":
            return right_shift(x, amount)
        case direction:
            node.malformed(f"its direction is `{direction}`")


@operator("IsNaN", sized=True)
def _isnan(node: Node) -> Term:
    return is_nan(node.input(0))


@operator("IsInf", sized=True)
def _isinf(node: Node) -> Term:
    x = node.input(0)
    above, below = node.int_("detect_positive", 1), node.int_("detect_negative", 1)
    found = full(node.graph, 0, pred, x.dims)
    if above:
        found = found | x.equals(inf)
    return found | x.equals(-inf) if below else found


@operator("Clip", since=11, sized=True)
def _clip(node: Node) -> Term:
    found = node.input(0)
    if (low := node.optional(1)) is not None:
        found = found.do("maximum", low)
    if (high := node.optional(2)) is not None:
        found = found.do("minimum", high)
    return found


@operator("Clip", sized=True)
def _clip_to_attributes(node: Node) -> Term:
    found = node.input(0)
    if node.gives("min"):
        found = found.do("maximum", node.float_("min"))
    return found.do("minimum", node.float_("max")) if node.gives("max") else found


@operator("Where", sized=True)
def _where(node: Node) -> Term:
    return node.input(0).select(node.input(1), node.input(2))
