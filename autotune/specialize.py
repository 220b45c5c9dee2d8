"""One model for every combination of argument shapes: compiled at its first call, then kept.

``jit`` is for JAX functions. ``Specialized`` takes any way of making a model for given arguments,
for instance a template of HLO text that is filled with their sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from threading import RLock
from typing import Any, TypeAlias

from ..codegen.plan.counters import count
from ..codegen.runtime.executable import Executable
from ..ir.arrays import as_array
from ..ir.dtypes import to_numpy
from ..ir.errors import ArgumentError
from ..ir.frontends.jax.calls import JaxFunction
from ..ir.hlo.nodes import HloModule
from ..ir.target import Target
from .build import build

Model: TypeAlias = str | os.PathLike[str] | HloModule
Rebuild: TypeAlias = Callable[[Any], Any]


class Specialized:
    """A callable that compiles a model once for each combination of shapes and element types.

    ``make(*args)`` gives the model (a path or a module) for arguments such as these, which are its
    parameters. A call with arrays of shapes that are known costs a look into a dictionary more than
    the executable's own call. Calls may come from several threads; of one combination only one
    compiles.
    """

    def __init__(
        self,
        make: Callable[..., Model],
        target: str | Target = "cpu",
        log: str | os.PathLike[str] | None = None,
        excess_precision: bool = True,
    ) -> None:
        """``target``, ``log`` and ``excess_precision`` are as for ``build``."""
        self._make = make
        self._target = Target.parse(target)
        self._log = log
        self._excess_precision = excess_precision
        self._known: dict[Hashable, Callable[..., Any]] = {}
        self._executables: dict[Hashable, Executable] = {}
        self._compiling = RLock()

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the model for these arguments: an array or a tuple of arrays, as its root says.

        ``ArgumentError`` for what is not an argument of such a model.
        """
        try:
            known = self._known[tuple([(a.shape, a.dtype) for a in args])]
        except Exception:  # not known, or no array: attributes may raise anything
            known = None
        if known is None or named:
            key, flat = self._prepare(args, named)
            return self._known[key](*flat)
        return known(*args)

    def executable(self, *args: Any, **named: Any) -> Executable:
        """What runs for these arguments; compiled here if their shapes are new."""
        return self._executables[self._prepare(args, named)[0]]

    @property
    def shapes(self) -> tuple[Hashable, ...]:
        """The combinations that were met so far: of each argument its shape and its dtype."""
        return tuple(self._executables)

    def _flatten(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Sequence[Any], Hashable | None]:
        """The model's arguments, and what names the structure they stood in; None for none."""
        if named:
            raise ArgumentError(
                f"unknown keyword {next(iter(named))!r}", "arguments are positional"
            )
        return args, None

    def _model(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Model, Rebuild | None]:
        """The model for these arguments, and what makes the answer of its results."""
        return self._make(*args), None

    def _prepare(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Hashable, Sequence[Any]]:
        """The key under which a combination is known from now on, and the model's arguments."""
        flat, structure = self._flatten(args, named)
        kinds: Hashable = tuple([_kind(a, n) for n, a in enumerate(flat)])
        key = kinds if structure is None else (structure, kinds)
        with self._compiling:
            if key not in self._known:
                model, rebuild = self._model(args, named)
                exe = build(
                    model,
                    target=self._target,
                    log=self._log,
                    excess_precision=self._excess_precision,
                )
                count(shapes=1)
                call: Callable[..., Any] = exe if _fits(exe, flat) else _converting(exe)
                self._executables[key] = exe
                self._known[key] = call if rebuild is None else _rebuilding(call, rebuild)
        return key, flat


class Jitted(Specialized):
    """A JAX function that is compiled for each combination of its arguments: see ``jit``."""

    def __init__(
        self,
        function: JaxFunction,
        target: str | Target,
        log: str | os.PathLike[str] | None,
        excess_precision: bool,
    ) -> None:
        super().__init__(function.function, target, log, excess_precision)
        self._function = function

    def _flatten(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Sequence[Any], Hashable | None]:
        return self._function.flatten(args, named)

    def _model(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Model, Rebuild | None]:
        return self._function.lower(args, named)


def jit(
    function: Callable[..., Any],
    target: str | Target = "cpu",
    log: str | os.PathLike[str] | None = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    excess_precision: bool = True,
) -> Jitted:
    """A JAX function, compiled by nestwright once for each combination of argument shapes.

    Arguments are arrays, Python scalars and any trees of them that JAX knows, by place or by name,
    typed as JAX types them; the result is the function's own tree with NumPy arrays as its leaves.
    ``static_argnums`` and ``static_argnames`` are those of ``jax.jit``: what is compiled depends on
    these arguments' values. ``target``, ``log`` and ``excess_precision`` are as for ``build``.
    Needs jax to be installed: ``UnsupportedError`` at the first call otherwise. ``ArgumentError``
    for arguments that JAX cannot lower the function with.
    """
    known = JaxFunction(function, static_argnums, static_argnames)
    return Jitted(known, target, log, excess_precision)


def _kind(a: Any, number: int) -> Hashable:
    """As the quick look-up names an array; what is none goes by its type, too."""
    try:
        if hasattr(a, "dtype") and hasattr(a, "shape"):
            return a.shape, a.dtype
    except Exception as e:
        told = f"{type(a).__name__} does not convert to an array: {type(e).__name__}: {e}"
        raise ArgumentError(f"argument {number}", told) from e
    return as_array(a, f"argument {number}").shape, type(a)


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
            pairs = enumerate(zip(args, types, strict=True))
            args = tuple(as_array(a, f"argument {n}", exe.name, t) for n, (a, t) in pairs)
        return exe(*args)

    return call


def _rebuilding(call: Callable[..., Any], rebuild: Rebuild) -> Callable[..., Any]:
    return lambda *args: rebuild(call(*args))
