"""One model for every combination of argument shapes: compiled at its first call, then kept.

``jit`` is for JAX functions. ``Specialized`` takes any way of making a model for given arguments,
for instance a template of HLO text that is filled with their sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeAlias

import numpy as np

from ..codegen.counters import count
from ..codegen.runtime.executable import Executable
from ..ir.dtypes import to_numpy
from ..ir.hlo.nodes import HloModule
from ..ir.target import Target
from .api import build

Model: TypeAlias = str | os.PathLike[str] | HloModule


class Specialized:
    """A callable that compiles a model once for each combination of shapes and element types.

    ``make(*args)`` gives the model (a path or a module) for arguments such as these. A call with
    shapes that are known costs a look into a dictionary more than the executable's own call.
    Calls may come from several threads; of one combination only one compiles.
    """

    def __init__(
        self,
        make: Callable[..., Model],
        target: str | Target = "cpu",
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        self._make = make
        self._target = Target.parse(target)
        self._log = log
        self._known: dict[Hashable, Callable[..., Any]] = {}
        self._executables: dict[Hashable, Executable] = {}
        self._compiling = RLock()

    def __call__(self, *args: Any) -> Any:
        """Run the model for these arguments: an array or a tuple of arrays, as its root says."""
        try:
            known = self._known[tuple([(a.shape, a.dtype) for a in args])]
        except (KeyError, AttributeError, TypeError):
            known = self._look_up(args)
        return known(*args)

    def executable(self, *args: Any) -> Executable:
        """What runs for these arguments; compiled here if their shapes are new."""
        self._look_up(args)
        return self._executables[_signature(args)]

    @property
    def shapes(self) -> tuple[Hashable, ...]:
        """The combinations that were met so far: of each argument its shape and its dtype."""
        return tuple(self._executables)

    def _look_up(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        signature = _signature(args)
        with self._compiling:
            if signature not in self._known:
                exe = build(self._make(*args), target=self._target, log=self._log)
                count(shapes=1)
                self._executables[signature] = exe
                self._known[signature] = exe if _fits(exe, args) else _converting(exe)
            return self._known[signature]


def jit(
    function: Callable[..., Any],
    target: str | Target = "cpu",
    log: str | os.PathLike[str] | None = None,
) -> Specialized:
    """A JAX function, compiled by nestwright once for each combination of argument shapes.

    Arguments are arrays or Python scalars, typed as JAX types them; the results are those of the
    lowered module, flat. Needs jax to be installed: ``UnsupportedError`` otherwise.
    """
    from ..ir.frontends.jax import lower

    return Specialized(lambda *args: lower(function, args), target, log)


def _signature(args: tuple[Any, ...]) -> Hashable:
    """As the quick look-up makes it; what is no array goes by its type."""
    return tuple([(a.shape, a.dtype) if hasattr(a, "dtype") else type(a) for a in args])


def _fits(exe: Executable, args: tuple[Any, ...]) -> bool:
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
