"""The sizes of inputs as a Keras model declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..declared import Declared
from .archive import model_of


def of_file(path: Path) -> Declared:
    """Return what the model of a ``.keras`` file declares; errors as for reading it."""
    return of_model(model_of(path))


def of_model(model: Any) -> Declared:
    """Return what a Keras model declares: nothing if it was never called on any input."""
    return {t.name: tuple(t.shape) for t in getattr(model, "inputs", None) or ()}
