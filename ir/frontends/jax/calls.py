"""Calls of a JAX function: their arguments as leaves, what JAX lowers for them, results as a tree.

Trees are JAX's: lists, tuples, dicts, None, named tuples, and whatever is registered with
``jax.tree_util``. Static arguments are those that ``jax.jit`` would be told of: their values are
part of what is compiled.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError, UnsupportedError
from ...hlo.analysis.verify import verify
from ..imported import Imported
from .lower import function_model as lowered_as_it_is
from .lower import import_jax, keeping_all, lowered_module, tracing
from .trees import with_trees


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
            raise ArgumentError(
                f"static_argnums={static_argnums}", f"{self.name} has no such argument"
            )
        numbers = {n + len(order) if n < 0 else n for n in numbers}
        self.rest = _variadic(function)
        self._flat: dict[int, Any] = {}
        self.names = names | {order[n] for n in numbers if n < len(order)}
        self.numbers = numbers | {n for n, name in enumerate(order) if name in names}

    def flatten(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], Hashable | None]:
        """Return the leaves of the arguments that are not static, and a key of the rest.

        The key is the tree and the static values; None where the leaves are the arguments.
        ``ArgumentError`` for a static argument that is not hashable and for what is not a tree.
        """
        jax = import_jax(self.name)
        dynamic, rest = self._dynamic(args, named)
        fixed = self._static(args, named)
        try:
            leaves, tree = jax.tree.flatten((dynamic, rest))
            key = tree, tuple((place, type(value), value) for place, value in fixed)
            hash(key)
        except Exception as e:  # a registered class may raise anything
            raise ArgumentError(
                f"the arguments of {self.name}",
                f"{type(e).__name__}: {_line(e)}",
                hint="static arguments and the nodes of a tree have to be hashable",
            ) from e
        if has_x64():
            return leaves, (*key, "64 bits")
        return leaves, None if not fixed and tree == self._flat_tree(len(args)) else key

    def _flat_tree(self, count: int) -> Any:
        """Return the tree of a call with so many arrays by place."""
        if count not in self._flat:
            self._flat[count] = import_jax(self.name).tree.structure(((0,) * count, {}))
        return self._flat[count]

    def imported(self, args: Sequence[Any], named: Mapping[str, Any]) -> Imported:
        """Lower the function for such a call.

        The model takes the leaves that ``flatten`` returns, under names such as ``params[0]['w']``;
        its ``rebuild`` makes the call's result, and is None where that is the module's own.
        """
        jax = import_jax(self.name)
        with tracing(self.name):
            keeping = keeping_all(
                self.function,
                static_argnums=tuple(sorted(self.numbers)),
                static_argnames=tuple(sorted(self.names)),
            )
            leaves = self.flatten(args, named)[0]
            if any(isinstance(a, np.ndarray) and not a.dtype.isnative for a in leaves):
                args, named = self.replaced([_native(a) for a in leaves], args, named)
            lowered = keeping.lower(*args, **named)
        module = lowered_module(lowered)
        verify(module)
        inputs = self._input_names(args, named)
        wanted = jax.tree.structure(self._dynamic(args, named))
        fixed = self._static(args, named)

        def dynamic(again: Sequence[Any], names: Mapping[str, Any]) -> Any:
            return self._dynamic(again, names) if self._static(again, names) == fixed else None

        return with_trees(
            module,
            wanted,
            lowered.out_info,
            range(len(inputs)),
            inputs,
            dynamic if fixed else None,
        )

    def replaced(
        self, leaves: Sequence[Any], args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call with these leaves in the place of its own."""
        jax = import_jax(self.name)
        dynamic, rest = self._dynamic(args, named)
        tree = jax.tree.structure((dynamic, rest))

        fixed = {k: v for k, v in named.items() if k in self.names}
        given, names = jax.tree.unflatten(tree, leaves)
        places = iter(given)
        whole = tuple(a if n in self.numbers else next(places) for n, a in enumerate(args))
        return whole, names | fixed

    def _dynamic(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        dynamic = tuple(a for n, a in enumerate(args) if n not in self.numbers)
        return dynamic, {k: v for k, v in named.items() if k not in self.names}

    def _static(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[tuple[int | str, Any]]:
        """Return the static arguments of a call, by place and by name."""
        by_place = [(n, args[n]) for n in sorted(self.numbers) if n < len(args)]
        return by_place + [(k, named[k]) for k in sorted(self.names) if k in named]

    def _input_names(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[str, ...]:
        """Return a name for each leaf: of the argument, and the path of keys in it."""
        jax = import_jax(self.name)
        order = _positional(self.function)
        places = [n for n in range(len(args)) if n not in self.numbers]
        heads = [order[n] if n < len(order) else f"{self.rest}[{n - len(order)}]" for n in places]
        dynamic, rest = self._dynamic(args, named)
        trees = [*zip(heads, dynamic, strict=True), *((k, rest[k]) for k in sorted(rest))]
        pairs = ((head, path) for head, tree in trees for path in _paths(jax, tree))
        return tuple(head + path for head, path in pairs)


def function_model(function: Callable[..., Any], example: tuple[Any, ...] | None) -> Imported:
    """Return a function as JAX lowers it for example arguments; errors as for ``lower``'s."""
    if example is None or hasattr(function, "lower"):  # under jax.jit already, with its options
        return lowered_as_it_is(function, example)
    if any(type(a).__module__.split(".")[0] == "torch" for a in example):
        raise UnsupportedError(
            f"cannot build the Python function {getattr(function, '__name__', function)}",
            "JAX lowers functions, and its example arguments are torch tensors",
            hint="make it the forward of a torch.nn.Module, or compile it by torch.compile with "
            'backend="nestwright"',
        )
    return JaxFunction(function).imported(tuple(example), {})


def has_x64() -> bool:
    """True where JAX has been told, here or everywhere, not to narrow numbers of 64 bits."""
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.config.jax_enable_x64)


def _native(leaf: Any) -> Any:
    """Return zeros of a type that JAX takes for an array with its bytes in another order."""
    if isinstance(leaf, np.ndarray) and not leaf.dtype.isnative:
        return np.broadcast_to(np.zeros((), leaf.dtype.newbyteorder("=")), leaf.shape)
    return leaf


def _paths(jax: Any, tree: Any) -> list[str]:
    keys = jax.tree_util.keystr
    return [keys(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def _positional(function: Callable[..., Any]) -> list[str]:
    """The names of the arguments that may be given by place, where the function tells."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds]


def _variadic(function: Callable[..., Any]) -> str:
    """The name of the parameter that takes further arguments by place."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "args"
    kind = inspect.Parameter.VAR_POSITIONAL
    return next((p.name for p in parameters if p.kind is kind), "args")


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
