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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ...ir.errors import ArgumentError
from ...ir.files import cache_folder, open_lock

VARIABLE = "NESTWRIGHT_MEASURE_LOCK"
PATIENCE = 60.0  # seconds that a lock which belongs to another user is waited for
_POLL = 0.02


def lock_path() -> Path:
    """Where users of this machine meet: the variable's value, else a fixed name in the temporary
    folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(tempfile.gettempdir()) / "nestwright-measure.lock"


Waiting: TypeAlias = Callable[[tuple[int, ...]], object]
"""Told which strangers hold the lock, about every second of a wait for it."""
TELL = 1.0  # seconds between two calls of it
POLL = 0.005  # seconds between two tries of one who tells


class MachineLock:
    """The lock of this machine. One object serves one thread."""

    def __init__(self, path: Path | None = None, waiting: Waiting | None = None) -> None:
        """``path`` is a file that all agree on; by default ``lock_path`` and, where that is not
        this user's, one of this user's own. ``ArgumentError`` where no lock can be had."""
        self.path = path or lock_path()
        self._waiting = waiting
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
                stack.enter_context(lock.held(how, self._tell))
            yield

    @property
    def _tell(self) -> Callable[[], object] | None:
        waiting = self._waiting
        return None if waiting is None else lambda: waiting(self.strangers())

    def strangers(self) -> tuple[int, ...]:
        """The processes that hold the lock, as far as the system tells, but for this one and its
        children."""
        own, found = os.getpid(), set()
        nodes = {str(os.fstat(lock.file).st_ino) for lock in self._locks}
        with suppress(OSError):
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()  # 1: FLOCK ADVISORY WRITE pid device:inode start end
                if "FLOCK" in fields and fields[-3].rpartition(":")[2] in nodes:
                    found.add(int(fields[-4]))
        return tuple(sorted(pid for pid in found if own not in (pid, _parent(pid))))

    def close(self) -> None:
        """Let go of the files; the lock must not be held."""
        for lock in self._locks:
            os.close(lock.file)
            os.close(lock.gate)


def _parent(pid: int) -> int:
    """The number of a process's parent; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


@dataclass(slots=True)
class _Lock:
    """A lock file and its gate, open. ``patience`` is how long to wait for them, None for ever;
    who waited in vain does not ask again."""

    file: int
    gate: int
    patience: float | None

    @contextmanager
    def held(self, how: int, tell: Callable[[], object] | None) -> Iterator[None]:
        """Hold it, if it can be had; ``tell`` is called about every second until then."""
        taken = False
        if _take(self.gate, fcntl.LOCK_EX, self.patience, tell):
            try:
                taken = _take(self.file, how, self.patience, tell)
            finally:
                fcntl.flock(self.gate, fcntl.LOCK_UN)
        if not taken:
            self.patience = 0.0
        try:
            yield
        finally:
            if taken:
                fcntl.flock(self.file, fcntl.LOCK_UN)


def _take(fd: int, how: int, patience: float | None, tell: Callable[[], object] | None) -> bool:
    if patience is None and tell is None:
        fcntl.flock(fd, how)
        return True
    began = told = time.monotonic()
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(fd, how | fcntl.LOCK_NB)
            return True
        now = time.monotonic()
        if patience is not None and now >= began + patience:
            return False
        if tell is not None and now >= told + TELL:
            told = now
            tell()
        time.sleep(_POLL if tell is None else POLL)


def _own_path() -> Path:
    """A file that is this user's on this machine: homes may be shared by several machines."""
    return cache_folder() / f"measure-{platform.node() or 'here'}.lock"
