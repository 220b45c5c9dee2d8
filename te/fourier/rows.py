"""The rows that a Fourier transform takes, and the stages for their length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.dtypes import DType
from ...ir.hlo.nodes import Instruction
from ...ir.loop.nodes import Buffer, Expr

Element: TypeAlias = Callable[[tuple[Expr, ...]], Expr]
"""Gives the element at an index."""

WIDTH = 64  # bytes of a part at one place


@dataclass(frozen=True, slots=True)
class Rows:
    """Dimension ``along`` of ``[outer, .., ..]``, the other of which has ``count`` rows.

    The result has the transformed numbers along dimension ``to``. ``length`` is that of the
    transform, the number of real ones of a real row. ``source`` is the buffer of complex rows, or
    gives the elements of each part.
    """

    source: Buffer | Sequence[Element]
    out: Buffer
    kind: str
    length: int
    outer: int
    count: int
    along: int
    to: int

    @staticmethod
    def of(x: Instruction, source: Buffer | Sequence[Element], out: Buffer) -> Rows:
        """Return the rows that an HLO ``dft`` transforms."""
        (along, to), (length,) = x.attrs["dimensions"], x.attrs["fft_length"]
        outer, *rest = x.operands[0].array.dims
        kind = str(x.attrs["fft_type"])
        return Rows(source, out, kind, length, outer, rest[2 - along], along, to)

    @property
    def dtype(self) -> DType:
        """Return the type of a part."""
        return self.out.dtype

    @property
    def inverse(self) -> bool:
        """True if the exponent's sign is positive, and the result is divided by the length."""
        return self.kind in ("IFFT", "IRFFT")

    @property
    def halved(self) -> bool:
        """True if two neighbors of a real row are taken for a complex number."""
        return self.kind in ("RFFT", "IRFFT") and self.length % 2 == 0

    @property
    def points(self) -> int:
        """The complex numbers that are transformed."""
        return self.length // 2 if self.halved else self.length

    @property
    def half(self) -> int:
        """The numbers of half a spectrum."""
        return self.length // 2 + 1

    @property
    def lanes(self) -> int:
        """The rows that are transformed at once."""
        return min(WIDTH // self.dtype.bytes, 1 << max(self.count - 1, 0).bit_length())

    @property
    def ragged(self) -> bool:
        """True if the last strip has lanes without a row."""
        return self.count % self.lanes != 0


def radices(n: int) -> tuple[int, ...]:
    """Return the radices of the stages for ``n`` numbers: primes, and 4 and 8 in place of twos."""
    twos = (n & -n).bit_length() - 1
    fours = (0, 2, 1)[twos % 3] if twos > 1 else 0
    eights, two = divmod(twos - 2 * fours, 3)
    odd: list[int] = []
    rest, k = n >> twos, 3
    while rest > 1:
        k = k if k * k <= rest else rest
        while rest % k == 0:
            odd, rest = [k, *odd], rest // k
        k += 2
    return (*(8,) * eights, *(4,) * fours, *odd, *(2,) * two) or (1,)
