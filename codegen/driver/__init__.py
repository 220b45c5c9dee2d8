"""Builds: from a module to a bundle, stages, parallel compilation, the cache on disk.

The names are loaded on first use: a model that is in the cache is loaded without the compiler.
"""

from typing import TYPE_CHECKING

from ...ir.lazy import loader

if TYPE_CHECKING:
    from .build import PreparedModule as PreparedModule
    from .build import build as build_module
    from .kernel import Kernel as Kernel
    from .kernel import compile_func as compile_func

__all__ = [
    "Kernel",
    "PreparedModule",
    "build_module",
    "compile_func",
]

__getattr__ = loader(
    __name__,
    {
        "Kernel": ".kernel:Kernel",
        "PreparedModule": ".build:PreparedModule",
        "build_module": ".build:build",
        "compile_func": ".kernel:compile_func",
    },
)
