"""The number of processes that may compile at once: one per core, as free memory allows."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from ...ir.targets.processor import cores

EACH = 768 << 20  # bytes: an interpreter, LLVM in a child of its own, and ptxas
_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def workers() -> int:
    """Return how many processes may compile at once, this one included."""
    free = free_memory()
    return cores() if free is None else max(1, min(cores(), free // EACH))


def free_memory() -> int | None:
    """Return the bytes that may be taken without anything being swapped or killed; None if unknown.

    It is the least of what the machine has and what the control group of a container allows.
    """
    found: list[int] = []
    with suppress(OSError, ValueError, TypeError):
        available = re.search(r"^MemAvailable:\s+(\d+) kB", _MEMINFO.read_text(), re.MULTILINE)
        found += [int(available[1]) << 10] if available else []
    with suppress(OSError, ValueError):  # the limit is "max" where there is none
        most, used = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = (_CGROUP / "memory.stat").read_text()
        cached = re.search(r"^inactive_file (\d+)", stat, re.MULTILINE)
        found.append(max(0, most - used + (int(cached[1]) if cached else 0)))
    return min(found, default=None)
