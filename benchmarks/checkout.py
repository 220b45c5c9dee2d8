"""Makes the package importable where it is not installed: its repository's root is the package."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def importable() -> Iterator[str]:
    """Within the block ``import nestwright`` finds this checkout, and before it nothing else.

    The folder that it gives has to be on ``PYTHONPATH`` of children that shall find it too.
    """
    with tempfile.TemporaryDirectory(prefix="nestwright-") as folder:
        (Path(folder) / "nestwright").symlink_to(ROOT, target_is_directory=True)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        try:
            yield folder
        finally:
            sys.path.remove(folder)
