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
    point,
    points,
    select,
    var,
)
from ....ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Const,
    Expr,
    Func,
    Let,
    Load,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.notes import EXCESS_ERROR
from ....ir.loop.visit import seq, substitute_expr
from ... import bilinear
from ...cursor import BlockRef, block_of, edit, find_block, fresh_name
from ...declare import primitive
from ...domains import regenerate
from ...errors import Reason, require
from ...excess_error import BILLIONTH, rounding_error
from ...legality import computes_once, not_opaque, sole_writer
from ..inline import with_body
from ..matmul import Product, alone, begins_with_zero, digits, number_of, product_of, top

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
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(node),
        sole_writer(func, node),
        _valid_arguments(multiples, levels),
        begins_with_zero(node),
        alone(path),
    )
    found = plain_product(node)
    require(func, asked, _not_a_product(node) if found is None else None)
    assert found is not None
    make = _PartBlocks(func, asked, node, found, tuple(multiples), levels)
    blocks = (make.sums("a"), make.sums("b"), make.product(), make.result(), make.copy())
    new = edit(func, [(top(path), lambda _: seq(*(regenerate(b, {}) for b in blocks)))])
    made = [b.writes[0].buffer for b in blocks[:-1]]
    new = replace(new, allocs=(*func.allocs, *made))
    names = [BlockRef(b.name) for b in blocks if b.name != node.name]
    return new, (names[0], names[1], names[2], names[3])


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
    """Builds the blocks of the rewritten product, and their buffers.

    The products of parts are numbered; their number is the first index. ``parts`` are the sizes of
    a part's rows (m), columns (n) and terms (k).
    """

    func: Func
    asked: str
    block: Block
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
            "a": self._buffer("a", (self.number, m, k)),
            "b": self._buffer("b", (self.number, k, n)),
            "product": self._buffer("product", (self.number, m, n)),
            "result": self._buffer("result", (self.cut**2, m, n)),
        }

    def _buffer(self, part: str, shape: tuple[int, ...]) -> Buffer:
        return Buffer(f"{self.block.name}_{part}", shape, f32)

    def _axes(self, roles: str, terms: AxisKind = AxisKind.SPATIAL) -> tuple[BlockAxis, ...]:
        kinds = [terms if r == "k" else AxisKind.SPATIAL for r in roles]
        pairs = zip(roles, kinds, strict=True)
        return tuple(BlockAxis(var(f"v{r}"), self.parts[r], kind, Const(0)) for r, kind in pairs)

    def _block(self, part: str, axes: Sequence[BlockAxis], write: Region, body: Stmt) -> Block:
        name = fresh_name(self.func, f"{self.block.name}_{part}")
        return with_body(
            self.func, self.asked, Block(name, tuple(axes), (), (write,), Seq(())), body
        )

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
        by: dict[Var, Expr] = {a.var: Const(0) for a in self.block.axes}
        guards = []
        for role, v in at.items():
            start, last = place[role] * self.parts[role], self.found.points(role) - 1
            index = add(v, start)
            if start + self.parts[role] - 1 > last:
                guards.append(lt(index, last + 1))
                index = minimum(index, last)
            by |= digits(self.found.roles[role], index)
        value = replace(load, index=tuple(substitute_expr(e, by) for e in load.index))
        inside = both(*guards) if guards else None
        return value if inside is None else select(inside, value, Const(0.0, f32))

    def _stores(
        self,
        part: str,
        axes: Sequence[BlockAxis],
        signs: bilinear.Signs,
        values: Sequence[Expr],
    ) -> Block:
        """Return a block that writes the sums of ``values`` to the first index of its buffer."""
        buffer, index = self.made[part], tuple(a.var for a in axes)
        named: list[tuple[Var, Expr]] = []

        def name(value: Expr) -> Expr:
            if isinstance(value, Load | Var):
                return value
            named.append((var("t", f32), value))
            return named[-1][0]

        results = bilinear.combined(signs, [name(v) for v in values], f32, name)
        body = seq(*(Store(buffer, (Const(n), *index), e) for n, e in enumerate(results)))
        for v, value in reversed(named):
            body = Let(v, value, body)
        whole = Range(Const(0), Const(len(results)))
        return self._block(part, axes, Region(buffer, (whole, *points(index))), body)

    def product(self) -> Block:
        """Return ``M[e, m, n] += S[e, m, k] * T[e, k, n]``."""
        number = BlockAxis(var("ve"), self.number, AxisKind.SPATIAL, Const(0))
        m, n, k = self._axes("mnk", AxisKind.REDUCE)
        own = Load(self.made["product"], (number.var, m.var, n.var))
        a = Load(self.made["a"], (number.var, m.var, k.var))
        b = Load(self.made["b"], (number.var, k.var, n.var))
        made = replace(
            self.block,
            axes=(number, m, n, k),
            reads=tuple(point(x.buffer, x.index) for x in (own, a, b)),
            writes=(point(own.buffer, own.index),),
            body=Store(own.buffer, own.index, op("add", own, op("multiply", a, b))),
            init=Store(own.buffer, own.index, Const(0.0, f32)),
        )
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
        old = [a for a in self.block.axes if a.kind is AxisKind.SPATIAL]
        axes = tuple(replace(a, var=var(a.var.name), value=Const(0)) for a in old)
        by: dict[Var, Expr] = {a.var: Const(0) for a in self.block.axes}
        by |= {a.var: x.var for a, x in zip(old, axes, strict=True)}
        store = self.found.store
        index = tuple(substitute_expr(e, by) for e in store.index)
        value = Load(self.made["result"], self._place(by))
        return self._block(
            "copy", axes, point(store.buffer, index), replace(store, index=index, value=value)
        )

    def _place(self, by: Mapping[Var, Expr]) -> tuple[Expr, ...]:
        """Return the index of an element of C in Y: by the digits of its part, in order."""
        m, n = (number_of(self.found.roles[r], by) for r in "mn")
        part: Expr = Const(0)
        rows, columns = (floordiv(e, self.parts[r]) for e, r in ((m, "m"), (n, "n")))
        for level in reversed(range(self.levels)):
            y, x = (floormod(floordiv(e, 2**level), 2) for e in (rows, columns))
            part = add(mul(part, 4), add(mul(y, 2), x))
        return part, floormod(m, self.parts["m"]), floormod(n, self.parts["n"])
