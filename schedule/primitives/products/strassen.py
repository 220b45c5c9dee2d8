"""Rewriting a matrix product as fewer products of sums of its quadrants: strassen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from ....ir.dtypes import f32
from ....ir.loop.build import (
    add,
    both,
    floordiv,
    floormod,
    lt,
    minimum,
    mul,
    op,
    points,
    select,
    zero_of,
)
from ....ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Const,
    Expr,
    Func,
    Load,
    Range,
    Region,
    Store,
    Var,
)
from ....ir.loop.notes import EXCESS_ERROR
from ....ir.loop.visit import seq, substitute_expr
from ... import bilinear
from ...cursor import BlockRef, block_of, find_block
from ...declare import primitive
from ...errors import Reason, obtain
from ...excess_error import BILLIONTH, rounding_error
from .matmul import Product, axes_at, point_of, product_of
from .rewrite import Lets, Maker, check_replaceable, new_axis, replaced

MOST_LEVELS = 2
ROLES = "mnk"


def plain_product(block: Block) -> Product | None:
    """Return a block as a product of two matrices of f32 in memory; None for any other block."""
    found = product_of(block)
    if found is None or found.roles["b"] or not all(found.roles[r] for r in ROLES):
        return None
    factors = found.a, found.b
    if any(not isinstance(e, Load) or e.dtype != f32 for e in factors) or found.term.dtype != f32:
        return None
    return found


def added_error(levels: int, terms: int) -> float:
    """Estimate the error of a product of ``terms`` terms, relative to its root mean square."""
    return rounding_error(-(-terms >> levels), bilinear.growth(levels)) if levels else 0.0


@primitive
def strassen(
    func: Func,
    block: BlockRef,
    multiples: tuple[int, ...] = (1, 1, 1),
    levels: int = 1,
) -> tuple[Func, tuple[BlockRef, BlockRef, BlockRef, BlockRef]]:
    """Rewrite a matrix product as products of sums of its quadrants, 7 instead of 8 a level.

    ``C = A B``  ->  ``S[e] = sums of A's quadrants; T[e] = sums of B's; M[e] += S[e] T[e]; Y = sums
    of M; C = Y``. Returns the blocks of S, T, Y and the copy to C; the products M keep the name.

    The quadrants are halves of the rows, terms and columns, or quarters with two levels. The axes
    of each role are fused, in order, and the extents of rows, columns and terms are rounded up to
    a multiple that divides into such parts; the operands are padded with 0. Rounding differs from
    that of a plain product, which the note ``excess_error`` of M tells; an infinity or NaN spreads
    to other elements.

    Refused:
        - a block that is not a product of two matrices of f32, or does not start from 0
        - multiples that are not three positive integers, and levels other than 1 and 2
        - a block that shares its loops with other blocks: do this first

    Example:
        sch = product()
        sch.strassen("C", [1, 1, 1], 1)
    """
    asked = f"rewrite block `{block.name}` as products of sums of quadrants"
    path = find_block(func, block, asked)
    node = block_of(path)
    check_replaceable(func, asked, path, _valid_arguments(multiples, levels))
    found = obtain(func, asked, plain_product(node) or _not_a_product(node))
    make = _PartBlocks(Maker(func, asked, node), found, tuple(multiples), levels)
    s, t, y, copy = make.sums("a"), make.sums("b"), make.result(), make.copy()
    new = replaced(func, path, (s, t, make.product(), y, copy))
    return new, (BlockRef(s.name), BlockRef(t.name), BlockRef(y.name), BlockRef(copy.name))


def _valid_arguments(multiples: Sequence[int], levels: int) -> Reason | None:
    if len(multiples) != 3 or any(not 0 < n <= 2**20 for n in multiples):
        return Reason(
            "the multiples are not three positive integers, for rows, columns and terms",
            hint="such as [12, 64, 32]",
        )
    if not 1 <= levels <= MOST_LEVELS:
        return Reason(f"there are no {levels} levels", hint=f"1 to {MOST_LEVELS}")
    return None


def _not_a_product(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` is not a product of two matrices of f32",
        (block,),
        hint="such a product sums a * b, and has rows, columns and terms; batches have none",
    )


@dataclass
class _PartBlocks:
    """Makes the blocks of the rewritten product, and their buffers.

    The products of parts are numbered; their number is the first index. ``parts`` are the sizes of
    a part's rows (m), columns (n) and terms (k).
    """

    make: Maker
    found: Product
    multiples: tuple[int, ...]
    levels: int

    def __post_init__(self) -> None:
        self.number = bilinear.PRODUCTS**self.levels
        self.cut = 2**self.levels
        points = {r: self.found.points(r) for r in ROLES}
        self.parts = {
            r: ceil(-(-points[r] // n) * n / self.cut)
            for r, n in zip(ROLES, self.multiples, strict=True)
        }
        m, n, k = (self.parts[r] for r in ROLES)
        self.made = {
            "a": self.make.buffer("a", (self.number, m, k), f32),
            "b": self.make.buffer("b", (self.number, k, n), f32),
            "product": self.make.buffer("product", (self.number, m, n), f32),
            "result": self.make.buffer("result", (self.cut**2, m, n), f32),
        }

    def _axes(self, roles: str) -> list[BlockAxis]:
        return [new_axis(r, self.parts[r]) for r in roles]

    def sums(self, operand: str) -> Block:
        """Return ``S[:, m, k] = the sums of A's parts``, or those of B: ``T[:, k, n]``."""
        first, load, signs = {
            "a": ("mk", self.found.a, bilinear.LEFT),
            "b": ("kn", self.found.b, bilinear.RIGHT),
        }[operand]
        assert isinstance(load, Load)
        axes = self._axes(first)
        at = {r: a.var for r, a in zip(first, axes, strict=True)}
        values = [
            self._element(load, at, dict(zip(first, place, strict=True)))
            for place in bilinear.quadrants(self.levels)
        ]
        return self._stores(operand, axes, signs, values)

    def _element(self, load: Load, at: Mapping[str, Var], place: Mapping[str, int]) -> Expr:
        """Return an element of the part at ``place``, 0 beyond the operand."""
        by: dict[Var, Expr] = {a.var: Const(0) for a in self.make.block.axes}
        guards = []
        for role, v in at.items():
            start, last = place[role] * self.parts[role], self.found.points(role) - 1
            index = add(v, start)
            if start + self.parts[role] - 1 > last:
                guards.append(lt(index, last + 1))
                index = minimum(index, last)
            by |= axes_at(self.found.roles[role], index)
        value = replace(load, index=tuple(substitute_expr(e, by) for e in load.index))
        inside = both(*guards) if guards else None
        return value if inside is None else select(inside, value, zero_of(f32))

    def _stores(
        self,
        part: str,
        axes: Sequence[BlockAxis],
        signs: bilinear.Signs,
        values: Sequence[Expr],
    ) -> Block:
        """Return a block that writes the sums of ``values`` to the first index of its buffer."""
        buffer, index = self.made[part], tuple(a.var for a in axes)
        lets = Lets(f32)

        def name(value: Expr) -> Expr:
            return value if isinstance(value, Load | Var) else lets.name(value)

        results = bilinear.combined(signs, [name(v) for v in values], f32, name)
        body = seq(*(Store(buffer, (Const(n), *index), e) for n, e in enumerate(results)))
        whole = Range(Const(0), Const(len(results)))
        written = Region(buffer, (whole, *points(index)))
        return self.make.new(part, axes, written, lets.around(body))

    def product(self) -> Block:
        """Return ``M[e, m, n] += S[e, m, k] * T[e, k, n]``."""
        number, (m, n) = new_axis("e", self.number), self._axes("mn")
        k = new_axis("k", self.parts["k"], AxisKind.REDUCE)
        own = Load(self.made["product"], (number.var, m.var, n.var))
        a = Load(self.made["a"], (number.var, m.var, k.var))
        b = Load(self.made["b"], (number.var, k.var, n.var))
        made = self.make.updating((number, m, n, k), own, op("multiply", a, b), (a, b))
        error = added_error(self.levels, self.found.points("k"))
        return EXCESS_ERROR.put(made, ceil(error / BILLIONTH))

    def result(self) -> Block:
        """Return ``Y[:, m, n] = the sums of the products``."""
        axes = self._axes("mn")
        index = tuple(a.var for a in axes)
        values = [Load(self.made["product"], (Const(e), *index)) for e in range(self.number)]
        made = self._stores("result", axes, bilinear.RESULT, values)
        every = Range(Const(0), Const(self.number))
        read = Region(self.made["product"], (every, *points(index)))
        return replace(made, reads=(read,))

    def copy(self) -> Block:
        """Return ``C = Y`` over the block's own spatial axes."""
        return self.make.copying("copy", self.found.store, self.made["result"], self._place)

    def _place(self, by: Mapping[Var, Expr]) -> tuple[Expr, ...]:
        """Return the index of an element of C in Y: by the digits of its part, in order."""
        m, n = (point_of(self.found.roles[r], by) for r in "mn")
        part: Expr = Const(0)
        rows, columns = (floordiv(e, self.parts[r]) for e, r in ((m, "m"), (n, "n")))
        for level in reversed(range(self.levels)):
            y, x = (floormod(floordiv(e, 2**level), 2) for e in (rows, columns))
            part = add(mul(part, 4), add(mul(y, 2), x))
        return part, floormod(m, self.parts["m"]), floormod(n, self.parts["n"])
