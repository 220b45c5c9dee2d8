"""Shapes of the tile registers of a function, as one instruction sets them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....ir.tile_dots import COLUMNS, ROWS, registers

_PALETTE = 1  # of the configuration: eight registers of 16 rows of 64 bytes
_BYTES = 64  # of the configuration
_WIDTHS, _HEIGHTS = 16, 48  # where it has the bytes of a register's rows, and their number


@dataclass(frozen=True, slots=True)
class TileShape:
    """Tiles of sums, and of operands of so many groups of terms: the first registers are the sums'.

    With ``rest`` there are operands of as many groups, too, in registers of their own.
    Intel, Architecture Instruction Set Extensions, LDTILECFG.
    """

    rows: int
    columns: int
    groups: int
    rest: int = 0

    @property
    def down(self) -> int:
        """Tiles of rows."""
        return -(-self.rows // ROWS)

    @property
    def across(self) -> int:
        """Tiles of columns."""
        return -(-self.columns // COLUMNS)

    @property
    def tiles(self) -> list[tuple[int, int]]:
        """The tiles of the sums."""
        return [(i, j) for i in range(self.down) for j in range(self.across)]

    @property
    def registers(self) -> int:
        """The number of registers in use."""
        return registers(self.rows, self.columns, 2 if self.rest else 1)

    def sums(self, i: int, j: int) -> int:
        """Return the register of a tile of the sums."""
        return i * self.across + j

    def left(self, i: int, rest: bool = False) -> int:
        """Return the register of a tile of a."""
        first = self.down * self.across + (self.down + self.across if rest else 0)
        return first + i

    def right(self, j: int, rest: bool = False) -> int:
        """Return the register of a tile of b."""
        return self.left(0, rest) + self.down + j

    def configuration(self) -> bytes:
        """Return what the instruction takes that sets the shapes."""
        found = bytearray(_BYTES)
        found[0] = _PALETTE

        def put(register: int, rows: int, words: int) -> None:
            found[_WIDTHS + 2 * register] = 4 * words
            found[_HEIGHTS + register] = rows

        tall = [min(ROWS, self.rows - ROWS * i) for i in range(self.down)]
        wide = [min(COLUMNS, self.columns - COLUMNS * j) for j in range(self.across)]
        for i, j in self.tiles:
            put(self.sums(i, j), tall[i], wide[j])
        for rest, groups in ((False, self.groups), (True, self.rest)):
            for i, rows in enumerate(tall if groups else ()):
                put(self.left(i, rest), rows, groups)
            for j, columns in enumerate(wide if groups else ()):
                put(self.right(j, rest), groups, columns)
        return bytes(found)


@dataclass(frozen=True, slots=True)
class TileRegisters:
    """One function's: its slots for the number of the present shape, and for what sets shapes.

    Number 0 is none. ``shapes`` are those that it uses.
    """

    current: str
    memory: str
    shapes: list[TileShape] = field(default_factory=list)

    def number(self, shape: TileShape) -> int:
        """Return the number of a shape."""
        if shape not in self.shapes:
            self.shapes.append(shape)
        return self.shapes.index(shape) + 1
