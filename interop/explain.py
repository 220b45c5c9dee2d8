"""``nestwright.explain``: why a model is built as it is; for torch, also what is left to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from ..ir.hlo.nodes import HloModule
from ..ir.target import Target

if TYPE_CHECKING:
    from ..autotune.explain.model import ModelExplained
    from ..autotune.lowered import Lowered

PathLike = str | os.PathLike[str]


@overload
def explain(
    model: Lowered | HloModule | PathLike,
    *args: Any,
    target: str | Target = ...,
    log: PathLike | None = ...,
) -> ModelExplained: ...
@overload
def explain(
    model: Callable[..., Any],
    *args: Any,
    target: str | Target = ...,
    log: PathLike | None = ...,
    **named: Any,
) -> Any: ...
def explain(
    model: Any,
    *args: Any,
    target: str | Target = "cpu",
    log: PathLike | None = None,
    **named: Any,
) -> Any:
    """Tell why a model is built as it is: fusion, schedules, what tuning promises, the cache.

    ``model`` is whatever ``lower`` takes, with example arguments ``args``, or what it returned;
    ``log`` is the one that a build would use. Returns a ``ModelExplained``: ``print`` shows it,
    ``.group(name)`` has everything of a group. Nothing is compiled or measured.

    A ``torch.nn.Module`` or a function of tensors is run once by torch, with ``args`` and
    ``named``, and an ``Explanation`` tells what of it ``torch.compile(model,
    backend="nestwright")`` compiles and what it leaves in eager mode, and why. Its groups are those
    of ``explain(nw.lower(module, *args))``.

    Raises as ``lower`` does, and ``LogError`` for a damaged log.
    """
    if _is_torch(model, (*args, *named.values())):
        from .torch.explain import explain_torch

        return explain_torch(model, *args, **named)
    from ..autotune.explain.model import explain_model
    from ..autotune.lowered import Lowered, lower

    known = model if isinstance(model, Lowered) else lower(model, *args, target=target, **named)
    return explain_model(known, log)


def _is_torch(model: Any, arguments: tuple[Any, ...]) -> bool:
    """True for a torch module, and for a function that is called with tensors, also nested."""
    torch = sys.modules.get("torch")
    if torch is None or not callable(model):
        return False
    leaves = torch.utils._pytree.tree_leaves(arguments)
    tensors = any(isinstance(a, torch.Tensor) for a in leaves)
    return isinstance(model, torch.nn.Module) or tensors
