"""``nw.jit``: a JAX function compiled by nestwright, as ``jax.jit`` compiles it by XLA."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any

from ..autotune.specialize import Specialized
from ..codegen.driver.options import BuildOptions
from ..codegen.runtime.executable import Executable
from ..ir.errors import ArgumentError
from ..ir.frontends.imported import Imported
from ..ir.frontends.jax.calls import JaxFunction, has_x64
from ..ir.frontends.jax.keys import is_key, key_data
from ..ir.frontends.jax.lower import IS_TRACING
from ..ir.target import Target
from .traced import traced_call


class Jitted(Specialized):
    """A JAX function compiled for each combination of argument shapes: see ``jit``."""

    def __init__(
        self,
        function: JaxFunction,
        options: BuildOptions,
        log: str | os.PathLike[str] | None,
    ) -> None:
        super().__init__(function.function, log=log)
        self._options = options
        self._function = function
        self._trees: dict[Hashable, Callable[..., Any]] = {}
        update_wrapper(self, function.function, updated=())

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Run the function for these arguments, as ``jit`` says."""
        return self._call(args, named) if has_x64() else super().__call__(*args, **named)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the method of an instance, where this was made of a class's function."""
        return self if instance is None else MethodType(self, instance)

    def imported(self, /, *args: Any, **named: Any) -> Imported:
        """Return the function's graph for such arguments, as front-ends do."""
        return self._function.imported(args, named)

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        flat, structure = self._function.flatten(args, named)
        try:
            kinds = structure, tuple([(type(a), a.shape, a.dtype) for a in flat])
            known = self._trees.get(kinds)
        except Exception:  # not an array: attributes may raise anything
            kinds, known = None, None
        if known is not None:
            return known(*flat)
        if any(map(_is_traced, flat)):
            if IS_TRACING.get():
                return self._function.function(*args, **named)
            return traced_call(
                lambda *leaves: self._with(leaves, self._function.function, args, named),
                flat,
                lambda *leaves: self._with(leaves, self, args, named),
                jit,
            )
        key, leaves = self._prepare(args, named)
        if kinds is not None:
            self._trees[kinds] = self._known[key]
        return self._known[key](*leaves)

    def _calling(self, exe: Executable, flat: Sequence[Any]) -> Callable[..., Any]:
        call = super()._calling(exe, flat)
        keys = [n for n, a in enumerate(flat) if is_key(a)]
        if not keys:
            return call

        def with_numbers(*leaves: Any) -> Any:
            return call(*(key_data(a) if n in keys else a for n, a in enumerate(leaves)))

        return with_numbers

    def _with(
        self,
        leaves: Sequence[Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Call a function with these leaves in the place of the traced ones."""
        again, names = self._function.replaced(leaves, args, named)
        return function(*again, **names)

    def _flatten(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Sequence[Any], Hashable | None]:
        return self._function.flatten(args, named)

    def _import(self, args: tuple[Any, ...], named: dict[str, Any]) -> Imported:
        return self._function.imported(args, named)


def jit(
    function: Callable[..., Any],
    target: str | Target = "cpu",
    log: str | os.PathLike[str] | None = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    excess_precision: bool = True,
    weights: str | None = None,
    donate_argnums: int | Iterable[int] = (),
    donate_argnames: str | Iterable[str] = (),
    keep_unused: bool = False,
    inline: bool = False,
    accuracy: float | None = None,
    denormals: str | None = None,
) -> Jitted:
    """Compile a JAX function with nestwright, once for each combination of argument shapes.

    Arguments are arrays, Python scalars and pytrees of them, positional or by keyword, with the
    types that JAX gives them; the result is the function's own pytree with NumPy arrays as leaves.
    Arrays of JAX and of others that lend their memory (the buffer protocol, DLPack) are not copied.
    ``static_argnums`` and ``static_argnames`` are those of ``jax.jit``: the values of these
    arguments are compiled in. ``target``, ``log``, ``excess_precision``, ``weights``,
    ``accuracy`` and ``denormals`` are as for ``build``. ``donate_argnums`` and ``donate_argnames``
    change nothing: arguments stay valid; nor do ``keep_unused`` and ``inline``: all arguments are
    kept, all calls become part of one module.
    ``jit(f).lower(*args)`` returns the model for such arguments, and
    ``tune(jit(f), *args)`` tunes it.

    Inside ``jax.jit``, ``jax.grad`` and ``jax.vmap`` a jitted function is a call back to the host
    (``jax.pure_callback``) whose derivatives are those that JAX finds for the function itself.

    Requires jax; otherwise the first call raises ``UnsupportedError``. Raises ``ArgumentError`` for
    arguments with which JAX cannot lower the function, and for one that is both static and donated.
    """
    if not callable(function):
        what = f"jit of an object of type {type(function).__name__}"
        raise ArgumentError(what, "it cannot be called", hint="jit takes a function of JAX arrays")
    known = JaxFunction(function, static_argnums, static_argnames)
    donated = JaxFunction(function, donate_argnums, donate_argnames)
    if both := sorted(map(str, (known.names & donated.names) or (known.numbers & donated.numbers))):
        raise ArgumentError(f"{known.name}: argument {both[0]}", "it is both static and donated")
    options = BuildOptions.given(target, excess_precision, weights, accuracy, denormals)
    return Jitted(known, options, log)


def _is_traced(leaf: object) -> bool:
    """True for a value of a function that JAX is tracing; JAX is loaded if there is one."""
    core = sys.modules.get("jax.core")
    return core is not None and isinstance(leaf, core.Tracer)
