"""Static libraries: archives in the format of System V and GNU ``ar``, with an index of symbols.

An archive is a magic string and members; a member is a head of 60 characters and its bytes, padded
to an even size. The first member, ``/``, is the index: a count, the offset of the member that
defines each symbol, all big-endian, and the names. Dates and owners are 0, so that the same library
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from ...ir.errors import LimitError
from .elf import Data

_MAGIC = b"!<arch>\n"
_LONGEST = 15  # characters of a member's name, before its slash
_MOST = 1 << 32  # bytes that offsets of an index can tell


def archive(name: str, pieces: Sequence[Data], symbols: Sequence[str]) -> tuple[Data, ...]:
    """Return an archive of one object, in pieces, whose index names what the object defines.

    ``LimitError`` for one of 4 GiB or more.
    """
    index = b"".join(symbol.encode() + b"\0" for symbol in symbols)
    index_bytes = 4 + 4 * len(symbols) + len(index)
    begin = len(_MAGIC) + 60 + index_bytes + index_bytes % 2
    size = sum(map(len, pieces))
    if begin + size >= _MOST:
        raise LimitError(
            f"a static library of {size} bytes",
            "the format takes less than 4 GiB",
            hint="keep the weights in a file of their own",
            asked=size,
            limit=_MOST,
        )
    offsets = pack(f">{1 + len(symbols)}I", len(symbols), *[begin] * len(symbols))
    return (
        _MAGIC,
        _head("/", index_bytes),
        offsets + index,
        b"\n" * (index_bytes % 2),
        _head(f"{name[:_LONGEST]}/", size),
        *pieces,
        b"\n" * (size % 2),
    )


def _head(name: str, size: int) -> bytes:
    return f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{size:<10}`\n".encode()
