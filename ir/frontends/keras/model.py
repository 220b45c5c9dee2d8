"""A Keras 3 model as an imported model, by the backend that Keras runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...arrays import Array
from ...errors import ArgumentError, UnsupportedError
from ...lazy import resolve
from ..imported import Imported
from ..registry import Shapes

BACKENDS: Mapping[str, str] = {
    "jax": ".on_jax:imported",
    "torch": ".on_torch:imported",
    "tensorflow": ".on_tensorflow:imported",
}
"""The backends of Keras, and the function that reads a model on each: ``(model, arguments)``."""


def convert(
    model: Any, example: Sequence[Any] | None = None, *, shapes: Shapes | None = None
) -> Imported:
    """Return a model for inference: its inputs, then its variables as weights.

    ``example`` are arrays for the inputs, in order. Without them the inputs have the sizes that the
    model declares, and ``shapes`` those that it leaves open. ``ArgumentError`` where sizes stay
    open; ``UnsupportedError`` for a backend that is not read.
    """
    import keras

    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise UnsupportedError(
            f"a Keras model on the backend {backend}",
            f"models are read on {', '.join(BACKENDS)}",
            hint="set KERAS_BACKEND, or write the model to a .keras file and give its path",
        )
    arguments = _declared(model, shapes or {}) if example is None else tuple(example)
    read: Callable[[Any, Sequence[Any]], Imported] = resolve(BACKENDS[backend], __package__)
    found = read(model, arguments)
    names = tuple(t.name for t in getattr(model, "inputs", None) or ())
    outputs = tuple(getattr(model, "output_names", ()))
    if len(names) != len(found.module.entry.parameters) - len(found.weights):
        return found
    flatten = partial(_flatten, names) if len(names) > 1 else None
    return replace(found, inputs=names, outputs=outputs, flatten=flatten)


def _flatten(
    names: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]
) -> list[Any] | None:
    """Return the inputs of a call with a list or a dict of them, as Keras takes several."""
    if named or len(args) != 1:
        return None
    match args[0]:
        case dict() as given if given.keys() == set(names):
            return [given[name] for name in names]
        case list() | tuple() as given if len(given) == len(names):
            return list(given)
    return None


def _declared(model: Any, shapes: Shapes) -> tuple[Array, ...]:
    """Return arrays of the sizes that a model declares, which take no memory."""
    inputs = getattr(model, "inputs", None)
    name = getattr(model, "name", type(model).__name__)
    if not inputs:
        raise ArgumentError(
            f"the Keras model {name} declares no inputs",
            "it was never called on any",
            hint="nw.lower(model, x), or nw.build(model, example=(x,))",
        )
    return tuple(_array(t, _given(t.name, n, shapes)) for n, t in enumerate(inputs))


def _given(name: str, number: int, shapes: Shapes) -> Sequence[int | None] | None:
    return shapes.get(name, shapes.get(number))


def _array(tensor: Any, given: Sequence[int | None] | None) -> Array:
    declared = tuple(tensor.shape)
    wanted = declared if given is None else tuple(given)
    if len(wanted) != len(declared):
        raise ArgumentError(
            f"input {tensor.name!r} cannot have the shape {list(wanted)}",
            f"the model declares {list(declared)}",
        )
    sizes = [d if w is None else w for d, w in zip(declared, wanted, strict=True)]
    if None in sizes:
        raise ArgumentError(
            f"the model leaves sizes of input {tensor.name!r} open",
            f"it declares {list(declared)}",
            hint=f"shapes={{{tensor.name!r}: (1, 3, 224, 224)}}, --shape {tensor.name}=1x3x224x224,"
            " or example arguments",
        )
    if any(d not in (None, n) for d, n in zip(declared, sizes, strict=True)):
        raise ArgumentError(
            f"input {tensor.name!r} cannot have the shape {sizes}",
            f"the model declares {list(declared)}",
        )
    return np.broadcast_to(np.zeros((), tensor.dtype), [n for n in sizes if n is not None])
