"""Norms of narrow floats by parameters of f32, as mixed precision has them, taken apart.

Their statistics are f32 in eager mode. torch's fake tensors say that they are narrow, and a graph
that is made of these rounds them between the forward and the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_NORMS = (
    "native_batch_norm.default",
    "_native_batch_norm_legit_functional.default",
    "_native_batch_norm_legit.no_stats",
    "_batch_norm_with_update_functional.default",
    "native_group_norm.default",
    "native_layer_norm.default",
)


def statistics() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions by overload; they leave norms of one type as they are."""
    import torch

    found: dict[Any, Callable[..., Any]] = {}
    for name in _NORMS:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if op is not None:  # an operator of newer versions of torch
            found[op] = _in_f32(op)
    return found


def _in_f32(op: Any) -> Callable[..., Any]:
    """Return the function that normalizes the operand as f32 if it is narrower than the others."""
    import torch

    def mixed(x: Any, *args: Any, **named: Any) -> Any:
        others = {t.dtype for t in (*args, *named.values()) if isinstance(t, torch.Tensor)}
        if x.dtype not in (torch.float16, torch.bfloat16) or others != {torch.float32}:
            return NotImplemented
        first, *rest = op(x.float(), *args, **named)
        return first.to(x.dtype), *rest

    return mixed
