"""Matrix products of four warps: how operands lie in shared memory, who holds which sums.

Layouts and fragments are those of the PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..dtypes import DType

WARPGROUP = 128
_WARP = 32


@dataclass(frozen=True, slots=True)
class GroupMatrix:
    """A product ``c[m, n] += a[m, k] b[k, n]`` of 128 threads, b being in shared memory.

    Operands of f32 are taken without the low 13 bits of their mantissas (tf32). ``right`` is the
    type of b, if it is not that of a (``operands``); it has as many bytes.
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

    @property
    def words(self) -> int:
        """Elements of c that one thread holds."""
        return self.m * self.n // WARPGROUP

    @property
    def held(self) -> int:
        """Elements of a that one thread holds, if it is in registers."""
        return self.m * self.k // WARPGROUP

    def c(self, thread: Any, element: Any) -> tuple[Any, Any]:
        """(m, n) of an element of a thread's own fragment of c: ints or NumPy arrays.

        As well (m, k) of an element of a of two bytes.
        """
        warp, lane = thread // _WARP, thread % _WARP
        return (
            warp * 16 + lane // 4 + element // 2 % 2 * 8,
            element // 4 * 8 + lane % 4 * 2 + element % 2,
        )


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Where the elements of an operand are in shared memory; all sizes are in bytes.

    ``swizzle`` (32, 64 or 128) is the length of the rows into which it is cut: of k for a row or
    column of the product, or, if ``turned``, of rows or columns for one k. Eight rows in a line are
    a group; ``stride`` is from group to group. Turned ones that are longer than a row go on
    ``leading`` bytes further. The chunks of 16 bytes of eight rows are permuted by the bits of
    their addresses, so a group begins at a multiple of eight rows.
    """

    swizzle: int
    leading: int
    stride: int
    turned: bool = False

    def address(self, start: Any, row: Any, k: Any, size: int) -> Any:
        """Return the address of an element of ``size`` bytes, given that of element (0, 0).

        ``row`` is the row of a or the column of b. Numbers or NumPy arrays of integers; an address
        counts from a multiple of 1024.
        """
        if self.turned:
            across, down = row * size, k
        else:
            across, down = k * size, row
        plain = (
            start
            + across // self.swizzle * self.leading
            + across % self.swizzle
            + down // 8 * self.stride
            + down % 8 * self.swizzle
        )
        return plain ^ plain // 128 % (self.swizzle // 16) * 16


def descriptors_of(args: Sequence[int]) -> tuple[Descriptor, ...]:
    """Return the descriptors of a and b that a product's args in its lane form say.

    Only that of b if a is in registers.
    """
    turned, sizes = args[:2], args[2:]
    count = len(sizes) // 3
    return tuple(
        Descriptor(sizes[3 * n], sizes[3 * n + 1], sizes[3 * n + 2], bool(turned[2 - count + n]))
        for n in range(count)
    )
