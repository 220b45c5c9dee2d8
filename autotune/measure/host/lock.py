"""A machine-wide lock: one timed run at a time by any process, builds in the remaining time.

Builders share the lock, a timed run holds it exclusively. A second lock, the gate, keeps a steady
stream of builders from starving timed runs: a process that waits for the lock holds the gate. The
system releases both when their holder dies.

All users of a machine share a file in the temporary folder. Its creator owns it, so it is opened
for locking only and links are not followed. A file of another user is locked after this user's own
lock and with a time limit, so that its owner cannot keep others from tuning.
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

from ....ir.errors import ArgumentError
from ....ir.files import cache_folder, open_lock

VARIABLE = "NESTWRIGHT_MEASURE_LOCK"
PATIENCE = 60.0  # seconds to wait for a lock that belongs to another user


def lock_path() -> Path:
    """Return the lock file: the variable's value, else a fixed name in the temporary folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(tempfile.gettempdir()) / "nestwright-measure.lock"


Waiting: TypeAlias = Callable[[tuple[int, ...]], object]
"""Called with other processes that hold the lock, about every second of a wait for it."""
TELL = 1.0  # seconds between two calls
POLL = 0.02  # seconds between two attempts to take a lock
POLL_TELLING = 0.005  # the same for one who reports while waiting


class MachineLock:
    """The lock of this machine; an object is for a single thread."""

    def __init__(self, path: Path | None = None, waiting: Waiting | None = None) -> None:
        """Open the lock at ``path``; by default ``lock_path``.

        If the default file belongs to another user, one of this user's own is locked too. Raises
        ``ArgumentError`` if there is no usable lock.
        """
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
        """Open a lock file; return why that failed, or ""."""
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
        """Hold the lock for compiling: beside other builders, never beside a timed run."""
        with self._held(fcntl.LOCK_SH):
            yield

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Hold the lock for timing: exclusively."""
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
        """Return the processes that hold the lock, except this one and its children.

        Empty if the system does not list them.
        """
        own, found = os.getpid(), set()
        nodes = {str(os.fstat(lock.file).st_ino) for lock in self._locks}
        with suppress(OSError):
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()  # 1: FLOCK ADVISORY WRITE pid device:inode start end
                if "FLOCK" in fields and fields[-3].rpartition(":")[2] in nodes:
                    found.add(int(fields[-4]))
        return tuple(sorted(pid for pid in found if own not in (pid, _parent(pid))))

    def close(self) -> None:
        """Close the files; the lock must not be held."""
        for lock in self._locks:
            os.close(lock.file)
            os.close(lock.gate)


def _parent(pid: int) -> int:
    """Return the id of a process's parent; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


@dataclass(slots=True)
class _Lock:
    """An open lock file and its gate.

    ``patience`` is the seconds to wait for them (None: no limit); after one timeout it is 0.
    """

    file: int
    gate: int
    patience: float | None

    @contextmanager
    def held(self, how: int, tell: Callable[[], object] | None) -> Iterator[None]:
        """Hold the lock if it becomes free in time; call ``tell`` about every second until then."""
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
        time.sleep(POLL if tell is None else POLL_TELLING)


def _own_path() -> Path:
    """Return this user's lock file for this machine; several machines may share a home."""
    return cache_folder() / f"measure-{platform.node() or 'here'}.lock"
