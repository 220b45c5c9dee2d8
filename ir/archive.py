"""Zip archives, read without trust: every fault raises ``ArtifactError``, every size has a limit.

Only what our own files need is supported: stored or deflated members of a single-file archive,
zip64 included, as PKWARE's APPNOTE 6.3.10 describes them. Everything is checked: offsets lie within
the file, members have their declared size and CRC, names are unique, and all members together
unpack to no more than the machine's memory.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from .errors import ArtifactError

if TYPE_CHECKING:
    import zipfile

PathLike: TypeAlias = str | os.PathLike[str]

MOST_MEMBERS = 1 << 16
MOST_BYTES = 1 << 40  # of all members, unpacked
JSON_BYTES = 1 << 28  # of a member of JSON
DIRECTORY_BYTES = 1 << 27
STEP = 1 << 20  # bytes that are unpacked at a time

_END, _END64, _LOCATOR = b"PK\5\6", b"PK\6\6", b"PK\6\7"
_END_BYTES, _LOCATOR_BYTES, _END64_BYTES = 22, 20, 56
_ENTRY = struct.Struct("<4s4x2H4x3L3H8xL")
"""An entry of the central directory: magic, flags, method, CRC, packed size, size, lengths of
name, extra field and comment, and the offset of the local header; the rest is skipped."""
_LOCAL = struct.Struct("<4s5H3L2H")  # before a member's data
_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _UTF8 = 1, 1 << 11
_PADDING = 0xD935
"""The extra field that tools use to align members."""


class Member(NamedTuple):
    """An entry of the directory. Sizes are in bytes; ``at`` is the offset of its local header."""

    name: str
    method: int
    crc: int
    packed: int
    size: int
    at: int


class Archive:
    """A zip archive, opened for reading. Any fault in it raises ``ArtifactError``."""

    def __init__(self, file: io.BufferedIOBase, where: str, kind: str = "archive") -> None:
        """Read the directory; errors name the file ``where`` and call it a ``kind``."""
        self.where = where
        self.kind = kind
        self._file = file
        try:
            self._end = file.seek(0, os.SEEK_END)
        except OSError as error:
            self.damaged(_reason(error))
        self._members = self._directory()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members, in the order of the directory."""
        return tuple(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str, most: int = MOST_BYTES) -> bytearray:
        """Return a member's bytes, unpacked.

        ``ArtifactError`` if it is missing, damaged, or has more than ``most`` bytes.
        """
        member = self._members.get(name)
        if member is None:
            self.damaged(f"{name} is missing")
        if member.size > most:
            self.damaged(f"{name} has {member.size} bytes, at most {most} are read")
        try:
            data = self._data(member)
        except MemoryError:
            self.damaged(f"there is no memory for the {member.size} bytes of {name}")
        if len(data) != member.size or zlib.crc32(data) != member.crc:
            self.damaged(f"{name} does not match its size and checksum")
        return data

    def mapped(self, name: str) -> memoryview:
        """Return a member's bytes, mapped to memory as the file has them and not checked.

        ``ArtifactError`` if it is missing. The file must not change while it is used. A member that
        is packed is read.
        """
        member = self._members.get(name)
        if member is None or member.method != _STORED:
            return memoryview(self.read(name))
        start = self._start(member)
        if start + member.size > self._end:
            self.damaged("the directory points outside of the file")
        if not member.size:
            return memoryview(b"")
        first = start - start % mmap.ALLOCATIONGRANULARITY
        try:
            size = start - first + member.size
            pages = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ, offset=first)
        except OSError as error:
            self.damaged(_reason(error))
        return memoryview(pages)[start - first :]

    def json(self, name: str) -> dict[str, Any]:
        """Return the JSON object that a member holds; ``ArtifactError`` if it holds none."""
        return parse_object(self.read(name, JSON_BYTES), name, self.where)

    def damaged(self, why: str) -> NoReturn:
        """Raise ``ArtifactError``: the file is damaged, and ``why``."""
        raise ArtifactError("the file is damaged", why, self.where)

    def _start(self, member: Member) -> int:
        """Return the offset of a member's data, which follows a header of its own."""
        head = self._bytes(member.at, _LOCAL.size)
        magic, _, _, method, *_, name_bytes, extra_bytes = _LOCAL.unpack(head)
        if magic != b"PK\3\4" or method != member.method:
            self.damaged(f"{member.name} does not begin where the directory says")
        return member.at + _LOCAL.size + int(name_bytes) + int(extra_bytes)

    def _data(self, member: Member) -> bytearray:
        packed = self._bytes(self._start(member), member.packed)
        return packed if member.method == _STORED else self._inflated(packed, member)

    def _inflated(self, packed: bytearray, member: Member) -> bytearray:
        found = bytearray()
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        rest: bytes | bytearray = packed
        try:
            while not stream.eof and len(found) <= member.size:
                step = stream.decompress(rest, min(STEP, member.size + 1 - len(found)))
                rest = stream.unconsumed_tail
                if not step and not rest:
                    break
                found += step
        except zlib.error as error:
            self.damaged(f"{member.name} cannot be unpacked: {error}")
        return found

    def _bytes(self, at: int, count: int) -> bytearray:
        """Read ``count`` bytes at offset ``at``, which must lie within the file."""
        if at < 0 or count < 0 or at + count > self._end:
            self.damaged("the directory points outside of the file")
        data = bytearray(count)
        try:
            self._file.seek(at)
            have = self._file.readinto(data)
        except OSError as error:
            self.damaged(_reason(error))
        if have != count:
            self.damaged("the file ends early")
        return data

    def _directory(self) -> dict[str, Member]:
        count, size, at = self._find_directory()
        if count > MOST_MEMBERS or size > DIRECTORY_BYTES or count * _ENTRY.size > size:
            self.damaged(f"a directory of {count} members in {size} bytes")
        data = bytes(self._bytes(at, size))
        found: dict[str, Member] = {}
        place = 0
        for _ in range(count):
            member, place = self._entry(data, place)
            if member.name in found:
                self.damaged(f"{member.name} occurs twice")
            found[member.name] = member
        most = min(MOST_BYTES, _memory())
        total = sum(m.size for m in found.values())
        if total > most:
            self.damaged(f"it unpacks to {total} bytes, at most {most} are read on this machine")
        return found

    def _find_directory(self) -> tuple[int, int, int]:
        """Return the number of members, and the directory's size in bytes and offset."""
        tail = min(self._end, _END_BYTES + 0xFFFF)
        data = bytes(self._bytes(self._end - tail, tail))
        place = data.rfind(_END, 0, max(0, tail - _END_BYTES + len(_END)))
        if place < 0:
            raise ArtifactError(f"no {self.kind}", "it is not a zip archive", self.where)
        end = self._end - tail + place
        count, size, at = struct.unpack_from("<H2L", data, place + 10)
        if end >= _LOCATOR_BYTES:
            locator = self._bytes(end - _LOCATOR_BYTES, _LOCATOR_BYTES)
            if locator.startswith(_LOCATOR):
                count, size, at = self._find_directory64(locator)
        return count, size, at

    def _find_directory64(self, locator: bytearray) -> tuple[int, int, int]:
        (place,) = struct.unpack_from("<Q", locator, 8)
        record = self._bytes(place, _END64_BYTES)
        if not record.startswith(_END64):
            self.damaged("its zip64 record is not where the locator says")
        count, size, at = struct.unpack_from("<3Q", record, 32)
        return count, size, at

    def _entry(self, data: bytes, place: int) -> tuple[Member, int]:
        """Return the entry at an offset in the directory, and the offset after it."""
        if place + _ENTRY.size > len(data):
            self.damaged("its directory ends early")
        magic, flags, method, *sizes, at = _ENTRY.unpack_from(data, place)
        crc, packed, size, name_bytes, extra_bytes, comment_bytes = sizes
        start = place + _ENTRY.size
        after = start + name_bytes + extra_bytes + comment_bytes
        if magic != b"PK\1\2" or after > len(data):
            self.damaged("its directory is not well formed")
        raw = data[start : start + name_bytes]
        try:
            name = raw.decode("utf-8" if flags & _UTF8 or raw.isascii() else "cp437")
        except UnicodeDecodeError:
            self.damaged(f"{raw!r} is not a name")
        if method not in (_STORED, _DEFLATED) or flags & _ENCRYPTED:
            self.damaged(f"{name} is encrypted, or packed by method {method}")
        extra = data[start + name_bytes : start + name_bytes + extra_bytes]
        size, packed, at = self._wide((size, packed, at), extra, name)
        if at + packed > self._end or (method == _STORED and packed != size):
            self.damaged(f"{name} does not fit into the file")
        return Member(name, method, crc, packed, size, at), after

    def _wide(self, narrow: tuple[int, int, int], extra: bytes, name: str) -> tuple[int, int, int]:
        """Return size, packed size and offset; those over 32 bits come from the zip64 field."""
        if 0xFFFFFFFF not in narrow:
            return narrow
        place = 0
        while place + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, place)
            if kind == 1:
                field = extra[place + 4 : place + 4 + length]
                words = iter(struct.unpack_from(f"<{len(field) // 8}Q", field))
                size, packed, at = (next(words, -1) if n == 0xFFFFFFFF else n for n in narrow)
                if min(size, packed, at) >= 0:
                    return size, packed, at
            place += 4 + length
        self.damaged(f"the sizes of {name} are missing")


