"""Rewriting a sum of products as a batched matrix product with padded operands: to_matmul."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ....ir.dtypes import DType
from ....ir.loop.build import both, lt, number_of, op, point, select, zero_of
from ....ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Cast,
    Const,
    Expr,
    Func,
    Load,
    Op,
    Store,
    Var,
)
from ....ir.loop.visit import free_vars, substitute_expr
from ...cursor import BlockRef, block_of, find_block
from ...declare import primitive
from ...errors import Reason, obtain, require
from ...stores import is_zero, single_store, update_of
from .rewrite import Maker, check_replaceable, digits, new_axis, replaced

ROLES = "bmnk"
LAYOUTS = (("mk", "km"), ("nk", "kn"))
MAX_ELEMENTS = 2**48  # of a padded operand: more is a mistake


@dataclass(frozen=True, slots=True)
class Product:
    """The parts of ``C[...] += a * b``: store, factors, and the axes by role."""

    store: Store
    term: Expr
    a: Expr
    b: Expr
    roles: Mapping[str, tuple[BlockAxis, ...]]

    def points(self, role: str) -> int:
        """Return the number of points of a role's axes."""
        return prod(x.extent for x in self.roles[role])


def product_of(block: Block) -> Product | None:
    """Return a block as a sum of products, its axes by role; None for any other block.

    ``a`` and ``b`` are the factors, without conversions to the type of the sum. Spatial axes that
    both of them use are ``b`` (batch); those of ``a`` alone are ``m``, of ``b`` alone ``n``;
    reduction axes are ``k``. Axes of extent 1 have no role. The factors are swapped if the block's
    last axis would be ``m`` otherwise.
    """
    store = single_store(block)
    update = None if store is None else update_of(replace(block, body=store))
    if store is None or update is None or update.op != "add":
        return None
    term = update.term
    match stripped(term):
        case Op(name="multiply", args=(x, y)):
            a, b = stripped(x), stripped(y)
        case _:
            return None
    axes = [a for a in block.axes if a.extent != 1]
    last = next((a.var for a in reversed(axes) if a.kind is AxisKind.SPATIAL), None)
    if last in free_vars(a) and last not in free_vars(b):
        a, b = b, a
    roles: dict[str, list[BlockAxis]] = {r: [] for r in ROLES}
    for axis in axes:
        roles[_role(axis, free_vars(a), free_vars(b))].append(axis)
    return Product(store, term, a, b, {r: tuple(xs) for r, xs in roles.items()})


def _role(axis: BlockAxis, of_a: frozenset[Var], of_b: frozenset[Var]) -> str:
    if axis.kind is AxisKind.REDUCE:
        return "k"
    if axis.var in of_b:
        return "b" if axis.var in of_a else "n"
    return "m"


def stripped(e: Expr) -> Expr:
    """Return an expression without the conversions around it."""
    return stripped(e.value) if isinstance(e, Cast) and not e.bits else e


@primitive
def to_matmul(
    func: Func,
    block: BlockRef,
    multiples: tuple[int, ...] = (1, 1, 1),
    layouts: tuple[str, ...] = ("mk", "nk"),
) -> tuple[Func, tuple[BlockRef, BlockRef, BlockRef]]:
    """Rewrite a sum of products as a batched matrix product over copies of its operands.

    ``C += A * B`` -> ``A_m = A; B_m = B; C_m[b, m, n] += A_m[b, m, k] * B_m[b, n, k]; C = C_m``.
    Returns the blocks of the two copies and of the result.

    The axes of each role are fused, in order, and the extent is rounded up to its multiple; the
    operands are padded with 0. ``layouts`` orders the dimensions after the batch: "mk" or "km",
    "nk" or "kn". The product keeps its name; the others get ``_a``, ``_b`` and ``_out``. A
    convolution becomes an im2col product; if ``A_m`` is computed inside the product's loops, it is
    never materialized as a whole.

    Refused:
        - a block that is not a sum of products of two values, or does not start from 0
        - multiples that are not three positive integers, and other layouts
        - a block that shares its loops with other blocks: do this first

    Example:
        sch = product()
        sch.to_matmul("C", [4, 4, 4])
    """
    asked = f"rewrite block `{block.name}` as a matrix product"
    path = find_block(func, block, asked)
    node = block_of(path)
    check_replaceable(func, asked, path, _valid_arguments(multiples, layouts))
    found = obtain(func, asked, product_of(node) or _not_a_product(node))
    require(func, asked, _moderate_size(node, found, multiples))
    sizes = dict(zip("mnk", multiples, strict=True))
    make = _MatmulBlocks(Maker(func, asked, node), found, sizes)
    left, a = make.operand("a", found.a, layouts[0])
    right, b = make.operand("b", found.b, layouts[1])
    product, c = make.product(a, b, layouts)
    result = make.result(c)
    new = replaced(func, path, (left, right, product, result))
    return new, (BlockRef(left.name), BlockRef(right.name), BlockRef(result.name))


