"""Keras models on JAX: JAX lowers the stateless call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ..imported import Imported
from ..jax.calls import JaxFunction


def imported(model: Any, arguments: Sequence[Any]) -> Imported:
    """Return a model whose weights are its variables, trainable ones first."""
    split = len(model.trainable_variables)
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    values = [v.value for v in variables]

    def call(inputs: Any, state: Any) -> Any:
        given = inputs[0] if len(inputs) == 1 else inputs
        with _told_by_layer():
            result, _ = model.stateless_call(state[:split], state[split:], given, training=False)
        return result

    call.__name__ = model.name
    found = JaxFunction(call).imported((list(arguments), values), {})
    weights = {len(arguments) + n: np.asarray(v) for n, v in enumerate(values)}
    names = tuple(f"input_{n}" for n in range(len(arguments)))
    return Imported(module=found.module, inputs=names, weights=weights, rebuild=found.rebuild)


@contextmanager
def _told_by_layer() -> Iterator[None]:
    """Name the layer that asks for numbers while JAX traces, as those do that call TensorFlow."""
    import jax

    try:
        yield
    except Exception as error:
        found: BaseException | None = error  # Keras may fail on its way to tell of JAX's error
        while found is not None and not isinstance(found, jax.errors.JAXTypeError):
            found = found.__context__
        if found is None:
            raise
        raise UnsupportedError(
            f"cannot compile the layer {_innermost(found)}",
            "it computes with NumPy or TensorFlow on numbers that are known only in a call",
            hint="apply it to the data, and build the model without it",
        ) from error


def _innermost(error: BaseException) -> str:
    """The name and class of the layer whose method raised an error."""
    import keras

    name, frame = "", error.__traceback__
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        if isinstance(owner, keras.Layer):
            name = f"`{owner.name}` ({type(owner).__name__})"
        frame = frame.tb_next
    return name
