"""Layer, group and batch normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....lax.functions import batch_normalized, group_normalized, normalized
from ....lax.reductions import sum_
from ....lax.shaping import full, reshape
from ....lax.term import Term
from ..call import AtenCall, Operator, Rows, Sized, wide
from ..reductions import variance


def _scaled(x: Term, weight: Term | None, bias: Term | None) -> Term:
    if weight is not None:
        x = x * weight.to(x.dtype)
    return x if bias is None else x + bias.to(x.dtype)


def empty(c: AtenCall) -> list[Term]:
    """Zeros for results of which an operand without elements leaves nothing to compute."""
    return [full(c.graph, 0, s.dtype, s.dims) for s in c.results if s is not None]


def layer_norm(
    c: AtenCall,
    x: Term,
    sizes: Sequence[int],
    weight: Term | None,
    bias: Term | None,
    eps: float,
) -> list[Term]:
    """The result, the means, and 1 / sqrt(variance + eps); computed in f32 of narrow floats."""
    if not x.shape.size:
        return empty(c)
    axes = range(x.rank - len(sizes), x.rank)
    c.fixed(x, axes)
    found, center, scale = normalized(wide(x), axes, eps)
    return [_scaled(found, weight, bias), center, scale]


def _group_norm(
    c: AtenCall,
    x: Term,
    weight: Term | None,
    bias: Term | None,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> list[Term]:
    if not x.shape.size:
        return empty(c)
    found, center, scale = group_normalized(wide(x), groups, eps)
    ones = [1] * (x.rank - 2)
    weight = None if weight is None else reshape(weight, (-1, *ones))
    bias = None if bias is None else reshape(bias, (-1, *ones))
    return [_scaled(found, weight, bias), center, scale]


def _inference(
    x: Term, weight: Term | None, bias: Term | None, mean: Term, var: Term, eps: float
) -> Term:
    """``x`` by the statistics of training, as one product and one sum."""
    weight, bias = (None if t is None else wide(t) for t in (weight, bias))
    return batch_normalized(wide(x), weight, bias, wide(mean), wide(var), eps)


def _training(
    x: Term, weight: Term | None, bias: Term | None, eps: float
) -> tuple[Term, Term, Term, Term]:
    """``x`` normalized by its own statistics; mean, 1 / deviation, and variance less one."""
    y, axes = wide(x), [0, *range(2, x.rank)]
    sizes = (-1, *[1] * (x.rank - 2))
    found, center, scale = normalized(y, axes, eps)
    weight = None if weight is None else reshape(weight, sizes)
    bias = None if bias is None else reshape(bias, sizes)
    spread = variance(y, axes, 1, keep=False)[0]
    flat = (x.dims[1],)
    return _scaled(found, weight, bias), reshape(center, flat), reshape(scale, flat), spread


def _running(old: Term, new: Term, momentum: float) -> Term:
    return wide(old) * (1 - momentum) + new.to(wide(old).dtype) * momentum


def _batch_norm(with_stats: bool) -> Operator:
    """With running statistics if they are handed on, as the functional form does."""

    def write(
        c: AtenCall,
        x: Term,
        weight: Term | None,
        bias: Term | None,
        mean: Term | None,
        var: Term | None,
        training: bool,
        momentum: float,
        eps: float,
    ) -> list[Term]:
        if not x.shape.size:
            return [*empty(c)[:3], *([mean, var] if with_stats else [])]  # type: ignore[list-item]
        if not training:
            assert mean is not None and var is not None
            c.fixed(x, [1])
            found = _inference(x, weight, bias, mean, var, eps)
            none = [full(c.graph, 0, s.dtype, s.dims) for s in c.results[1:3] if s is not None]
            return [found, *none, *([mean, var] if with_stats else [])]
        c.fixed(x, range(x.rank))
        found, center, scale, spread = _training(x, weight, bias, eps)
        result = [found, center, scale]
        if with_stats:
            assert mean is not None and var is not None
            if math.prod(x.dims) == x.dims[1]:
                spread = spread * math.nan
            result += [_running(mean, center, momentum), _running(var, spread, momentum)]
        return result

    return write


def _with_update(
    c: AtenCall,
    x: Term,
    weight: Term | None,
    bias: Term | None,
    mean: Term,
    var: Term,
    momentum: float,
    eps: float,
) -> list[Any]:
    """Training with running statistics: results, saved ones, a reserve of nothing, new ones."""
    found = _batch_norm(True)(c, x, weight, bias, mean, var, True, momentum, eps)
    reserve = c.results[3]
    assert reserve is not None
    nothing = full(c.graph, 0, reserve.dtype, reserve.dims)
    return [*found[:3], nothing, *found[3:]]


def _no_training(
    c: AtenCall,
    x: Term,
    weight: Term | None,
    bias: Term | None,
    mean: Term,
    var: Term,
    momentum: float,
    eps: float,
) -> list[Term]:
    c.fixed(x, [1])
    none = [full(c.graph, 0, s.dtype, s.dims) for s in c.results[1:] if s is not None]
    return [_inference(x, weight, bias, mean, var, eps), *none]


def _no_stats(
    c: AtenCall,
    x: Term,
    weight: Term | None,
    bias: Term | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    return _batch_norm(False)(c, x, weight, bias, None, None, True, momentum, eps)


def _weight_norm_backward(
    c: AtenCall, grad: Term, weight: Term, scale: Term, norms: Term, dim: int
) -> list[Term]:
    """Of ``weight * (scale / norm)``, the norms those of all dimensions but one."""
    axes = [k for k in range(weight.rank) if k != dim % weight.rank]
    along = sum_(wide(grad) * wide(weight), axes, keep=True)
    norms = wide(norms)
    apart = wide(grad) - wide(weight) * (along / (norms * norms))
    return [apart * (wide(scale) / norms), along / norms]


ROWS: Rows = {
    "aten._weight_norm_interface_backward.default": _weight_norm_backward,
    "aten.native_layer_norm.default": Sized(layer_norm),
    "aten.native_group_norm.default": _group_norm,
    "aten.native_batch_norm.default": Sized(_batch_norm(False)),
    "aten._native_batch_norm_legit.default": Sized(_batch_norm(False)),
    "aten._native_batch_norm_legit.no_stats": _no_stats,
    "aten._native_batch_norm_legit_functional.default": Sized(_batch_norm(True)),
    "aten._native_batch_norm_legit_no_training.default": Sized(_no_training),
    "aten._batch_norm_with_update_functional.default": _with_update,
}
