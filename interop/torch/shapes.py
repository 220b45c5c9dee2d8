"""Graphs whose shapes torch leaves open: compiled for each combination of sizes that comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any

import torch


def is_symbolic(value: Any) -> bool:
    """True for a symbolic number and for a tensor with one among its sizes."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(d, torch.SymInt) for d in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


class PerShape:
    """A function that is compiled by ``make(args)`` for each combination of sizes, at its first
    call.
    """

    def __init__(self, make: Callable[[Sequence[Any]], Callable[..., Any]]) -> None:
        self._make = make
        self._known: dict[Any, Callable[..., Any]] = {}
        self._compiling = RLock()
        self.__name__ = "nestwright_per_shape"

    def __call__(self, *args: Any) -> Any:
        """Run the function for these arguments."""
        key = (torch.is_grad_enabled(), *map(_kind, args))
        known = self._known.get(key)
        if known is None:
            with self._compiling:
                known = self._known.get(key) or self._make(args)
                self._known[key] = known
        return known(*args)


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype, value.stride(), value.requires_grad
    return value
