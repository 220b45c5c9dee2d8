"""Conversions of element types: by value with the rules of narrow floats, and by bits."""

from __future__ import annotations

from math import inf

import numpy as np

from ....dtypes import DType, f32, f64, pred, s32, to_numpy, u8
from ...lax.functions import is_nan
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator


@operator("Cast", sized=True)
def _cast(node: Node) -> Term:
    return converted(node, node.input(0), node.dtype("to"))


@operator("CastLike", sized=True)
def _cast_like(node: Node) -> Term:
    return converted(node, node.input(0), node.input(1).dtype)


@operator("BitCast", sized=True)
def _bit_cast(node: Node) -> Term:
    x, to = node.input(0), node.dtype("to")
    if x.dtype.bits != to.bits:
        node.malformed(f"{x.dtype} and {to} have elements of different sizes")
    if pred in (x.dtype, to):
        return (x.to(u8) if x.dtype == pred else x.to(u8, "bitcast-convert")).to(to)
    return x.to(to, "bitcast-convert")


def converted(node: Node, x: Term, to: DType) -> Term:
    """Return ``x`` as another type by ONNX's rules, which the node's attributes choose."""
    if x.dtype == to:
        return x
    if to.name == "f8e8m0fnu":
        return _power_of_two(node, x, to)
    if to.is_float and to.bits == 8:
        return _narrow_float(x, to, bool(node.int_("saturate", 1)))
    if to.is_int and x.dtype.is_float and to.bits < 32:
        return x.to(s32).to(to)  # as fixed-point numbers: higher bits are dropped
    return x.to(to)


def _narrow_float(x: Term, to: DType, saturate: bool) -> Term:
    """Beyond the largest number: that number, or with ``saturate`` off infinity or NaN."""
    wide = x if x.dtype in (f32, f64) else x.to(f32)
    most = float(np.asarray(_largest(to)))
    if saturate:
        kept = wide.do("maximum", -most).do("minimum", most)
        return is_nan(wide).select(wide, kept).to(to)
    return wide.to(to)


def _largest(dtype: DType) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(to_numpy(dtype)).max)


def _power_of_two(node: Node, x: Term, to: DType) -> Term:
    """To a power of two, by ``round_mode``: f8e8m0 has neither sign nor mantissa."""
    bits = x.to(f32).to(s32, "bitcast-convert")
    exponent = bits.do("shift-right-logical", 23) & 255
    rest = bits & ((1 << 23) - 1)
    match node.string("round_mode", "up"):
        case "up":
            up = rest.differs(0)
        case "nearest":
            up = rest >= (1 << 22)
        case "down":
            up = rest < 0
        case other:
            node.malformed(f"its rounding mode is `{other}`")
    raised = exponent + up.to(s32)
    kept = raised.do("minimum", 254) if node.int_("saturate", 1) else raised
    special = is_nan(x.to(f32)) | x.to(f32).equals(inf)
    return special.select(255, kept).to(u8).to(to, "bitcast-convert")
