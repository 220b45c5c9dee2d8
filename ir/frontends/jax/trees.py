"""JAX's trees of arguments and results, beside the flat parameters of the module that it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...hlo.nodes import HloModule, Shape
from ..imported import Imported
from .keys import is_key, key_data, restored

NUMPY = (np.ndarray, np.generic)

WIDE = 8
"""Bytes of the smallest numbers that JAX may narrow."""

Dynamic: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], Any]
"""The tree of a call's arguments without the static ones; None if these have other values."""


def with_trees(
    module: HloModule,
    in_tree: Any,
    out: Any,
    kept: Sequence[int],
    inputs: tuple[str, ...] = (),
    dynamic: Dynamic | None = None,
) -> Imported:
    """Return a module of JAX as a model that takes and gives these trees.

    ``in_tree`` is that of a tuple and a dict, the arguments by place and by name; ``out`` is the
    tree of the results, with a description of each at its place; ``dynamic`` takes
    the static ones out of a call that has them. ``kept`` are the leaves that are parameters; where
    JAX dropped others and does not say which, calls are flat.
    """
    import jax

    infos, out_tree = jax.tree.flatten(out)
    restore = restored(infos)
    root = module.entry.root.shape
    count = len(module.entry.parameters)
    same = 0 if isinstance(root, Shape) else (0,) * len(getattr(root, "elements", ()))

    def rebuild(results: tuple[Any, ...]) -> Any:
        return jax.tree.unflatten(out_tree, restore(results) if restore else results)

    def flatten(args: Sequence[Any], named: Mapping[str, Any]) -> list[Any] | None:
        leaves, tree = jax.tree.flatten((tuple(args), dict(named)))
        if tree != in_tree and dynamic is not None:
            leaves, tree = jax.tree.flatten(dynamic(args, named))
        return [_as_jax_has_it(jax, leaves[n]) for n in kept] if tree == in_tree else None

    return Imported(
        module=module,
        inputs=inputs,
        rebuild=rebuild if restore or out_tree != jax.tree.structure(same) else None,
        flatten=flatten if len(kept) == count else None,
        leaves_first=dynamic is None and in_tree == jax.tree.structure(((0,) * count, {})),
    )


def _as_jax_has_it(jax: Any, leaf: Any) -> Any:
    """Return an array of 64-bit numbers as JAX takes it, which may be 32 bits; keys as numbers."""
    if not isinstance(leaf, NUMPY):
        return key_data(leaf) if is_key(leaf) else leaf
    if leaf.dtype.itemsize < WIDE:
        return leaf
    wanted = jax.dtypes.canonicalize_dtype(leaf.dtype)
    return leaf if wanted == leaf.dtype else leaf.astype(wanted)