def _not_a_product(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` is not a sum of products of two values",
        (block,),
        hint="a product sums a * b over an axis that both operands use, into a spatial point",
    )


def _valid_arguments(multiples: Sequence[int], layouts: Sequence[str]) -> Reason | None:
    if len(multiples) != 3 or any(not 0 < n <= 2**20 for n in multiples):
        return Reason(
            "the multiples are not three positive integers, for m, n and k",
            hint="such as [16, 8, 16]",
        )
    if len(layouts) != 2 or any(x not in ok for x, ok in zip(layouts, LAYOUTS, strict=True)):
        hint = '("mk" or "km", "nk" or "kn")'
        return Reason(f"unknown layouts {tuple(layouts)!r}", (), hint=hint)
    return None


def _moderate_size(block: Block, found: Product, multiples: Sequence[int]) -> Reason | None:
    points = {r: found.points(r) for r in ROLES}
    if 0 in points.values():
        return Reason(
            f"block `{block.name}` has an axis of extent 0",
            (block,),
            hint="there is nothing to compute",
        )
    m, n, k = (points[r] + c for r, c in zip(ROLES[1:], multiples, strict=True))
    if points["b"] * max(m * n, m * k, n * k) > MAX_ELEMENTS:
        return Reason(
            f"a padded operand would have more than {MAX_ELEMENTS} elements",
            (block,),
            hint="choose smaller multiples",
        )
    return None


@dataclass(frozen=True, slots=True)
class _MatmulBlocks:
    """Makes the blocks of the matrix product, each with the buffer that it writes."""

    make: Maker
    found: Product
    multiples: Mapping[str, int]

    def extent(self, role: str) -> int:
        """Return the number of points of a role, rounded up to its multiple."""
        c = self.multiples.get(role, 1)
        return -(-self.found.points(role) // c) * c

    def buffer(self, part: str, dtype: DType, layout: str) -> Buffer:
        return self.make.buffer(part, [self.extent(r) for r in f"b{layout}"], dtype)

    def operand(self, part: str, value: Expr, layout: str) -> tuple[Block, Buffer]:
        """Return ``A_m[b, m, k] = inside ? a : 0``, the axes of ``a`` computed from b, m and k."""
        buffer = self.buffer(part, value.dtype, layout)
        axes = {r: new_axis(r, self.extent(r)) for r in f"b{layout}"}
        by: dict[Var, Expr] = {a.var: Const(0) for a in self.make.block.axes}
        for role, a in axes.items():
            by |= axes_at(self.found.roles[role], a.var)
        value = substitute_expr(value, by)
        guards = [
            lt(a.var, n) for r, a in axes.items() if (n := self.found.points(r)) < self.extent(r)
        ]
        match value:
            case Op(name="select", args=(cond, x, other)) if is_zero(other):
                inside, value = both(*guards, cond), x
            case _:
                inside = both(*guards)
        index = tuple(a.var for a in axes.values())
        if inside is not None:
            value = select(inside, value, zero_of(buffer.dtype))
        body = Store(buffer, index, value)
        return self.make.new(part, [*axes.values()], point(buffer, index), body), buffer

    def product(self, a: Buffer, b: Buffer, layouts: Sequence[str]) -> tuple[Block, Buffer]:
        """Return ``C_m[b, m, n] += A_m * B_m``, with the conversions of the original."""
        buffer = self.buffer("c", self.found.store.buffer.dtype, "mn")
        axes = {r: new_axis(r, self.extent(r)) for r in "bmn"}
        axes["k"] = new_axis("k", self.extent("k"), AxisKind.REDUCE)
        left, right = (
            Load(x, tuple(axes[r].var for r in f"b{layout}"))
            for x, layout in zip((a, b), layouts, strict=True)
        )
        own = Load(buffer, tuple(axes[r].var for r in "bmn"))
        term = _with_factors(self.found, left, right)
        return self.make.updating([*axes.values()], own, term, (left, right)), buffer

    def result(self, c: Buffer) -> Block:
        """Return ``C = C_m`` over the block's own spatial axes."""
        roles = self.found.roles
        return self.make.copying(
            "out", self.found.store, c, lambda by: [point_of(roles[r], by) for r in ROLES[:3]]
        )


def axes_at(axes: Sequence[BlockAxis], number: Expr) -> dict[Var, Expr]:
    """Return the values of axes at their point ``number``, the last one changing fastest."""
    values = digits(number, [a.extent for a in axes])
    return {a.var: e for a, e in zip(axes, values, strict=True)}


def point_of(axes: Sequence[BlockAxis], by: Mapping[Var, Expr]) -> Expr:
    """Return the number of the point of axes at given values, the inverse of ``axes_at``."""
    return number_of([by[a.var] for a in axes], [a.extent for a in axes])


def _with_factors(found: Product, a: Load, b: Load) -> Expr:
    """Return the term with its factors replaced by ``a`` and ``b``, conversions kept."""
    product = stripped(found.term)
    assert isinstance(product, Op)
    x, y = product.args
    if stripped(x) != found.a:
        x, y = y, x
    return _converted(found.term, op("multiply", _converted(x, a), _converted(y, b)))


def _converted(like: Expr, e: Expr) -> Expr:
    """Return ``e`` under the conversions that are around ``like``."""
    match like:
        case Cast(value=value, bits=False):
            return replace(like, value=_converted(value, e))
        case _:
            return e
