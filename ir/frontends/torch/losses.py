"""Losses of classes in operators of ATen.

torch's own decompositions ask whether there are elements, which is not known while a graph is
traced if values decide it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class LossReduction(IntEnum):
    """How the losses of all elements become one, by torch's numbers."""

    NONE = 0
    MEAN = 1
    SUM = 2


def losses() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions by overload."""
    from torch.ops import aten

    return {
        aten.cross_entropy_loss.default: cross_entropy,
        aten.nll_loss_nd.default: nll,
        aten.multilabel_margin_loss.default: lambda *args: multilabel_margin(*args)[0],
    }


def multilabel_margin(
    x: Tensor, target: Tensor, reduction: int = LossReduction.MEAN
) -> tuple[Tensor, Tensor]:
    """The loss of rows of several classes, which end at the first -1, and what is one of these.

    torch's own decomposition (2.13) counts class 0 for each place after the -1.
    """
    import torch

    count = target.shape[-1] if target.dim() else 1
    rows, classes = x.reshape(-1, count), target.reshape(-1, count)
    named = (classes == -1).cumsum(1) == 0
    place = classes.masked_fill(~named, 0)
    each = torch.arange(count, device=x.device) == place.unsqueeze(-1)
    is_target = (each & named.unsqueeze(-1)).any(1)
    apart = 1 - rows.gather(1, place).unsqueeze(-1) + rows.unsqueeze(1)
    counted = named.unsqueeze(-1) & ~is_target.unsqueeze(1)
    lost = (apart.clamp_min(0) / count).masked_fill(~counted, 0).sum((1, 2))
    match reduction:
        case LossReduction.NONE:
            lost = lost.reshape(target.shape[:-1])
        case LossReduction.SUM:
            lost = lost.sum()
        case _:
            lost = lost.mean()
    return lost, is_target.to(x.dtype).reshape(target.shape)


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = LossReduction.MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The loss of numbers of classes, or of a probability for each class."""
    axis = 1 if x.dim() > 1 else 0
    scores = x.log_softmax(axis)
    each = scores if weight is None else scores * _of_classes(weight, x)
    if target.dim() == x.dim() and target.is_floating_point():
        spread = target * (1 - label_smoothing) + label_smoothing / x.shape[axis]
        lost = -(each * spread).sum(axis)
        match reduction:
            case LossReduction.NONE:
                return lost
            case LossReduction.SUM:
                return lost.sum()
            case _:
                return lost.sum() / (lost.numel() if axis else 1)
    weights = _weights(target, weight, x, axis, ignore_index)
    lost = -_picked(scores, target, axis, ignore_index) * weights
    found = _reduced(lost, weights, reduction)
    if not label_smoothing:
        return found
    smooth = (-each.sum(axis)).masked_fill(target == ignore_index, 0)
    flat = _reduced(smooth, weights, reduction)
    return found * (1 - label_smoothing) + flat * (label_smoothing / x.shape[axis])


def nll(
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = LossReduction.MEAN,
    ignore_index: int = -100,
) -> Tensor:
    """The loss of numbers of classes, of the logarithms of their probabilities."""
    axis = 1 if scores.dim() > 1 else 0
    weights = _weights(target, weight, scores, axis, ignore_index)
    return _reduced(-_picked(scores, target, axis, ignore_index) * weights, weights, reduction)


def _of_classes(weight: Tensor, x: Tensor) -> Tensor:
    return weight if x.dim() == 1 else weight.view(-1, *[1] * (x.dim() - 2))


def _picked(x: Tensor, target: Tensor, axis: int, ignore_index: int) -> Tensor:
    """Of each row the element of its class; 0 where the class is ignored."""
    ignored = target == ignore_index
    place = target.masked_fill(ignored, 0).unsqueeze(axis)
    return x.gather(axis, place).squeeze(axis).masked_fill(ignored, 0)


def _weights(
    target: Tensor, weight: Tensor | None, x: Tensor, axis: int, ignore_index: int
) -> Tensor:
    """The weight of the class of each element, 0 of ignored ones."""
    if weight is None:
        return (target != ignore_index).to(x.dtype)
    return _picked(_of_classes(weight, x).expand_as(x), target, axis, ignore_index)


def _reduced(lost: Tensor, weights: Tensor, reduction: int) -> Tensor:
    """Losses that their weights are in; a mean is over the sum of the weights."""
    match reduction:
        case LossReduction.NONE:
            return lost
        case LossReduction.SUM:
            return lost.sum()
        case _:
            return lost.sum() / weights.sum()
