"""Rewriting a sum of products of f32 as one of products of bf16: in_pieces."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ....ir.dtypes import bf16, f32
from ....ir.loop.build import add, as_int, const, floordiv, mul, op, point, select, sub
from ....ir.loop.nodes import AxisKind, Block, Buffer, Cast, Expr, Func, Load, Store
from ....ir.loop.notes import EXCESS_ERROR
from ...cursor import BlockRef, block_of, find_block, nest
from ...declare import primitive
from ...errors import Reason, obtain, require
from ...excess_error import BILLIONTH
from ...stores import with_body
from .matmul import Product, product_of
from .rewrite import Maker, check_replaceable, new_axis, replaced

COUNTS = (2, 3)
"""Pieces of a number: two have 16 bits of its 24, three all of them."""

_BITS = 9  # that a piece leaves of a number, at most: half a unit in the last of its 8 bits


def pieces_error(count: int) -> float:
    """Return most of the error of a sum of products of so many pieces, over its RMS.

    Each operand is off by 2^(-9 count) at most, but for three pieces, which are exact. Products of
    pieces that are left out are no larger: those of the last but one, once or twice.
    """
    dropped = 2.0 ** -(_BITS * count)
    return dropped * math.sqrt(count - 1 + (2 if count * 8 < 24 else 0))


def pairs(count: int) -> int:
    """Return the number of products of pieces of two numbers that are not left out."""
    return count * (count + 1) // 2


def f32_product(block: Block) -> Product | None:
    """Return a block as a sum of products of two arrays of f32; None for any other block."""
    found = product_of(block)
    if found is None or found.term.dtype != f32 or not found.roles["k"]:
        return None
    factors = found.a, found.b
    if any(not isinstance(e, Load) or e.dtype != f32 for e in factors):
        return None
    return found


@primitive
def in_pieces(func: Func, block: BlockRef, count: int) -> tuple[Func, tuple[BlockRef, BlockRef]]:
    """Rewrite a sum of products of f32 as a sum of products of bf16, of which f32 are the sum.

    ``C += A * B``  ->  ``P[0] = bf16(A); P[1] = bf16(A - P[0]); ..; Q likewise of B;
    C += P[i] * Q[j]``, for all i + j < count. Returns the blocks of P and Q; the sum keeps the
    name, and has an axis over the pairs first of its reduction axes. The smallest products are
    added first.

    Each piece has 8 bits, so that two hold a number to 2^-18 and three all of its 24. What that
    adds to rounding, the note ``excess_error`` of the sum tells. Numbers below 2^-100 lose bits,
    since bf16 has no smaller ones; infinities, and numbers that round to them, become NaN.

    Refused:
        - a block that is not a sum of products of two arrays of f32, or does not start from 0
        - a count other than 2 and 3
        - an array that its block does not fill, such as a packed one with padding
        - a block that shares its loops with other blocks: do this first

    Example:
        sch = product()
        sch.in_pieces("C", 2)
    """
    asked = f"rewrite block `{block.name}` as products of pieces"
    path = find_block(func, block, asked)
    node = block_of(path)
    check_replaceable(func, asked, path, _valid_count(count))
    found = obtain(func, asked, f32_product(node) or _not_a_product(node))
    require(func, asked, *(_filled(func, node, e) for e in (found.a, found.b)))
    make = _PieceBlocks(Maker(func, asked, node), found, count)
    a, b = make.pieces("a", found.a), make.pieces("b", found.b)
    product = make.product(a.writes[0].buffer, b.writes[0].buffer)
    return replaced(func, path, (a, b, product)), (BlockRef(a.name), BlockRef(b.name))


def _valid_count(count: int) -> Reason | None:
    if count in COUNTS:
        return None
    return Reason(f"a number has no {count} pieces", hint=f"{' or '.join(map(str, COUNTS))}")


def _filled(func: Func, block: Block, operand: Expr) -> Reason | None:
    """Require that an operand has a value wherever its pieces are made: in the whole array."""
    assert isinstance(operand, Load)
    index = nest(func)
    writers = [index.block(name) for name in index.writers.get(operand.buffer, ())]
    size = math.prod(operand.buffer.shape)
    if not writers or sum(_elements(w, operand.buffer) for w in writers) >= size:
        return None
    return Reason(
        f"block `{writers[0].name}` leaves elements of `{operand.buffer}` unwritten",
        (writers[0], block),
        hint="do this before transform_layout",
    )


def _elements(writer: Block, buffer: Buffer) -> int:
    """Return how many elements of a buffer a block writes, at most."""
    points = math.prod(a.extent for a in writer.axes if a.kind is AxisKind.SPATIAL)
    boxes = [r.ranges for r in writer.writes if r.buffer is buffer]
    sizes = ((as_int(x.extent) or n for x, n in zip(b, buffer.shape, strict=True)) for b in boxes)
    return points * sum(map(math.prod, sizes))


def _not_a_product(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` is not a sum of products of two arrays of f32",
        (block,),
        hint="such a sum adds a[..] * b[..] along one axis or several",
    )


@dataclass(frozen=True, slots=True)
class _PieceBlocks:
    """Makes the blocks of the rewritten sum; the first index of their buffers is the piece."""

    make: Maker
    found: Product
    count: int

    def pieces(self, part: str, source: Expr) -> Block:
        """Return ``P[n, ..] = piece n of A[..]``."""
        assert isinstance(source, Load)
        target = self.make.buffer(part, (self.count, *source.buffer.shape), bf16)
        axes = [new_axis(str(n), extent) for n, extent in enumerate(target.shape)]
        at = tuple(a.var for a in axes)
        value = self._piece(Load(source.buffer, at[1:]), at[0])
        return self.make.new(part, axes, point(target, at), Store(target, at, value))

    def _piece(self, x: Expr, number: Expr) -> Expr:
        found = [Cast(x, bf16)]
        for _ in range(self.count - 1):
            x = op("subtract", x, Cast(found[-1], f32))
            found.append(Cast(x, bf16))
        value: Expr = found[-1]
        for n in reversed(range(self.count - 1)):
            value = select(op("eq", number, const(n)), found[n], value)
        return value

    def product(self, left: Buffer, right: Buffer) -> Block:
        """Return the sum of the products of all pairs of pieces."""
        a, b, block = self.found.a, self.found.b, self.make.block
        assert isinstance(a, Load) and isinstance(b, Load)
        pair = new_axis("p", pairs(self.count), AxisKind.REDUCE)
        i, j = pair_of(sub(pairs(self.count) - 1, pair.var), self.count)
        x, y = Load(left, (i, *a.index)), Load(right, (j, *b.index))
        store = self.found.store
        term = op("multiply", Cast(x, f32), Cast(y, f32))
        body = replace(store, value=op("add", Load(store.buffer, store.index), term))
        old = [replace(x, value=const(0)) for x in block.axes]
        spatial = [x for x in old if x.kind is AxisKind.SPATIAL]
        reduce = [x for x in old if x.kind is AxisKind.REDUCE]
        axes = (*spatial, pair, *reduce)
        made = with_body(self.make.func, self.make.asked, replace(block, axes=axes), body)
        return EXCESS_ERROR.put(made, math.ceil(pieces_error(self.count) / BILLIONTH))


def pair_of(number: Expr, count: int) -> tuple[Expr, Expr]:
    """Return the pieces of pair ``number``: (0, 0), (1, 0), .., (0, 1), (1, 1), ..

    The second one's first pair is at the number of those before it; twice that is beyond the last.
    """
    starts = [sum(count - k for k in range(j)) for j in range(1, count)]
    second: Expr = const(0)
    first = number
    for j, start in enumerate(starts):
        beyond = floordiv(number, start)
        second = add(second, beyond)
        first = sub(first, mul(beyond, count - j))
    return first, second
