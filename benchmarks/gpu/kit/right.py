"""Right results in a file, of types that NumPy's own files do not know, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

SUFFIX = ".right.npz"


def write(path: Path, results: Sequence[Any]) -> None:
    """Write results, each under its number and the name of its element type."""
    arrays = [np.asarray(r) for r in results]
    named = {f"{i:03}.{a.dtype.name}": a for i, a in enumerate(arrays)}
    np.savez_compressed(path, allow_pickle=False, **named)


def read(path: Path) -> list[np.ndarray[Any, Any]]:
    """Return the results that ``write`` wrote."""
    import ml_dtypes

    with np.load(path, allow_pickle=False) as stored:
        names = sorted(stored.files)
        found = [(n.split(".")[1], stored[n]) for n in names]
    return [a.view(getattr(ml_dtypes, n)) if hasattr(ml_dtypes, n) else a for n, a in found]
