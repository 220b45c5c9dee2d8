"""Activations, and softmax with its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....lax.functions import (
    gelu,
    gelu_tanh,
    leaky_relu,
    log_softmax,
    mish,
    relu,
    silu,
    softmax,
    softplus,
)
from ....lax.shaping import per_channel, squeeze
from ....lax.term import Term
from ..call import AtenCall, Operator, Rows, sized, wide
from ..promotion import Operand
from .attention import safe_softmax


def _relu(c: AtenCall, x: Term) -> Term:
    return relu(x)


def _gelu(c: AtenCall, x: Term, *, approximate: str = "none") -> Term:
    return (gelu_tanh if approximate == "tanh" else gelu)(wide(x))


def _elu(c: AtenCall, x: Term, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Term:
    y = wide(x)
    low = (y * input_scale).do("exponential-minus-one") * (alpha * scale)
    return (y > 0).select(y * scale, low)


def _hardtanh(c: AtenCall, x: Term, low: Operand = -1, high: Operand = 1) -> Term:
    return x.do("maximum", c.term(low, x.dtype)).do("minimum", c.term(high, x.dtype))


def _leaky_relu(c: AtenCall, x: Term, slope: float = 0.01) -> Term:
    return leaky_relu(wide(x), slope)


def _rrelu(
    c: AtenCall,
    x: Term,
    noise: Term,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *_: Any,
) -> list[Term]:
    """Slopes are drawn in training, and all of the middle outside of it."""
    if training:
        c.refuse("its slopes come from torch's generator", "model.eval()")
    return [leaky_relu(wide(x), (lower + upper) / 2), noise]


def _prelu(c: AtenCall, x: Term, slope: Term) -> Term:
    """The slopes are of channels, dimension 1, or one for all."""
    if slope.rank == 1:
        slope = per_channel(slope, x.rank) if x.rank > 1 else squeeze(slope, [0])
    return leaky_relu(wide(x), wide(slope))


def _silu(c: AtenCall, x: Term) -> Term:
    return silu(wide(x))


def _softplus(c: AtenCall, x: Term, beta: float = 1, threshold: float = 20) -> Term:
    y = wide(x)
    scaled = y * beta
    return (scaled > threshold).select(y, softplus(scaled) / beta)


def _mish(c: AtenCall, x: Term) -> Term:
    return mish(wide(x))


def _hardsigmoid(c: AtenCall, x: Term) -> Term:
    return (wide(x) + 3).do("maximum", 0).do("minimum", 6) / 6


def _hardswish(c: AtenCall, x: Term) -> Term:
    y = wide(x)
    return y * (y + 3).do("maximum", 0).do("minimum", 6) / 6


def _softmax(function: Callable[..., Term]) -> Operator:
    def write(c: AtenCall, x: Term, dim: int, *rest: Any, **named: Any) -> Term:
        y = wide(x.to(c.dtype) if c.dtype.bits > x.dtype.bits or x.dtype.is_int else x)
        if not y.rank:
            return y * 0 + (1 if function is softmax else 0)
        return y if not y.shape.size else function(y, [dim])

    return write


def _safe_softmax(c: AtenCall, x: Term, dim: int, dtype: Any = None) -> Term:
    y = wide(x.to(c.dtype))
    return safe_softmax(y, dim) if y.rank and y.shape.size else y * 0 + 1


ROWS: Rows = sized(
    {
        "aten.relu.default": _relu,
        "aten.gelu.default": _gelu,
        "aten.elu.default": _elu,
        "aten.hardtanh.default": _hardtanh,
        "aten.leaky_relu.default": _leaky_relu,
        "aten.prelu.default": _prelu,
        "aten._prelu_kernel.default": _prelu,
        "aten.rrelu_with_noise_functional.default": _rrelu,
        "aten.silu.default": _silu,
        "aten.softplus.default": _softplus,
        "aten.mish.default": _mish,
        "aten.hardsigmoid.default": _hardsigmoid,
        "aten.hardswish.default": _hardswish,
        "aten._softmax.default": _softmax(softmax),
        "aten._log_softmax.default": _softmax(log_softmax),
        "aten.softmax.int": _softmax(softmax),
        "aten.log_softmax.int": _softmax(log_softmax),
        "aten._safe_softmax.default": _safe_softmax,
    }
)
