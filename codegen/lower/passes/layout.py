"""The offset of an element in its buffer: row-major, then alignment, swizzle and whole vectors."""

from __future__ import annotations

from ....ir.loop.affine import Linear, linear, to_expr
from ....ir.loop.build import add, as_int, floordiv, floormod, mul, op
from ....ir.loop.nodes import CHUNK, Buffer, Const, Expr, Scope

WHOLE = 16
"""Elements of a vector, of which the rows of a register tile are multiples (short ones are powers
of two): a register holds lanes of one row only, whether or not all of them are on."""


def strides(b: Buffer) -> tuple[int, ...]:
    """Return the distance between neighbors in each dimension, in elements."""
    found: list[int] = []
    dense = 1
    for d in reversed(range(len(b.shape))):
        stride = b.stride(d, dense)
        if b.scope is Scope.REGISTER and d == len(b.shape) - 2:
            stride += -stride % min(WHOLE, 1 << (stride - 1).bit_length())
        found.append(stride)
        dense = stride * b.shape[d]
    return tuple(reversed(found))


def elements(b: Buffer) -> int:
    """Return the elements of memory that a buffer takes, at least 1."""
    return max(1, b.shape[0] * strides(b)[0]) if b.shape else 1


def offset(b: Buffer, index: tuple[Expr, ...]) -> Expr:
    """Return the position of an element, as a sum with one term per variable."""
    index = _swizzled(b, index)
    total: Expr | int = 0
    for i, stride in zip(index, strides(b), strict=True):
        total = add(total, mul(i, stride))
    form: Linear = linear(total) if not isinstance(total, int) else Linear({}, total)
    return to_expr(form)


def is_swizzled(b: Buffer) -> bool:
    """True if a buffer asks for a swizzle, and its rows have chunks enough."""
    if not b.swizzle or len(b.shape) < 2 or CHUNK % b.dtype.bytes:
        return False
    wide = b.shape[-1] * b.dtype.bytes
    return wide % (CHUNK * b.swizzle) == 0


def _swizzled(b: Buffer, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
    if not is_swizzled(b):
        return index
    row, column = index[-2], index[-1]
    each = CHUNK // b.dtype.bytes
    turn = floormod(floordiv(row, 8 // b.swizzle), b.swizzle)
    place = floordiv(column, each)
    m, n = as_int(place), as_int(turn)
    if n == 0:
        return index
    chunk = op("xor", place, turn) if m is None or n is None else Const(m ^ n)
    return (*index[:-1], add(mul(chunk, each), floormod(column, each)))
