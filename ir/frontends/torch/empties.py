"""Gradients of arrays without elements, whose number torch's decompositions divide by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_LOSSES = ("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward")


def empties(known: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Return such decompositions by overload, in terms of the ``known`` ones."""
    from torch.ops import aten

    losses = {op: _loss(known[op]) for op in (getattr(aten, name).default for name in _LOSSES)}
    norm = aten.native_group_norm_backward.default
    return losses | {norm: _norm(known[norm])}


def _loss(rule: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(grad: Any, x: Any, target: Any, *rest: Any) -> Any:
        return rule(grad, x, target, *rest) if x.numel() else x - target

    return gradient


def _norm(rule: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(grad: Any, x: Any, *rest: Any) -> Any:
        if x.numel():
            return rule(grad, x, *rest)
        *sizes, (wanted, *others) = rest
        _, *found = rule(grad, x, *sizes, [False, *others])
        return x.new_empty(x.shape) if wanted else None, *found

    return gradient
