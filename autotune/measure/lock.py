"""One timed run at a time on this machine, whoever runs it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from filelock import FileLock

VARIABLE = "NESTWRIGHT_MEASURE_LOCK"


def lock_path() -> Path:
    """Where the lock file is: the variable's value, else a fixed name in the temporary folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(tempfile.gettempdir()) / "nestwright-measure.lock"


def machine_lock() -> FileLock:
    """A lock to hold while timing. The system frees it when its holder dies."""
    return FileLock(str(lock_path()), mode=0o666)
