"""The sizes of inputs as the entry of a StableHLO module declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..declared import Declared
from .reader import declared


def of_file(path: Path) -> Declared:
    """Return what a file declares; errors as for reading it."""
    return declared(path.read_text("utf-8-sig", "replace"), str(path))


def of_staged(model: Any) -> Declared:
    """Return what JAX exported with symbols for sizes; nothing of what it traced or lowered."""
    if not hasattr(model, "mlir_module"):
        return {}
    return declared(str(model.mlir_module()), f"<{type(model).__name__}>")
