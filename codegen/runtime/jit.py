"""Object code loaded into this process, and the addresses of its symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .elf.link import Image, link
from .elf.place import PlacedImage, place
from .elf.read import is_elf


class JitLibrary(Protocol):
    """Loaded code. It stays in memory as long as this object, or a user of an address, keeps it."""

    def address(self, symbol: str) -> int:
        """Return the address of a symbol; ``KeyError`` if no object defines it."""


class _Linked:
    """Code that our own linker loaded."""

    def __init__(self, image: Image, placed: PlacedImage) -> None:
        self.image = image
        self.placed = placed

    def address(self, symbol: str) -> int:
        return self.placed.base + self.image.symbols[symbol]


def load(objects: Sequence[bytes], symbols: Mapping[str, int] | None = None) -> JitLibrary:
    """Link object code with each other and with this process (libc, libm), and load it.

    ``symbols`` are addresses of further functions that the code may call, such as the thread
    pool's. ``VerifyError`` for bytes that are not object code of this machine. ELF objects need no
    LLVM.
    """
    if all(map(is_elf, objects)):
        image = link(objects)
        return _Linked(image, place(image, symbols or {}))
    from . import orc

    return orc.load(objects, symbols or {})
