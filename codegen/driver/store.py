"""The disk cache of built models, keyed by a hash of everything that determines them.

``build_key`` has what that is. So no entry is ever out of date: any change changes the key. An
entry contains its key, too: one that was written for another model, or that another user owns or
may write to, is not used, with a warning; the model is built again and replaces it. So is one that
is damaged. ``NESTWRIGHT_CACHE`` names the folder, or is ``off``.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread, get_native_id

from ...ir.archive import Archive
from ...ir.errors import ArtifactError, NestwrightError, NestwrightWarning
from ...ir.files import OFF as OFF
from ...ir.files import distrust_reason, named_folder, open_own
from ..plan.bundle import Bundle
from ..plan.saved.read import from_archive
from ..targets.registry import codec

VARIABLE = "NESTWRIGHT_CACHE"
LARGEST = 1 << 33  # bytes that the folder may hold
LARGE = 1 << 24  # bytes of constants that are written while the caller goes on
FREE = 8  # an entry takes at most this part of what is free on the disk
NICE = 10  # of the thread that writes them: a tenth of a core that something else wants
ABANDONED = 3600  # seconds after which an unfinished file is nobody's
_SUFFIX = ".nw"


def folder() -> Path | None:
    """Return the folder of the cache; None if it is off."""
    return named_folder(VARIABLE, "built")


def get(name: str) -> Bundle | None:
    """Return the cached model of a key, or None; warns about an entry that must not be used."""
    place = _path(name, warns=True)
    if place is not None and (writing := _writing.get(str(place))) is not None:
        writing.join()
    if place is None or not os.path.lexists(place):
        return None
    try:
        bundle = _read(place, name)
        with suppress(OSError):
            os.utime(place, follow_symlinks=False)  # the least recently used go first
        return bundle
    except PermissionError as error:
        _warn_unused(place, error.strerror)
    except NestwrightError:
        with suppress(OSError):
            place.unlink()
    except (OSError, MemoryError):
        pass  # it was dropped meanwhile, or is too large
    return None


def _read(place: Path, name: str) -> Bundle:
    """Return the model of an entry; ``PermissionError`` for one that must not be used."""
    with os.fdopen(open_own(place), "rb") as file:
        archive = Archive(file, str(place), "built model")
        bundle, kept_for = from_archive(archive, codec)
    if kept_for != name:
        raise PermissionError(errno.EPERM, "it was stored for another model", str(place))
    return bundle


def problem(name: str) -> str | None:
    """Return why the entry of a key is not used: "" if there is none, None if it is used."""
    place = _path(name)
    if place is None or not os.path.lexists(place):
        return ""
    try:
        _read(place, name)
    except PermissionError as error:
        return f"its entry must not be used: {error.strerror}"
    except NestwrightError as error:
        return f"its entry is damaged: {error}"
    except (OSError, MemoryError) as error:
        return f"its entry cannot be read: {error}"
    return None


def put(name: str, bundle: Bundle) -> None:
    """Cache a model, unless it is too large. Where that is impossible, it is told once if somebody
    named the folder.

    Large ones are written by a thread, which the interpreter waits for at its end.
    """
    where = folder()
    if where is None or bundle.constants.nbytes > LARGEST // 4:
        return
    with _telling(where):
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (place := _path(name)) is None:  # the look-up has warned
            return
        if bundle.constants.nbytes < LARGE:
            _write(bundle, place, name)
            return
        if bundle.constants.nbytes > shutil.disk_usage(where).free // FREE:
            return
        thread = Thread(target=_write_behind, args=(bundle, place, name))
        thread.start()
        _writing[str(place)] = thread


_writing: dict[str, Thread] = {}
_told: set[str] = set()


@contextmanager
def _telling(where: Path) -> Iterator[None]:
    """Warn, once, if a named folder cannot be written; a user's own may be missing everywhere."""
    try:
        yield
    except (OSError, ArtifactError) as error:
        found = error if isinstance(error, OSError) else error.__cause__
        if not os.environ.get(VARIABLE) or str(where) in _told or not isinstance(found, OSError):
            return  # without an error of the system it is this model that cannot be written
        _told.add(str(where))
        why = "it is no folder" if isinstance(found, FileExistsError) else found.strerror
        text = f"cache folder {where} cannot be written: {why}; {VARIABLE} names another, "
        warnings.warn(f"{text}or says {OFF}", NestwrightWarning, stacklevel=2)


def _write_behind(bundle: Bundle, place: Path, name: str) -> None:
    """Write an entry at a lower priority than that of the model, which runs meanwhile."""
    if sys.platform == "linux":  # elsewhere a thread has no priority of its own
        os.setpriority(os.PRIO_PROCESS, get_native_id(), NICE)
    _write(bundle, place, name)


def _write(bundle: Bundle, place: Path, name: str) -> None:
    from ..plan.saved.write import write  # a model that is loaded needs none

    with _telling(place.parent):
        write(bundle, place, durable=False, key=name)
        if name.startswith("0"):  # now and then
            _prune(place.parent)
    _writing.pop(str(place), None)


def _path(name: str, warns: bool = False) -> Path | None:
    """Return the path of an entry; None where others own the folder or may write to it."""
    where = folder()
    if where is None:
        return None
    try:
        why = distrust_reason(os.stat(where))
    except OSError:
        return where / f"{name}{_SUFFIX}"  # there is none yet
    if why:
        if warns:
            _warn_unused(where, why)
        return None
    return where / f"{name}{_SUFFIX}"


def _warn_unused(place: Path, why: str | None) -> None:
    text = f"cached model {place} is not used: {why}"
    if place.suffix != _SUFFIX:
        text = f"cache folder {place} is not used: {why}; {VARIABLE} names another, or says {OFF}"
    warnings.warn(text, NestwrightWarning, stacklevel=2)


def _prune(where: Path) -> None:
    """Drop the least recently used entries until at most ``LARGEST`` bytes are left, and unfinished
    files.
    """
    found = []
    for place in where.iterdir():
        with suppress(FileNotFoundError):
            found.append((place.lstat(), place))
    unfinished = [(s, p) for s, p in found if p.name.startswith(".")]
    for stat, place in unfinished:
        if stat.st_mtime < time.time() - ABANDONED:
            place.unlink(missing_ok=True)
    models = [(s, p) for s, p in found if p.suffix == _SUFFIX and (s, p) not in unfinished]
    total = sum(s.st_size for s, _ in models)
    for stat, place in sorted(models, key=lambda item: item[0].st_mtime):
        if total <= LARGEST:
            return
        place.unlink(missing_ok=True)
        total -= stat.st_size
