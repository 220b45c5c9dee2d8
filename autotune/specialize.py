"""Specialization: one executable per combination of argument shapes, compiled at its first call.

``Specialized`` takes any function that makes a model for given arguments, such as one that fills a
template of HLO text with their sizes. ``explain_recompile`` says why each one was compiled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from threading import RLock
from typing import Any, NoReturn, Self, TypeAlias

from ..codegen.driver.options import BuildOptions
from ..codegen.plan.counters import count
from ..codegen.runtime.executable import Executable
from ..ir.arrays import as_array
from ..ir.dtypes import to_numpy
from ..ir.errors import ArgumentError
from ..ir.frontends.imported import Imported
from ..ir.target import Target
from .log.units import counted
from .lowered import Lowered, lower_for
from .recipe import GraphLike, ImportOptions
from .recompile import CallSignature, Compilation, told_if_long

Rebuild: TypeAlias = Callable[[Any], Any]


class Specialized:
    """A callable that compiles a model once for each combination of shapes and element types.

    ``make(*args)`` returns the model for such arguments, which are its parameters. A call with
    known shapes adds a dictionary lookup to the executable's own call. It may be called from
    several threads; each combination is compiled only once.
    """

    def __init__(
        self,
        make: Callable[..., GraphLike],
        target: str | Target = "cpu",
        log: str | os.PathLike[str] | None = None,
        excess_precision: bool = True,
        weights: str | None = None,
        accuracy: float | None = None,
        denormals: str | None = None,
    ) -> None:
        """Set what ``build`` takes beside the model; the arguments are as there."""
        if not callable(make):
            raise ArgumentError(
                f"Specialized({make!r:.60})",
                f"it takes a function that makes a model, not an object of type "
                f"{type(make).__name__}",
                hint="build(model) compiles one model",
            )
        self._make = make
        self._options = BuildOptions.given(target, excess_precision, weights, accuracy, denormals)
        self._log = log
        self._fast: dict[Hashable, Callable[..., Any]] = {}
        self._known: dict[CallSignature, Callable[..., Any]] = {}
        self._executables: dict[CallSignature, Executable] = {}
        self._compilations: list[Compilation] = []
        self._compiling = RLock()

    def __repr__(self) -> str:
        name = getattr(self._make, "__name__", type(self._make).__name__)
        shapes = counted(len(self._executables), "combination")
        return f"<{type(self).__name__} {name} for {self._options.target.spec}: {shapes} of shapes>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self  # as a function: what it has compiled depends on its arguments alone

    def __reduce__(self) -> NoReturn:
        raise ArgumentError(
            f"{self!r} cannot be pickled",
            "its code is loaded into this process",
            hint="make it in each process; the cache on disk has what was compiled before",
        )

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Run the model for these arguments; return an array or a tuple, like the model's root.

        Raises ``ArgumentError`` if the model does not take these arguments.
        """
        try:
            known = self._fast[tuple([(type(a), a.shape, a.dtype) for a in args])]
        except Exception:  # a new combination, or not an array: attributes may raise anything
            known = None
        if known is None or named:
            return self._call(args, named)
        return known(*args)

    def lower(self, /, *args: Any, **named: Any) -> Lowered:
        """Return the model for these arguments, to be shown, tuned and compiled."""
        return self._lowered(self._import(args, named))

    def executable(self, /, *args: Any, **named: Any) -> Executable:
        """Return the executable for these arguments, compiling it if their shapes are new."""
        return self._executables[self._prepare(args, named)[0]]

    @property
    def shapes(self) -> tuple[Hashable, ...]:
        """The combinations compiled so far: the shape and dtype of each argument."""
        return tuple(self._executables)

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """All compilations, in order; ``explain_recompile`` says why each was needed."""
        return tuple(self._compilations)

    @property
    def name(self) -> str:
        """The name of what makes the models."""
        return getattr(self._make, "__name__", type(self._make).__name__)

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run for arguments that are new, or no plain arrays."""
        key, flat = self._prepare(args, named)
        return self._known[key](*flat)

    def _flatten(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Sequence[Any], Hashable | None]:
        """Return the model's arguments, and a key for the structure they were in (None: flat)."""
        if named:
            raise ArgumentError(
                f"unknown keyword {next(iter(named))!r}", "arguments are positional"
            )
        return args, None

    def _import(self, args: tuple[Any, ...], named: dict[str, Any]) -> GraphLike:
        """Return the model for these arguments."""
        return self._make(*self._flatten(args, named)[0])

    def _lowered(self, model: GraphLike) -> Lowered:
        return lower_for(self._options, ImportOptions(), model)

    def _prepare(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[CallSignature, Sequence[Any]]:
        """Compile a combination if it is new; return its key and the model's arguments."""
        flat, structure = self._flatten(args, named)
        key = CallSignature(structure, tuple([kind_of(a, n) for n, a in enumerate(flat)]))
        if key not in self._known:
            with self._compiling:
                if key not in self._known:
                    self._compile(key, args, named, flat)
        if structure is None and not named and all(hasattr(a, "dtype") for a in flat):
            fast = tuple([(type(a), a.shape, a.dtype) for a in flat])
            self._fast[fast] = self._known[key]
        return key, flat

    def _calling(self, exe: Executable, flat: Sequence[Any]) -> Callable[..., Any]:
        """Return a function that calls an executable with arguments of these types."""
        return exe if _fits(exe, flat) else _converting(exe)

    def _compile(
        self, key: CallSignature, args: tuple[Any, ...], named: dict[str, Any], flat: Sequence[Any]
    ) -> None:
        began = time.monotonic()
        with told_if_long(f"compiling {self.name} for {key}"):
            model = self._import(args, named)
            exe = self._lowered(model).compile(self._log).flat
        count(shapes=1)
        call = self._calling(exe, flat)
        rebuild = model.rebuild if isinstance(model, Imported) else None
        self._executables[key] = exe
        self._known[key] = call if rebuild is None else _rebuilding(call, rebuild)
        self._compilations.append(Compilation(key, time.monotonic() - began))


def kind_of(a: Any, number: int) -> Hashable:
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
    def rebuilt(*args: Any) -> Any:
        results = call(*args)
        return rebuild(results if isinstance(results, tuple) else (results,))

    return rebuilt
