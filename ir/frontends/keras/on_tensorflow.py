"""Keras models on TensorFlow, traced for inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..imported import Imported
from ..tensorflow.functions import traced


def imported(model: Any, arguments: Sequence[Any]) -> Imported:
    """Return the model as TensorFlow lowers its call."""
    import tensorflow as tf

    def call(*inputs: Any) -> Any:
        return model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)

    return traced(tf.function(call), [np.asarray(a) for a in arguments])
