"""Images in memory: copied, completed with addresses, then code is made executable and read-only.

No page can be written and executed at the same time. The kernel keeps the instruction cache in step
when it makes a page executable.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ....ir.errors import TargetError
from .link import Image
from .read import refuse

_LIBRARIES = None, "libm.so.6"  # what is in this process already; libm need not be
_READ_EXECUTE = mmap.PROT_READ | mmap.PROT_EXEC


class PlacedImage(NamedTuple):
    """Code in memory at an address, which stays there as long as ``memory`` is held."""

    memory: mmap.mmap
    base: int


def place(image: Image, symbols: Mapping[str, int]) -> PlacedImage:
    """Put an image into memory, ready to run.

    ``symbols`` are addresses of what it imports, beside the functions of libc, libm and CPython.
    ``VerifyError`` for imports that are not known, ``TargetError`` where memory cannot be made
    executable.
    """
    here = os.uname().machine
    if image.machine != here:
        refuse(f"it is code for {image.machine}, and this is {here}")
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, max(image.size, mmap.PAGESIZE), private)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory[: len(image.data)] = image.data
    for at in image.relative:
        (offset,) = struct.unpack_from("<q", memory, at)
        struct.pack_into("<Q", memory, at, base + offset)
    for name, at in image.imports.items():
        address = symbols.get(name)
        struct.pack_into("<Q", memory, at, _in_process(name) if address is None else address)
    if image.writable and _libc().mprotect(base, image.writable, _READ_EXECUTE):
        why = os.strerror(ctypes.get_errno() or errno.EACCES)
        raise TargetError(
            "the system does not let memory be made executable", why, hint="ask for execmem"
        )
    return PlacedImage(memory, base)


@cache
def _library(name: str | None) -> ctypes.CDLL:
    return ctypes.CDLL(name, use_errno=True)


@cache
def _libc() -> Any:
    found = _library(None)
    found.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found


@cache
def _in_process(name: str) -> int:
    """Return the address of a function of libc, libm or CPython."""
    for library in _LIBRARIES:
        try:
            function = getattr(_library(library), name)
        except (OSError, AttributeError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    refuse(f"it calls {name}, which neither this process nor its C library has")