@contextmanager
def opened(path: PathLike, kind: str = "archive") -> Iterator[Archive]:
    """Open the archive in a file; ``ArtifactError`` if it cannot be read.

    A ``MemoryError`` raised inside the block becomes an ``ArtifactError`` too.
    """
    where = str(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ArtifactError(f"cannot read {where}", "it is not a regular file")
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError as error:
        raise ArtifactError(f"cannot read {where}", "no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ArtifactError(f"cannot read {where!r}", _reason(error)) from error
    with file:
        try:
            yield Archive(file, where, kind)
        except MemoryError as error:
            raise ArtifactError(f"cannot read {where}", "there is no memory for it") from error


def aligned_member(info: zipfile.ZipInfo, at: int, alignment: int) -> None:
    """Pad the header of a zip64 member that is written at offset ``at``, so that its data is
    aligned.
    """
    zip64 = 20  # bytes of the field that ``force_zip64`` adds
    start = at + _LOCAL.size + len(info.filename.encode()) + zip64
    padding = -(start + 4) % alignment
    info.extra = struct.pack("<2H", _PADDING, padding) + bytes(padding)


def is_zip(path: PathLike) -> bool:
    """True for a file that begins as archives do, without a look at the rest."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"PK"
    except (OSError, ValueError):
        return False


def in_memory(data: bytes | bytearray, where: str) -> Archive:
    """Open an archive that is in memory; ``where`` names it in errors."""
    return Archive(io.BytesIO(data), where)


def parse_object(data: bytes | bytearray, name: str, where: str) -> dict[str, Any]:
    """Parse bytes as a JSON object; ``ArtifactError`` if they are anything else."""
    try:
        value = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError, MemoryError) as error:
        why = f"{name}: {str(error) or type(error).__name__}"
        raise ArtifactError("the file is damaged", why, where) from error
    if not isinstance(value, dict):
        raise ArtifactError("the file is damaged", f"{name} is not an object", where)
    return value


def is_unicode(text: str) -> bool:
    """True if the text can be encoded as UTF-8; JSON may contain halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _memory() -> int:
    """Return this machine's memory in bytes, or ``MOST_BYTES`` if it is unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return MOST_BYTES
