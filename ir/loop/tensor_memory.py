"""Tensor memory: 128 lanes by columns of 32 bits, in which one thread's products keep their sums.

As the PTX ISA has it ("TensorCore 5th Generation Family Instructions"): a product of 128 rows has
row r in lane r, its columns in columns of the memory. Warp w of a group reads lanes 32 w .. + 31.
A block allocates columns, a power of two of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import DType

LANES = 128
LEAST_COLUMNS, MOST_COLUMNS = 32, 512  # that a block may allocate
HELD = (8, 16, 32)  # columns of a row that a thread loads at once


@dataclass(frozen=True, slots=True)
class TensorMatrix:
    """A product ``c[m, n] += a[m, k] b[k, n]`` that one thread begins.

    Operands are in shared memory, as those of ``GroupMatrix`` are; c is in tensor memory.
    """

    m: int
    n: int
    k: int
    operands: DType
    sums: DType
    right: DType | None = None

    @property
    def types(self) -> tuple[DType, DType]:
        """The types of a and b."""
        return self.operands, self.right or self.operands


def allocated(columns: int) -> int:
    """Return the columns that a block allocates to have as many."""
    return max(LEAST_COLUMNS, 1 << (columns - 1).bit_length())
