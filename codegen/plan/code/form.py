"""The code of kernels, and its serialization for other processes and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from ....ir.target import Target
    from .device import DeviceCode


Code: TypeAlias = "bytes | DeviceCode"
"""Object code for a processor, or kernels for a GPU."""


def code_pieces(code: Code) -> dict[str, bytes]:
    """Return a kernel's code as pieces of bytes, by kind; a ``Codec`` puts them together again."""
    if isinstance(code, bytes):
        return {"o": code}
    from .device import pieces

    return pieces(code)


def code_bytes(code: Code) -> int:
    """Return the size of a kernel's machine code, or of its PTX where it has none."""
    return len(code) if isinstance(code, bytes) else len(code.cubin or code.ptx)


def _object(found: Mapping[str, bytes], target: Target) -> Code:
    return found["o"]


class Codec(NamedTuple):
    """The parser of one form of code, the inverse of ``code_pieces``.

    ``pieces`` are the kinds of its parts; ``join`` assembles code for a target from them, or raises
    ``ArtifactError`` if they are invalid. Code that is ``linked`` runs within a program, which then
    carries the seal of its plan.
    """

    pieces: tuple[str, ...]
    join: Callable[[Mapping[str, bytes], Target], Code]
    linked: bool


OBJECT = Codec(("o",), _object, linked=True)
"""Object code, linked with the program that calls it."""
