"""SavedModel folders: the function that is served by default, without operations on files."""

from __future__ import annotations

from pathlib import Path

from ...errors import ParseError, UnsupportedError
from ..imported import Imported
from ..registry import Shapes
from .foreign import foreign_operation
from .functions import concrete

MARK = "saved_model.pb"
SERVED = "serving_default"


def read(path: Path, *, shapes: Shapes | None = None) -> Imported:
    """Return the function of a SavedModel that is served by default.

    ``ParseError`` for a damaged folder, ``UnsupportedError`` where TensorFlow is not installed, for
    a model without such a function, and for one with operations on files.
    """
    try:
        import tensorflow as tf
        from tensorflow.core.protobuf import saved_model_pb2
    except ImportError:
        raise UnsupportedError(
            "a SavedModel",
            "TensorFlow reads it, and is not installed",
            str(path),
            hint="pip install tensorflow-cpu",
        ) from None
    held = saved_model_pb2.SavedModel()
    try:
        held.ParseFromString((path / MARK).read_bytes())
        found = foreign_operation(held)
    except Exception as e:  # protobuf's error depends on its release
        raise ParseError("not a SavedModel", f"{type(e).__name__}: {e}", str(path)) from None
    if found is not None:
        raise UnsupportedError(
            "cannot read this SavedModel",
            f"it has the operation {found}, which may run Python or reach files",
            str(path),
            hint="if you trust it: tf.saved_model.load(path).signatures['serving_default']",
        )
    try:
        model = tf.saved_model.load(str(path))
    except Exception as e:  # whatever TensorFlow meets in the folder
        told = str(e).strip().split("\n")[0]
        raise ParseError("TensorFlow cannot read the model", told, str(path)) from e
    if SERVED not in model.signatures:
        raise UnsupportedError("cannot read this SavedModel", f"it has no {SERVED}", str(path))
    return concrete(model.signatures[SERVED], shapes=shapes)
