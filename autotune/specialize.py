"""Specialization: one executable per combination of argument shapes, compiled at its first call.

``jit`` is for JAX functions. ``Specialized`` takes any function that makes a model for given
arguments, such as one that fills a template of HLO text with their sizes.
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

    ``make(*args)`` returns the model (a path or a module) for such arguments, which are its
    parameters. A call with known shapes adds a dictionary lookup to the executable's own call. It
    may be called from several threads; each combination is compiled only once.
    """

    def __init__(
        self,
        make: Callable[..., Model],
        target: str | Target = "cpu",
        log: str | os.PathLike[str] | None = None,
        excess_precision: bool = True,
        weights: str | None = None,
    ) -> None:
        """``target``, ``log``, ``excess_precision`` and ``weights`` are as for ``build``."""
        self._make = make
        self._target = Target.parse(target)
        self._log = log
        self._excess_precision = excess_precision
        self._weights = weights
        self._known: dict[Hashable, Callable[..., Any]] = {}
        self._executables: dict[Hashable, Executable] = {}
        self._compiling = RLock()

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the model for these arguments; return an array or a tuple, like the model's root.

        Raises ``ArgumentError`` if the model does not take these arguments.
        """
        try:
            known = self._known[tuple([(a.shape, a.dtype) for a in args])]
        except Exception:  # a new combination, or not an array: attributes may raise anything
            known = None
        if known is None or named:
            key, flat = self._prepare(args, named)
            return self._known[key](*flat)
        return known(*args)

    def executable(self, *args: Any, **named: Any) -> Executable:
        """Return the executable for these arguments, compiling it if their shapes are new."""
        return self._executables[self._prepare(args, named)[0]]

    @property
    def shapes(self) -> tuple[Hashable, ...]:
        """The combinations compiled so far: the shape and dtype of each argument."""
        return tuple(self._executables)

    def _flatten(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Sequence[Any], Hashable | None]:
        """Return the model's arguments, and a key for the structure they were in (None: flat)."""
        if named:
            raise ArgumentError(
                f"unknown keyword {next(iter(named))!r}", "arguments are positional"
            )
        return args, None

    def _model(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Model, Rebuild | None]:
        """Return the model for these arguments, and a function that rebuilds its results' tree."""
        return self._make(*args), None

    def _prepare(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Hashable, Sequence[Any]]:
        """Compile a combination if it is new; return its key and the model's arguments."""
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
                    weights=self._weights,
                )
                count(shapes=1)
                call: Callable[..., Any] = exe if _fits(exe, flat) else _converting(exe)
                self._executables[key] = exe
                self._known[key] = call if rebuild is None else _rebuilding(call, rebuild)
        return key, flat


class Jitted(Specialized):
    """A JAX function compiled for each combination of argument shapes: see ``jit``."""

    def __init__(
        self,
        function: JaxFunction,
        target: str | Target,
        log: str | os.PathLike[str] | None,
        excess_precision: bool,
        weights: str | None,
    ) -> None:
        super().__init__(function.function, target, log, excess_precision, weights)
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
    weights: str | None = None,
) -> Jitted:
    """Compile a JAX function with nestwright, once for each combination of argument shapes.

    Arguments are arrays, Python scalars and pytrees of them, positional or by keyword, with the
    types that JAX gives them; the result is the function's own pytree with NumPy arrays as leaves.
    ``static_argnums`` and ``static_argnames`` are those of ``jax.jit``: the values of these
    arguments are compiled in. ``target``, ``log``, ``excess_precision`` and ``weights`` are as for
    ``build``. Requires jax; otherwise the first call raises ``UnsupportedError``. Raises
    ``ArgumentError`` for arguments with which JAX cannot lower the function.
    """
    known = JaxFunction(function, static_argnums, static_argnames)
    return Jitted(known, target, log, excess_precision, weights)


def _kind(a: Any, number: int) -> Hashable:
    """Return an argument's key: shape and dtype, or shape and type if it is not an array."""
    try:
        if hasattr(a, "dtype") and hasattr(a, "shape"):
            return a.shape, a.dtype
    except Exception as e:
        told = f"{type(a).__name__} does not convert to an array: {type(e).__name__}: {e}"
        raise ArgumentError(f"argument {number}", told) from e
    return as_array(a, f"argument {number}").shape, type(a)


def _fits(exe: Executable, args: Sequence[Any]) -> bool:
    """True if the arguments have exactly the element types of the executable's parameters."""
    params = exe.plan.params
    return len(params) == len(args) and all(
        getattr(a, "dtype", None) == to_numpy(p.dtype) for p, a in zip(params, args, strict=True)
    )


def _converting(exe: Executable) -> Callable[..., Any]:
    """Return a call that casts its arguments first, as JAX does with f64 where it has only f32."""
    types = [to_numpy(p.dtype) for p in exe.plan.params]

    def call(*args: Any) -> Any:
        if len(args) == len(types):
            pairs = enumerate(zip(args, types, strict=True))
            args = tuple(as_array(a, f"argument {n}", exe.name, t) for n, (a, t) in pairs)
        return exe(*args)

    return call


def _rebuilding(call: Callable[..., Any], rebuild: Rebuild) -> Callable[..., Any]:
    return lambda *args: rebuild(call(*args))
