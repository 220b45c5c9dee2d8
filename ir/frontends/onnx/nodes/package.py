"""The ``onnx`` package, imported when the first model is read."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ....errors import UnsupportedError


def import_onnx(part: str = "") -> Any:
    """Return the package or a part of it; ``UnsupportedError`` says what to install."""
    try:
        return import_module(f"onnx.{part}" if part else "onnx")
    except ImportError:
        raise UnsupportedError(
            "cannot read an ONNX model",
            "the onnx package reads it, and is not installed",
            hint='pip install "nestwright[onnx]"',
        ) from None
