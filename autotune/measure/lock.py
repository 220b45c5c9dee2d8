"""One timed run at a time on this machine, whoever runs it; builds share the rest of the time.

Builders hold the lock together, a timed run holds it alone. A gate in front keeps a steady stream
of builders from starving the timed run: who waits for the lock holds the gate. The system frees
both when their holder dies.

Users of one machine meet at a file in the temporary folder. Whoever is first owns it, so it is
opened for nothing but locking, no link is followed, and where it is another user's, it is asked for
after a lock of this user's own and not for ever: who holds it back cannot stop others from tuning.
"""

from __future__ import annotations

import fcntl
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...ir.errors import ArgumentError
from ...ir.files import open_lock

VARIABLE = "NESTWRIGHT_MEASURE_LOCK"
PATIENCE = 60.0  # seconds that a lock which belongs to another user is waited for
_POLL = 0.02


def lock_path() -> Path:
    """Where users of this machine meet: the variable's value, else a fixed name in the temporary
    folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(tempfile.gettempdir()) / "nestwright-measure.lock"


class MachineLock:
    """The lock of this machine. One object serves one thread."""

    def __init__(self, path: Path | None = None) -> None:
        """``path`` is a file that all agree on; by default ``lock_path`` and, where that is not
        this user's, one of this user's own. ``ArgumentError`` where no lock can be had."""
        self.path = path or lock_path()
        named = path is not None or bool(os.environ.get(VARIABLE))
        self._locks: list[_Lock] = []
        told = self._add(self.path, trusted=named)
        if not named and all(lock.patience is not None for lock in self._locks):
            told = self._add(_own_path(), trusted=True) or told
            self._locks.reverse()
        if not self._locks:
            raise ArgumentError(
                f"cannot lock {self.path}", told, hint=f"{VARIABLE} names a file for the lock"
            )

    def _add(self, path: Path, trusted: bool) -> str:
        """Open a lock; why that is impossible, where it is."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = open_lock(path)
            gate = open_lock(path.with_name(path.name + ".gate"))
        except OSError as error:
            return error.strerror or str(error)
        own = all(os.fstat(fd).st_uid == os.geteuid() for fd in (file, gate))
        self._locks.append(_Lock(file, gate, None if own or trusted else PATIENCE))
        return ""

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
        with ExitStack() as stack:
            for lock in self._locks:
                stack.enter_context(lock.held(how))
            yield

    def close(self) -> None:
        """Let go of the files; the lock must not be held."""
        for lock in self._locks:
            os.close(lock.file)
            os.close(lock.gate)


@dataclass(slots=True)
class _Lock:
    """A lock file and its gate, open. ``patience`` is how long to wait for them, None for ever;
    who waited in vain does not ask again."""

    file: int
    gate: int
    patience: float | None

    @contextmanager
    def held(self, how: int) -> Iterator[None]:
        taken = False
        if _take(self.gate, fcntl.LOCK_EX, self.patience):
            try:
                taken = _take(self.file, how, self.patience)
            finally:
                fcntl.flock(self.gate, fcntl.LOCK_UN)
        if not taken:
            self.patience = 0.0
        try:
            yield
        finally:
            if taken:
                fcntl.flock(self.file, fcntl.LOCK_UN)


def _take(fd: int, how: int, patience: float | None) -> bool:
    if patience is None:
        fcntl.flock(fd, how)
        return True
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL)


def _own_path() -> Path:
    """A file that is this user's on this machine: homes may be shared by several machines."""
    from platformdirs import user_cache_path

    return user_cache_path("nestwright") / f"measure-{platform.node() or 'here'}.lock"
