"""One timed run at a time on this machine, whoever runs it; builds share the rest of the time.

Builders hold the lock together, a timed run holds it alone. A gate in front keeps a steady stream
of builders from starving the timed run: who waits for the lock holds the gate. The system frees
both when their holder dies.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "NESTWRIGHT_MEASURE_LOCK"


def lock_path() -> Path:
    """Where the lock file is: the variable's value, else a fixed name in the temporary folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(tempfile.gettempdir()) / "nestwright-measure.lock"


class MachineLock:
    """The lock of this machine. One object serves one thread."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or lock_path()
        self._lock = _open(self.path)
        self._gate = _open(self.path.with_name(self.path.name + ".gate"))

    @contextmanager
    def building(self) -> Iterator[None]:
        """Compile beside other builders, but never beside a timed run."""
        with self._held(fcntl.LOCK_SH):
            yield

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Run alone."""
        with self._held(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _held(self, how: int) -> Iterator[None]:
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, how)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the files; the lock must not be held."""
        os.close(self._lock)
        os.close(self._gate)


def _open(path: Path) -> int:
    """A descriptor of the lock file, which anyone on the machine may lock."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
