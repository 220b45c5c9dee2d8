"""Calls of a JAX function: their arguments as leaves, what JAX lowers for them, results as a tree.

Trees are JAX's: lists, tuples, dicts, None, named tuples, and whatever is registered with
``jax.tree_util``. Static arguments are those that ``jax.jit`` would be told of: their values are
part of what is compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from ..hlo.nodes import HloModule, Shape
from .jax import import_jax, keeping_all, lowered_module, told_by_jax


class JaxFunction:
    """A function of arrays and trees of them, and which of its arguments are static."""

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: int | Iterable[int] = (),
        static_argnames: str | Iterable[str] = (),
    ) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", type(function).__name__)
        numbers = {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)
        names = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)
        order = _positional(function)
        if any(n < 0 and n + len(order) < 0 for n in numbers):
            raise ArgumentError(f"static_argnums={static_argnums}", f"{self.name} has no such one")
        numbers = {n + len(order) if n < 0 else n for n in numbers}
        self.names = names | {order[n] for n in numbers if n < len(order)}
        self.numbers = numbers | {n for n, name in enumerate(order) if name in names}

    def flatten(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], Hashable | None]:
        """The leaves that are no static arguments, and what names the rest of a call: its tree and
        the static values; None where the leaves are the arguments.

        ``ArgumentError`` for a static argument without a hash and for what is not a tree.
        """
        jax = import_jax(self.name)
        dynamic = tuple(a for n, a in enumerate(args) if n not in self.numbers)
        rest = {k: v for k, v in named.items() if k not in self.names}
        fixed: list[tuple[int | str, Any]] = [
            (n, args[n]) for n in sorted(self.numbers) if n < len(args)
        ]
        fixed += [(k, named[k]) for k in sorted(self.names) if k in named]
        try:
            leaves, tree = jax.tree.flatten((dynamic, rest))
            key = tree, tuple((place, type(value), value) for place, value in fixed)
            hash(key)
        except Exception as e:  # a registered class may raise anything
            what = f"the arguments of {self.name}"
            raise ArgumentError(
                what, f"{type(e).__name__}: {_line(e)}",
                hint="static arguments, and what a tree holds beside its leaves, need a hash",
            ) from e  # fmt: skip
        plain = not fixed and tree == jax.tree.structure(((0,) * len(args), {}))
        return leaves, None if plain else key

    def lower(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[HloModule, Callable[[Any], Any] | None]:
        """What JAX lowers for such a call: a module of the leaves that ``flatten`` gives, and what
        makes the function's result of the module's; None where that is the same."""
        jax = import_jax(self.name)
        with told_by_jax(self.name):
            keeping = keeping_all(
                self.function,
                static_argnums=tuple(sorted(self.numbers)),
                static_argnames=tuple(sorted(self.names)),
            )
            lowered = keeping.lower(*args, **named)
            tree = jax.tree.structure(lowered.out_info)
        module = lowered_module(lowered)
        root = module.entry.root.shape
        same = 0 if isinstance(root, Shape) else (0,) * len(getattr(root, "elements", ()))
        if tree == jax.tree.structure(same):
            return module, None

        def rebuilt(results: Any) -> Any:
            leaves = results if isinstance(results, tuple) else (results,)
            return jax.tree.unflatten(tree, leaves)

        return module, rebuilt


def _positional(function: Callable[..., Any]) -> list[str]:
    """The names of the arguments that may be given by place, where the function tells."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds]


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
