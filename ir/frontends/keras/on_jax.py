"""Keras models on JAX: JAX lowers the stateless call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..imported import Imported
from ..jax.calls import JaxFunction


def imported(model: Any, arguments: Sequence[Any]) -> Imported:
    """Return a model whose weights are its variables, trainable ones first."""
    split = len(model.trainable_variables)
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    values = [v.value for v in variables]

    def call(inputs: Any, state: Any) -> Any:
        given = inputs[0] if len(inputs) == 1 else inputs
        result, _ = model.stateless_call(state[:split], state[split:], given, training=False)
        return result

    call.__name__ = model.name
    found = JaxFunction(call).imported((list(arguments), values), {})
    weights = {len(arguments) + n: np.asarray(v) for n, v in enumerate(values)}
    names = tuple(f"input_{n}" for n in range(len(arguments)))
    return Imported(module=found.module, inputs=names, weights=weights, rebuild=found.rebuild)
