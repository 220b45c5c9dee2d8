"""Operators on lists of tensors (``torch._foreach_add`` and its kin), taken apart.

Optimizers with ``foreach=True`` are made of them. Each becomes one operator for each tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ALIKE = """
abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg
reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc max
add sub mul div pow lerp addcmul addcdiv clamp_min clamp_max
"""
"""Those that do what torch's function of that name does."""
_FACTORED = ("addcmul", "addcdiv")
"""Those whose fourth argument is a factor, ``value`` of torch's function."""


def lists() -> dict[Any, Callable[..., Any]]:
    """Return decompositions, by overload, of the operators that take a list of tensors."""
    import torch

    named: dict[str, Callable[..., Any]] = {n: getattr(torch, n) for n in _ALIKE.split()}
    named |= {
        "maximum": torch.clamp_min,  # takes numbers, too
        "minimum": torch.clamp_max,
        "norm": torch.linalg.vector_norm,
        "zero": torch.zeros_like,
        "copy": lambda x, source, **_: torch.ops.aten.copy.default(x, source),
    }
    found: dict[Any, Callable[..., Any]] = {}
    for name, function in named.items():
        packet = getattr(torch.ops.aten, f"_foreach_{name}", None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            factored = name in _FACTORED
            if not (op._schema.is_mutable or (factored and overload == "Tensor")):
                found[op] = _each(op, function, factored)
    return found


def _each(op: Any, function: Callable[..., Any], factored: bool) -> Callable[..., Any]:
    """Return the function that calls ``function`` for each place of the lists among arguments."""
    spread = [str(a.type).startswith("List[") for a in op._schema.arguments]

    def apart(*args: Any, **named: Any) -> list[Any]:
        count = next(len(a) for a, many in zip(args, spread, strict=False) if many)
        rows = [a if many else [a] * count for a, many in zip(args, spread, strict=False)]
        each = [(*row,) for row in zip(*rows, strict=True)]
        if factored and len(args) == 4:
            return [function(*row[:3], value=row[3], **named) for row in each]
        return [function(*row, **named) for row in each]

    return apart
