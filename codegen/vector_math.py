"""Elementary functions on vectors: what is called by the name of an element-wise operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from .llvm_ir_build import Builder
from .llvm_ir_core import Value

FUNCTIONS: Mapping[str, Callable[..., Value]] = MappingProxyType({})


def call(b: Builder, name: str, *args: Value) -> Value:
    """The function ``name`` of f32 or f64 operands, in line."""
    return FUNCTIONS[name](*args)
