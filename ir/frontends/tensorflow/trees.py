"""Trees of arguments and results of TensorFlow's functions, beside the flat ones of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...arrays import Array
from ..imported import Flatten

NUMBERS = (bool, int, float, complex)


def described(example: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of a call with a ``tf.TensorSpec`` for each array in them.

    Lists of numbers alone are arrays; numbers become the types that TensorFlow gives them.
    """
    import tensorflow as tf

    def spec(leaf: Any) -> Any:
        if leaf is None or isinstance(leaf, tf.TensorSpec):
            return leaf
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            leaf = tf.convert_to_tensor(leaf)
        return tf.TensorSpec(leaf.shape, leaf.dtype)

    arguments = (tf.convert_to_tensor(a) if _is_numbers(a) else a for a in example)
    return tuple(tf.nest.map_structure(spec, a) for a in arguments)


def _is_numbers(argument: Any) -> bool:
    if isinstance(argument, (list, tuple)):
        return bool(argument) and all(_is_numbers(a) for a in argument)
    return isinstance(argument, NUMBERS)


def nested(arguments: Sequence[Any]) -> bool:
    """Return whether some of the arguments are trees, or hold no array."""
    import tensorflow as tf

    return any(a is None or tf.nest.is_nested(a) for a in arguments)


def leaves(tree: Any) -> list[Any]:
    """Return the arrays of a tree in TensorFlow's order, those within its composites, too."""
    import tensorflow as tf

    return [a for a in tf.nest.flatten(tree, expand_composites=True) if a is not None]


def flattening(wanted: tuple[Any, ...]) -> Flatten:
    """Return what makes flat inputs of a call whose arguments have the structure of ``wanted``."""
    import tensorflow as tf

    def flatten(args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any] | None:
        try:
            tf.nest.assert_same_structure(wanted, tuple(args))
        except (TypeError, ValueError):
            return None
        return None if named else leaves(tuple(args))

    return flatten


def rebuilt(structure: Any, flat: Sequence[Array]) -> Any:
    """Return the results of a graph in the structure of the function's own result."""
    import tensorflow as tf

    arrays = iter(flat)
    wanted = tf.nest.flatten(structure, expand_composites=True)
    filled = [None if a is None else next(arrays) for a in wanted]
    return tf.nest.pack_sequence_as(structure, filled, expand_composites=True)


def input_names(function: Any, inputs: Sequence[Any]) -> tuple[str, ...]:
    """Return a name for each input: the graph's, or for those in trees the signature's."""
    plain = tuple(t.name.split(":")[0] for t in inputs)
    by_place = (function.structured_input_signature or ((), {}))[0]
    if not nested(by_place):
        return plain
    names = tuple(getattr(s, "name", None) for s in leaves(by_place))
    fits = len(names) == len(plain) == len(set(names)) and all(names)
    return tuple(str(n) for n in names) if fits else plain


def output_names(structure: Any, results: int) -> tuple[str, ...]:
    """Return a name for each result of a function that returns a dict: its key, and the path."""
    if not isinstance(structure, Mapping):
        return ()
    names = tuple(n for key in sorted(structure) for n in _paths(str(key), structure[key]))
    return names if len(names) == results == len(set(names)) else ()


def _paths(head: str, tree: Any) -> Iterator[str]:
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from _paths(f"{head}[{key!r}]", tree[key])
    elif isinstance(tree, (list, tuple)):
        for n, branch in enumerate(tree):
            yield from _paths(f"{head}[{n}]", branch)
    elif tree is not None:
        yield head
