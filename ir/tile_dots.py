"""Instructions that multiply matrices held in tile registers, by processor.

A tile register of Intel's AMX holds up to 16 rows of 64 bytes. ``c += a b`` is one instruction:
c is 16 rows by 16 columns of 32 bits, a has 16 rows of as many terms as 64 bytes hold, and b has
the terms of each of 16 columns in groups of 32 bits, a row of groups after the other. So b is
packed as ``[terms / d, columns, d]``, just as lanes take it (``lane_dots``). Smaller matrices use
a part of each register. Intel, Architecture Instruction Set Extensions, TDPBF16PS and TDPBSSD.
"""

from __future__ import annotations

from dataclasses import dataclass

from .dtypes import DType, bf16, f32, s8, s32, u8
from .target import Target

ROWS = 16  # of a tile register
ROW_BYTES = 64
COLUMNS = 16  # of sums
TILES = 8  # registers
GROUPS = ROWS
"""Groups of terms in one instruction: rows of b."""


@dataclass(frozen=True, slots=True)
class TileDot:
    """One instruction: LLVM's intrinsic, and the terms in a group of 32 bits.

    ``left`` and ``right`` are the types of a and b, ``sums`` that of c.
    """

    intrinsic: str
    depth: int
    left: DType
    right: DType
    sums: DType
    features: frozenset[str]

    @property
    def terms(self) -> int:
        """The terms of one instruction."""
        return GROUPS * self.depth


def _bytes(letters: str, left: DType, right: DType) -> TileDot:
    name = f"llvm.x86.tdpb{letters}d"
    return TileDot(name, 4, left, right, s32, frozenset({"amx-tile", "amx-int8"}))


TILE_DOTS = (
    TileDot("llvm.x86.tdpbf16ps", 2, bf16, bf16, f32, frozenset({"amx-tile", "amx-bf16"})),
    _bytes("ss", s8, s8),
    _bytes("su", s8, u8),
    _bytes("us", u8, s8),
    _bytes("uu", u8, u8),
)
"""Sums of bytes are exact: they wrap as 32-bit sums do. Products of bf16 take denormals as 0 and
are added two at a time, each sum rounded to nearest.
"""


def tile_dot(target: Target, left: DType, right: DType) -> TileDot | None:
    """Return the instruction for these types of operands; None if the target has none."""
    usable = (d for d in TILE_DOTS if d.features <= target.features)
    return next((d for d in usable if (d.left, d.right) == (left, right)), None)


def has_tiles(target: Target) -> bool:
    """True if a target has tile registers for any types."""
    return any(d.features <= target.features for d in TILE_DOTS)


def registers(rows: int, columns: int, operands: int = 1) -> int:
    """Return the registers for sums of this size, and for a column of tiles of a and a row of b's,
    ``operands`` times.
    """
    down, across = -(-rows // ROWS), -(-columns // COLUMNS)
    return down * across + operands * (down + across)


def fits(rows: int, columns: int) -> bool:
    """True if the registers hold sums of this size, a column of tiles of a, and a row of b's."""
    return registers(rows, columns) <= TILES
