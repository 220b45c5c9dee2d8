"""Matrices of one warp: who holds which elements of a product, and what ``ldmatrix`` hands out.

Fragments are those of the PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..dtypes import DType

_WARP = 32


@dataclass(frozen=True, slots=True)
class Matrix:
    """A product ``c[m, n] += a[m, k] b[k, n]`` of one warp, and who holds which elements of it.

    ``a``, ``b`` and ``c`` give the place, in these coordinates, of an element of a thread's own
    fragment: element e of lane l. Operands are packed in 32-bit words, low bits first: element e of
    a or b lies in word ``e // per_word``. They work on ints and on NumPy arrays. ``right`` is the
    type of b, if it is not that of a (``operands``); it has as many bytes.
    """

    m: int
    n: int
    k: int
    operands: DType
    sums: DType
    right: DType | None = None
    per_word: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_word", 4 // self.operands.bytes)

    @property
    def types(self) -> tuple[DType, DType]:
        """The types of a and b."""
        return self.operands, self.right or self.operands

    @property
    def words(self) -> tuple[int, int, int]:
        """32-bit words that one thread holds of a, b and c."""
        per = _WARP * self.per_word
        return self.m * self.k // per, self.k * self.n // per, self.m * self.n // _WARP

    def a(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """(m, k) of an element of a: words take turns in rows eight apart, then in columns."""
        word, part = element // self.per_word, element % self.per_word
        return lane // 4 + word % 2 * 8, (lane % 4 + word // 2 * 4) * self.per_word + part

    def b(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """(k, n) of an element of b."""
        word, part = element // self.per_word, element % self.per_word
        return (lane % 4 + word * 4) * self.per_word + part, lane // 4

    def c(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """(m, n) of an element of c."""
        return lane // 4 + element // 2 * 8, lane % 4 * 2 + element % 2


def ldmatrix_source(lane: Any, word: Any, half: Any, transposed: bool) -> tuple[Any, Any]:
    """Whose row, and which 16-bit element of it, ``ldmatrix`` puts into a half of a lane's word.

    Word w comes from the 8 x 8 matrix w, whose rows are those that lanes 8w to 8w + 7 point to.
    """
    row, column = lane // 4, lane % 4 * 2 + half
    return (8 * word + column, row) if transposed else (8 * word + row, column)
