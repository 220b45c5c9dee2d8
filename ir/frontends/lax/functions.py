"""Functions of neural networks as formulas, in the forms that the graph passes recognize."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, pi, sqrt

from ...dtypes import DType, accumulator
from . import bounded
from .reductions import max_, sum_
from .shaping import broadcast_to, expand_dims, per_channel, reshape
from .term import Number, Term


def wide(dtype: DType) -> DType:
    """Return the type that functions of floats are computed in: f32 for narrower ones."""
    return accumulator(dtype)


def mean(x: Term, axes: Sequence[int] | None = None, keep: bool = False) -> Term:
    """The mean over dimensions, by default all, of an array of floats or complex numbers."""
    return average(sum_(x, axes, keep), x, axes)


def average(total: Term, x: Term, axes: Sequence[int] | None = None) -> Term:
    """A sum of elements of ``x`` along dimensions, over their number; NaN where there are none."""
    count = bounded.count(x, range(x.rank) if axes is None else axes)
    if isinstance(count, Term):
        return total / count.to(total.dtype)
    return total / count if count else total * nan


def softmax(x: Term, axes: Sequence[int]) -> Term:
    """exp(x) over its sum along dimensions; a row of minus infinity gives NaN."""
    exps = _shifted(x, axes).do("exponential")
    return exps / sum_(exps, axes, keep=True)


def log_softmax(x: Term, axes: Sequence[int]) -> Term:
    """The logarithm of ``softmax``."""
    shifted = _shifted(x, axes)
    return shifted - sum_(shifted.do("exponential"), axes, keep=True).do("log")


def logsumexp(x: Term, axes: Sequence[int], keep: bool = False) -> Term:
    """The logarithm of the sum of exp(x), without overflow; -inf where all elements are."""
    top = max_(x, axes, keep=True)
    top = top.do("is-finite").select(top, 0)
    total = sum_((x - top).do("exponential"), axes, keep=True).do("log") + top
    return total if keep else max_(total, axes)


def _shifted(x: Term, axes: Sequence[int]) -> Term:
    return x - max_(x, axes, keep=True)


def sigmoid(x: Term) -> Term:
    """1 / (1 + exp(-x))."""
    return x.do("logistic")


def relu(x: Term) -> Term:
    """The larger of x and 0; NaN of NaN."""
    return x.do("maximum", 0)


def clamp(x: Term, low: Number | Term, high: Number | Term) -> Term:
    """``x`` within bounds; NaN of NaN, and ``high`` where the bounds cross."""
    return x.do("maximum", low).do("minimum", high)


def silu(x: Term, beta: float = 1.0) -> Term:
    """x sigmoid(beta x)."""
    return x * sigmoid(x if beta == 1 else x * beta)


def mish(x: Term) -> Term:
    """x tanh(softplus(x)) (Misra, 2019)."""
    return x * softplus(x).do("tanh")


def leaky_relu(x: Term, slope: Number | Term = 0.01) -> Term:
    """x, below 0 times a slope, which may be an array's."""
    return (x < 0).select(x * slope, x)


def elu(x: Term, alpha: float = 1.0) -> Term:
    """x, below 0 alpha (exp(x) - 1)."""
    return (x < 0).select(x.do("minimum", 0).do("exponential-minus-one") * alpha, x)


SELU = {"alpha": 1.67326319, "gamma": 1.05070102}  # Klambauer et al. (2017)


def selu(x: Term, alpha: float, gamma: float) -> Term:
    """Scaled ELU."""
    low = x.do("minimum", 0).do("exponential-minus-one") * alpha
    return (x > 0).select(x, low) * gamma


def hard_sigmoid(x: Term, slope: float, offset: float) -> Term:
    """slope x + offset, within 0 and 1."""
    return clamp(x * slope + offset, 0, 1)


def soft_sign(x: Term) -> Term:
    """x / (1 + |x|)."""
    return x / (x.do("abs") + 1)


def thresholded_relu(x: Term, threshold: float = 1.0) -> Term:
    """x above a threshold, else 0."""
    return (x > threshold).select(x, 0)


def softplus(x: Term) -> Term:
    """log(1 + exp(x)), without overflow."""
    return x.do("maximum", 0) + (-x.do("abs")).do("exponential").do("log-plus-one")


def gelu(x: Term) -> Term:
    """x times the normal distribution's function at x."""
    return x * 0.5 * ((x * (1 / sqrt(2))).do("erf") + 1)


def gelu_tanh(x: Term) -> Term:
    """GELU's approximation by a hyperbolic tangent (Hendrycks and Gimpel, 2016)."""
    inner = (x + x * x * x * 0.044715) * sqrt(2 / pi)
    return x * 0.5 * (inner.do("tanh") + 1)


def is_nan(x: Term) -> Term:
    """True where x is NaN."""
    return x.differs(x)


def is_inf(x: Term) -> Term:
    """True where x is infinite, of either sign."""
    return x.do("abs").equals(inf)


def normalized(x: Term, axes: Sequence[int], epsilon: float) -> tuple[Term, Term, Term]:
    """``x`` with mean 0 and variance 1 along dimensions; the mean; 1 / sqrt(variance + epsilon).

    The mean and the reciprocal keep the dimensions, at size 1.
    """
    center = mean(x, axes, keep=True)
    apart = x - center
    spread = mean(apart * apart, axes, keep=True)
    scale = (spread + epsilon).do("rsqrt")
    return apart * scale, center, scale


def group_normalized(x: Term, groups: int, epsilon: float) -> tuple[Term, Term, Term]:
    """``x[n, c, ..]`` with mean 0 and variance 1 in each group of channels; the mean and 1 /
    sqrt(variance + epsilon), ``[n, groups]``.

    Means of channels come before those of groups, so nothing depends on the order in memory.
    """
    batch, channels = x.dims[:2]
    each = (batch, groups, channels // groups)

    def of_groups(t: Term) -> Term:
        return mean(reshape(mean(t, range(2, x.rank)), each), [2])

    def of_channels(t: Term) -> Term:
        wide = broadcast_to(expand_dims(t, [2]), each)
        return reshape(wide, (batch, channels, *[1] * (x.rank - 2)))

    center = of_groups(x)
    apart = x - of_channels(center)
    scale = (of_groups(apart * apart) + epsilon).do("rsqrt")
    return apart * of_channels(scale), center, scale


def rms_normalized(x: Term, axes: Sequence[int], epsilon: float) -> tuple[Term, Term]:
    """``x`` over the root of the mean of its squares along dimensions; 1 / that root.

    The reciprocal keeps the dimensions, at size 1.
    """
    scale = (mean(x * x, axes, keep=True) + epsilon).do("rsqrt")
    return x * scale, scale


def batch_normalized(
    x: Term, scale: Term | None, bias: Term | None, mean: Term, variance: Term, epsilon: float
) -> Term:
    """``x[n, c, ..]`` by statistics ``[c]`` of training, all of one type.

    One factor and one offset per channel, which a convolution before it takes in.
    """
    factor = (variance + epsilon).do("rsqrt")
    if scale is not None:
        factor = factor * scale
    offset = -mean * factor
    if bias is not None:
        offset = offset + bias
    return x * per_channel(factor, x.rank) + per_channel(offset, x.rank)
