"""Writing files that appear whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | os.PathLike[str], durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which takes the name ``path`` when the block ends well.

    Until then the bytes stand under a temporary name in the same folder, and an error leaves what
    was there before. A device or pipe is written to directly: renaming would replace it. Raises
    ``OSError``, whose ``filename`` is ``path``.
    """
    place = Path(os.path.realpath(path))  # a link stays, its target is written
    try:
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.exists() and not place.is_file():
            whole = io.BytesIO()  # devices claim to seek, and do not
            yield whole
            with place.open("wb") as file:
                file.write(whole.getbuffer())
            return
        with _renamed(place, durable) as file:
            yield file
    except OSError as e:
        raise OSError(e.errno or errno.EIO, e.strerror or str(e), str(path)) from e


@contextmanager
def _renamed(place: Path, durable: bool) -> Iterator[BinaryIO]:
    handle, temporary = tempfile.mkstemp(prefix=f".{place.name[:64]}.", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(handle)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, place)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
