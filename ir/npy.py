"""Reading .npy and .npz files without evaluating anything in them.

The format is that of ``numpy.lib.format``, versions 1 to 3. An array is accepted only if its header
is well formed, its elements are numbers (or bare bytes, as NumPy stores bf16), and the member holds
exactly the number of bytes that shape and type require.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from .archive import MOST_BYTES, Archive
from .arrays import Array
from .errors import ArtifactError

MOST_DIMS = 32  # of an array, in all versions of NumPy
HEADER_BYTES = 1 << 16
_SUFFIX = ".npy"
_MAGIC = b"\x93NUMPY"
_TYPES = re.compile(r"[<>|=]?(b1|[iu][1248]|f[1248]|c8|c16|V[1248])")
_FIELD = re.compile(
    r"\s*(['\"])(?P<name>\w{1,20})\1\s*:\s*"
    r"(?P<value>True|False|'[^'\\]*'|\"[^\"\\]*\"|\([\d\s,L]*\))\s*(?:,|(?=\s*\}))"
)
_FIELDS = {"descr", "fortran_order", "shape"}
_DIM = re.compile(r"\s*(\d{1,19})L?\s*")


def read_arrays(archive: Archive) -> dict[str, Array]:
    """Return the arrays of an .npz file by name; ``ArtifactError`` if a member is not an array."""
    found: dict[str, Array] = {}
    for member in archive.names:
        name = member.removesuffix(_SUFFIX)
        if name in found:
            archive.damaged(f"{name} occurs twice")
        found[name] = read_array(archive.read(member, MOST_BYTES), name, archive.where)
    return found


def read_array(data: bytearray, name: str, where: str) -> Array:
    """Return the array in a .npy file's bytes, as a view of them; ``ArtifactError`` if damaged."""
    try:
        head, start = _header(data)
        dtype, shape, by_columns = _parse(head)
        count = math.prod(shape)
        have = len(data) - start
        if count * dtype.itemsize != have:
            raise ValueError(f"{have} bytes for {count} elements of {dtype.itemsize} bytes")
        flat = np.frombuffer(data, dtype, count, start)
        return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)
    except ValueError as error:
        raise ArtifactError("the file is damaged", f"array {name!r}: {error}", where) from error


def _header(data: bytearray) -> tuple[str, int]:
    """Return the header's text, and the offset of the elements."""
    if not data.startswith(_MAGIC) or len(data) < 10:
        raise ValueError("it does not begin as NumPy's arrays do")
    version = data[6]
    if version not in (1, 2, 3):
        raise ValueError(f"format {version}, 1 to 3 are read")
    wide = 2 if version == 1 else 4
    length = int.from_bytes(data[8 : 8 + wide], "little")
    start = 8 + wide + length
    if length > HEADER_BYTES or start > len(data):
        raise ValueError(f"a header of {length} bytes")
    return data[8 + wide : start].decode("utf-8" if version == 3 else "latin1"), start


def _parse(head: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Return element type, shape, and whether elements are in Fortran order."""
    fields: dict[str, str] = {}
    place = head.find("{") + 1
    while (match := _FIELD.match(head, place)) and len(fields) < len(_FIELDS):
        fields[match["name"]] = match["value"]
        place = match.end()
    ended = place and not head[:place].partition("{")[0].strip() and head[place:].strip() == "}"
    if "O" in re.findall(r"['\"][<>|=]?(O)\d*['\"]", head):
        raise ValueError("it holds pickled objects, which are never loaded")
    if not ended or set(fields) != _FIELDS or fields["fortran_order"] not in ("True", "False"):
        raise ValueError("its header is not well formed, or its elements are records")
    kind = fields["descr"][1:-1]
    if not _TYPES.fullmatch(kind):
        raise ValueError(f"elements of type {kind!r} are not numbers")
    if kind[1:] == "f1":  # NumPy writes f8e5m2 as f1, which it cannot read
        kind = "V1"
    return np.dtype(kind), _shape(fields["shape"]), fields["fortran_order"] == "True"


def _shape(text: str) -> tuple[int, ...]:
    parts = text[1:-1].split(",")
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    elif len(parts) == 1 and parts[0].strip():
        raise ValueError(f"{text} is not a shape")
    matches = [_DIM.fullmatch(p) for p in parts if p.strip() or len(parts) > 1]
    if None in matches or len(matches) > MOST_DIMS:
        raise ValueError(f"{text} is not a shape of at most {MOST_DIMS} dimensions")
    dims = tuple(int(m[1]) for m in matches if m is not None)
    if math.prod(max(1, d) for d in dims) >= 1 << 62:
        raise ValueError(f"{text} has too many elements")
    return dims
