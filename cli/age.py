"""The age of this process, so that a time limit covers its start."""

from __future__ import annotations

import os
import time
from pathlib import Path

_IMPORTED = time.monotonic()


def process_age() -> float:
    """Return the seconds since this process started, or since this import if that is unknown."""
    since_import = time.monotonic() - _IMPORTED
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since boot, proc(5) field 22
        return max(since_import, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, ValueError, AttributeError, IndexError):
        return since_import
