"""Atomic writes, files that must belong to this user, and the folder of caches."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def cache_folder() -> Path:
    """Return the folder of this user's caches, which need not exist yet.

    platformdirs knows it on every system; without it the XDG base directory specification applies.
    """
    try:
        from platformdirs import user_cache_path
    except ImportError:
        named = os.environ.get("XDG_CACHE_HOME", "")
        root = named if os.path.isabs(named) else os.path.expanduser("~/.cache")
        return Path(root, "nestwright")
    return user_cache_path("nestwright")


OFF = "off"
"""The value of an environment variable that names a folder of caches by which there is none."""


def named_folder(variable: str, name: str) -> Path | None:
    """Return the folder that an environment variable names, by default one of this user's caches.

    None if the variable is ``off``. The folder need not exist yet.
    """
    named = os.environ.get(variable, "")
    if named == OFF:
        return None
    return Path(named) if named else cache_folder() / name


def data_folder() -> Path:
    """Return the folder of this user's data, which need not exist yet; found as the caches' is."""
    try:
        from platformdirs import user_data_path
    except ImportError:
        named = os.environ.get("XDG_DATA_HOME", "")
        root = named if os.path.isabs(named) else os.path.expanduser("~/.local/share")
        return Path(root, "nestwright")
    return user_data_path("nestwright")


@contextmanager
def whole_file(
    path: str | os.PathLike[str], durable: bool = True, private: bool = False
) -> Iterator[BinaryIO]:
    """Yield a file to write that is renamed to ``path`` when the block ends without an error.

    Until then the bytes are in a temporary file in the same folder, and an error leaves the old
    file untouched. Devices and pipes are written directly, since renaming would replace them. A
    symbolic link is followed, but a ``private`` file (mode 600) replaces it. A ``durable`` file is
    flushed to disk first. Raises ``OSError``, whose ``filename`` is ``path``.
    """
    place = Path(path) if private else Path(os.path.realpath(path))
    try:
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not private and place.exists() and not place.is_file():
            whole = io.BytesIO()  # devices claim to be seekable but are not
            yield whole
            with place.open("wb") as file:
                file.write(whole.getbuffer())
            return
        with _renamed(place, durable, 0o600 if private else 0o666 & ~_umask()) as file:
            yield file
    except OSError as e:
        raise OSError(e.errno or errno.EIO, e.strerror or str(e), str(path)) from e


def require_place(path: str | os.PathLike[str], folders: bool = False) -> None:
    """Raise the ``OSError`` that ``whole_file`` would, before what is to be written is computed.

    With ``folders`` those that are missing will be made.
    """
    place = Path(os.path.realpath(path))
    folder = place.parent
    while folders and not folder.exists():
        folder = folder.parent
    number = 0
    if place.is_dir():
        number = errno.EISDIR
    elif place.exists() and not place.is_file():
        return  # a device or a pipe
    elif not folder.is_dir():
        number = errno.ENOTDIR if folder.exists() else errno.ENOENT
    elif not os.access(folder, os.W_OK | os.X_OK):
        number = errno.EACCES
    if number:
        raise OSError(number, os.strerror(number), str(path))


@contextmanager
def _renamed(place: Path, durable: bool, mode: int) -> Iterator[BinaryIO]:
    import tempfile  # reading needs none

    handle, temporary = tempfile.mkstemp(prefix=f".{place.name[:64]}.", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(handle)
        os.chmod(temporary, mode)
        os.replace(temporary, place)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def encodable(text: str) -> str:
    """Return a text that UTF-8 can encode: what a file's name had of other bytes becomes ``?``."""
    return text.encode(errors="replace").decode()


def distrust_reason(found: os.stat_result) -> str:
    """Return the reason not to trust a file or folder, or an empty string.

    It must belong to this user, must not be a symbolic link, and others must not be able to write.
    """
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link"
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}, and this is user {os.geteuid()}"
    if found.st_mode & 0o022 and hasattr(os, "geteuid"):
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def open_own(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a regular file that belongs to this user and return its descriptor.

    A file created here gets mode 600. Links are not followed. ``PermissionError`` for a file that
    another user owns or may write to.
    """
    flags |= os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise PermissionError(errno.EPERM, "it is a symbolic link", str(path)) from e
        raise
    found = os.fstat(fd)
    why = distrust_reason(found) if stat.S_ISREG(found.st_mode) else "it is not a regular file"
    if why:
        os.close(fd)
        raise PermissionError(errno.EPERM, why, str(path))
    return fd


def open_lock(path: str | os.PathLike[str]) -> int:
    """Open a lock file, creating it if there is none, and return its descriptor.

    It may belong to another user, since nothing is read from it or written to it. Links are not
    followed. Raises ``OSError``.
    """
    flags = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        fd = os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError:  # another user's; read access is enough to lock it
        fd = os.open(path, flags | os.O_RDONLY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return fd
