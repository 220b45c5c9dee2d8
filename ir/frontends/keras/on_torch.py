"""Keras models on torch, which are torch modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..imported import Imported
from ..torch.dtypes import as_tensor
from ..torch.export import module


def imported(model: Any, arguments: Sequence[Any]) -> Imported:
    """Return the model as torch exports it for inference."""
    training = model.training
    model.eval()
    try:
        tensors = [as_tensor(np.ascontiguousarray(a)) for a in arguments]
        return module(model, (tensors[0] if len(tensors) == 1 else tensors,))
    finally:
        model.train(training)
