"""Folders for a process's temporary files, which are removed even if the process is killed.

Each folder has a lock file that its process keeps locked. Before a process makes its first folder,
it removes those of this user whose locks nobody holds any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from .files import distrust_reason, open_own

_PREFIX = "nestwright-"
_UNNAMED = ".nestwright-new-"  # its lock is not taken yet
_LOCK = "lock"
ABANDONED = 3600.0  # seconds after which an unlocked, unnamed folder is removed


class Scratch:
    """A folder of this process's own in the temporary folder, at ``path``.

    ``close`` removes it, and so does the end of this object or of the process.
    """

    def __init__(self, kind: str) -> None:
        """Make the folder; ``kind`` becomes part of its name."""
        base = Path(tempfile.gettempdir())
        _sweep_once(base, os.getpid())
        made = Path(tempfile.mkdtemp(prefix=_UNNAMED, dir=base))
        lock = open_own(made / _LOCK, os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.path = base / f"{_PREFIX}{kind}-{made.name.removeprefix(_UNNAMED)}"
        made.rename(self.path)  # only now that it is locked, so that no sweep removes it
        self.close = weakref.finalize(self, _discard, self.path, lock)


def _discard(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


@contextmanager
def scratch(kind: str) -> Iterator[Path]:
    """Make a scratch folder, yield its path, and remove it at the end of the block."""
    made = Scratch(kind)
    try:
        yield made.path
    finally:
        made.close()


@cache
def _sweep_once(base: Path, process: int) -> None:
    sweep(base)


def sweep(base: Path) -> None:
    """Remove the scratch folders of this user whose processes have ended."""
    with suppress(OSError):
        for place in list(base.iterdir()):
            if place.name.startswith((_PREFIX, _UNNAMED)):
                with suppress(OSError):
                    _remove(place)


def _remove(place: Path) -> None:
    found = place.lstat()
    if not place.is_dir() or distrust_reason(found):
        return
    if place.name.startswith(_UNNAMED):
        if found.st_mtime < time.time() - ABANDONED:
            shutil.rmtree(place, ignore_errors=True)
        return
    lock = open_own(place / _LOCK)  # raises OSError if the folder has none
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(lock)
