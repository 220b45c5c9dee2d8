"""The sizes of inputs as an ONNX model declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..declared import Declared
from .nodes.model import CheckedModel, file_bytes, model_of_bytes, model_of_proto


def of_file(path: Path) -> Declared:
    """Return what the model of a file declares; errors as for reading it."""
    return _declared(model_of_bytes(file_bytes(path), str(path)))


def of_proto(model: Any) -> Declared:
    """Return what an ``onnx.ModelProto`` declares; errors as for reading it."""
    return _declared(model_of_proto(model, f"<{model.graph.name or 'ModelProto'}>"))


def _declared(model: CheckedModel) -> Declared:
    """Return the sizes of the inputs that are arrays; some writers give -1 for an open one."""
    arrays = {
        i.name: i.type.tensor_type.shape.dim
        for i in model.graph.input
        if i.name not in model.weights and i.type.HasField("tensor_type")
    }
    return {name: tuple(map(_size, dims)) for name, dims in arrays.items()}


def _size(dim: Any) -> int | None:
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else None
