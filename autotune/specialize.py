"""One model for every combination of argument shapes: compiled at its first call, then kept.

``jit`` is for JAX functions. ``Specialized`` takes any way of making a model for given arguments,
for instance a template of HLO text that is filled with their sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from threading import RLock
from typing import Any, TypeAlias

import numpy as np

from ..codegen.counters import count
from ..codegen.runtime.executable import Executable
from ..ir.dtypes import to_numpy
from ..ir.hlo.nodes import HloModule
from ..ir.load import as_module
from ..ir.target import Target
from .api import build

Model: TypeAlias = str | os.PathLike[str] | HloModule


class Specialized:
    """A callable that compiles a model once for each combination of shapes and element types.

    ``make(*args)`` gives the model (a path or a module) for arguments such as these; its parameters
    are ``leaves(args)``, by default the arguments themselves. A call with arrays of shapes that are
    known costs a look into a dictionary more than the executable's own call. Calls may come from
    several threads; of one combination only one compiles.
    """

    def __init__(
        self,
        make: Callable[..., Model],
        target: str | Target = "cpu",
        log: str | os.PathLike[str] | None = None,
        leaves: Callable[[tuple[Any, ...]], tuple[Sequence[Any], Hashable]] | None = None,
    ) -> None:
        """``leaves`` gives the model's arguments and what names the structure they stood in."""
        self._make = make
        self._target = Target.parse(target)
        self._log = log
        self._leaves = leaves
        self._known: dict[Hashable, Callable[..., Any]] = {}
        self._executables: dict[Hashable, Executable] = {}
        self._compiling = RLock()

    def __call__(self, *args: Any) -> Any:
        """Run the model for these arguments: an array or a tuple of arrays, as its root says."""
        try:
            known = self._known[tuple([(a.shape, a.dtype) for a in args])]
        except (KeyError, AttributeError, TypeError):
            key, flat = self._prepare(args)
            return self._known[key](*flat)
        return known(*args)

    def executable(self, *args: Any) -> Executable:
        """What runs for these arguments; compiled here if their shapes are new."""
        return self._executables[self._prepare(args)[0]]

    @property
    def shapes(self) -> tuple[Hashable, ...]:
        """The combinations that were met so far: of each argument its shape and its dtype."""
        return tuple(self._executables)

    def _prepare(self, args: tuple[Any, ...]) -> tuple[Hashable, Sequence[Any]]:
        """The key under which a combination is known from now on, and the model's arguments."""
        flat: Sequence[Any] = args
        key: Hashable = tuple([_kind(a) for a in args])
        if self._leaves is not None and not all(hasattr(a, "dtype") for a in args):
            flat, tree = self._leaves(args)
            key = tree, tuple([_kind(a) for a in flat])
        with self._compiling:
            if key not in self._known:
                exe = build(self._make(*args), target=self._target, log=self._log)
                count(shapes=1)
                self._executables[key] = exe
                self._known[key] = exe if _fits(exe, flat) else _converting(exe)
        return key, flat


def jit(
    function: Callable[..., Any],
    target: str | Target = "cpu",
    log: str | os.PathLike[str] | None = None,
) -> Specialized:
    """A JAX function, compiled by nestwright once for each combination of argument shapes.

    Arguments are arrays, Python scalars and pytrees of them, typed as JAX types them; the results
    are the leaves of the function's result, in JAX's order. Needs jax to be installed:
    ``UnsupportedError`` at the first call otherwise.
    """

    def leaves(args: tuple[Any, ...]) -> tuple[Sequence[Any], Hashable]:
        import jax

        found, tree = jax.tree.flatten(args)
        return found, tree

    return Specialized(lambda *args: as_module(function, args), target, log, leaves)


def _kind(a: Any) -> Hashable:
    """As the quick look-up names an array; what is none goes by its type, too."""
    return (a.shape, a.dtype) if hasattr(a, "dtype") else (np.shape(a), type(a))


def _fits(exe: Executable, args: Sequence[Any]) -> bool:
    """Are these the very element types that the executable takes?"""
    params = exe.plan.params
    return len(params) == len(args) and all(
        getattr(a, "dtype", None) == to_numpy(p.dtype) for p, a in zip(params, args, strict=True)
    )


def _converting(exe: Executable) -> Callable[..., Any]:
    """A call that casts its arguments first, as JAX takes an f64 array where it has f32 only."""
    types = [to_numpy(p.dtype) for p in exe.plan.params]

    def call(*args: Any) -> Any:
        if len(args) == len(types):
            args = tuple(np.asarray(a, t) for a, t in zip(args, types, strict=True))
        return exe(*args)

    return call
