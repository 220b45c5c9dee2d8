"""Element types of ONNX, by their numbers in protobufs, as those of HLO."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtypes import DType, from_numpy
from ....errors import UnsupportedError
from .package import import_onnx

_UNHELD = {
    8: ("strings", "HLO has no strings; process text before the model"),
    27: ("f6e2m3", "HLO has no floats of 6 bits"),
    28: ("f6e3m2", "HLO has no floats of 6 bits"),
}


def element_type(number: int, where: str = "") -> DType:
    """Return the element type that a ``TensorProto.DataType`` stands for.

    ``UnsupportedError`` for strings, floats of 6 bits and numbers that the package does not know.
    """
    if number in _UNHELD:
        name, hint = _UNHELD[number]
        raise UnsupportedError(f"{name} are no elements of arrays here", "", where, hint)
    try:
        found: np.dtype[Any] = import_onnx("helper").tensor_dtype_to_np_dtype(number)
        return from_numpy(found)
    except (KeyError, TypeError):
        raise UnsupportedError(
            f"element type {number} is not known", "to the installed onnx package or to HLO", where
        ) from None


def tensor_name(number: int) -> str:
    """Return the name of a ``TensorProto.DataType`` in definitions of operators, as ``int64``."""
    name: str = import_onnx().TensorProto.DataType.Name(number)
    return name.lower()
