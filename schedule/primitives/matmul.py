"""Rewriting a sum of products as a batched matrix product with padded operands: to_matmul."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...ir.dtypes import DType
from ...ir.loop.build import add, both, floordiv, floormod, lt, mul, op, point, select, var
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Load,
    Op,
    Seq,
    Store,
    Var,
)
from ...ir.loop.visit import free_vars, seq, substitute_expr
from ..cursor import BlockRef, Path, block_of, blocks_under, edit, find_block, fresh_name, loops_of
from ..declare import primitive
from ..domains import regenerate
from ..errors import Reason, require
from ..guards import lasting_guards
from ..legality import computes_once, not_opaque, plain_loops, sole_writer, update_of
from .inline import store_of, with_body

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
    store = store_of(block)
    update = None if store is None else update_of(replace(block, body=store))
    if store is None or update is None or update[1] != "add":
        return None
    term = update[2]
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
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(node),
        sole_writer(func, node),
        _valid_arguments(multiples, layouts),
        begins_with_zero(node),
        alone(path),
    )
    found = product_of(node)
    require(func, asked, _not_a_product(node) if found is None else None)
    assert found is not None
    require(func, asked, _moderate_size(node, found, multiples))
    make = _MatmulBlocks(func, asked, node, found, dict(zip("mnk", multiples, strict=True)))
    a = make.buffer("a", found.a.dtype, layouts[0])
    b = make.buffer("b", found.b.dtype, layouts[1])
    c = make.buffer("c", found.store.buffer.dtype, "mn")
    left, right = make.operand(a, found.a, layouts[0]), make.operand(b, found.b, layouts[1])
    result = make.result(c)
    blocks = (left, right, make.product(a, b, c, layouts), result)
    new = edit(func, [(top(path), lambda _: seq(*(regenerate(x, {}) for x in blocks)))])
    new = replace(new, allocs=(*func.allocs, a, b, c))
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


def begins_with_zero(block: Block) -> Reason | None:
    """Require that the block's reduction starts from 0."""
    init = block.init
    if isinstance(init, Store) and is_zero(init.value):
        return None
    return Reason(
        f"block `{block.name}` does not start from 0",
        (block,),
        hint="only a sum that begins with 0 can include padding",
    )


def is_zero(e: Expr) -> bool:
    """True if an expression is the literal 0, and not -0.0."""
    return isinstance(e, Const) and e.value == 0 and not str(e.value).startswith("-")


def top(path: Path) -> Path:
    """Return the path to the outermost loop around a block, or to the block if there is none."""
    return path[: 1 + next(n for n, s in enumerate(path) if isinstance(s, For | Block))]


def alone(path: Path) -> Reason | None:
    """Require that the block is under serial loops of its own that cover its whole domain."""
    block, loops = block_of(path), loops_of(path)
    shared = [p for p in blocks_under(top(path)) if p[-1] is not block]
    if shared:
        other = block_of(shared[0])
        return Reason(
            f"block `{other.name}` is under the same loops",
            (loops[0], other, block),
            hint="do this before compute_at",
        )
    if lasting_guards(path) != ():
        return Reason(
            f"block `{block.name}` is guarded",
            (block,),
            hint="do this before a split whose factors do not divide the extent",
        )
    return plain_loops(loops)


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
    """Builds the blocks of the matrix product."""

    func: Func
    asked: str
    block: Block
    found: Product
    multiples: Mapping[str, int]

    def extent(self, role: str) -> int:
        c = self.multiples.get(role, 1)
        return -(-self.found.points(role) // c) * c

    def buffer(self, part: str, dtype: DType, layout: str) -> Buffer:
        shape = tuple(self.extent(r) for r in f"b{layout}")
        return Buffer(f"{self.block.name}_{part}", shape, dtype)

    def axes(self, roles: str) -> tuple[BlockAxis, ...]:
        kinds = [AxisKind.REDUCE if r == "k" else AxisKind.SPATIAL for r in roles]
        return tuple(
            BlockAxis(var(f"v{r}"), self.extent(r), kind, Const(0))
            for r, kind in zip(roles, kinds, strict=True)
        )

    def operand(self, buffer: Buffer, value: Expr, layout: str) -> Block:
        """Return ``A_m[b, m, k] = inside ? a : 0``, the axes of ``a`` computed from b, m and k."""
        axes = tuple(replace(a, kind=AxisKind.SPATIAL) for a in self.axes(f"b{layout}"))
        at = {a.var.name[1:]: a.var for a in axes}
        by: dict[Var, Expr] = {a.var: Const(0) for a in self.block.axes}
        for role, v in at.items():
            by |= digits(self.found.roles[role], v)
        value = substitute_expr(value, by)
        zero = Const(0.0 if buffer.dtype.is_float else 0, buffer.dtype)
        guards = [lt(v, n) for r, v in at.items() if (n := self.found.points(r)) < self.extent(r)]
        match value:
            case Op(name="select", args=(cond, x, other)) if is_zero(other):
                inside, value = both(*guards, cond), x
            case _:
                inside = both(*guards)
        index = tuple(a.var for a in axes)
        if inside is not None:
            value = select(inside, value, zero)
        name = fresh_name(self.func, buffer.name)
        empty = Block(name, axes, (), (point(buffer, index),), Seq(()))
        return with_body(self.func, self.asked, empty, Store(buffer, index, value))

    def product(self, a: Buffer, b: Buffer, c: Buffer, layouts: Sequence[str]) -> Block:
        """Return ``C_m[b, m, n] += A_m * B_m``, with the conversions of the original."""
        axes = self.axes("bmnk")
        at = {x.var.name[1:]: x.var for x in axes}
        left, right = (
            Load(x, tuple(at[r] for r in f"b{layout}"))
            for x, layout in zip((a, b), layouts, strict=True)
        )
        own = tuple(at[r] for r in "bmn")
        term = _with_factors(self.found, left, right)
        value = op("add", Load(c, own), term)
        init = self.block.init
        assert isinstance(init, Store)
        return replace(
            self.block,
            axes=axes,
            reads=(point(c, own), point(a, left.index), point(b, right.index)),
            writes=(point(c, own),),
            body=Store(c, own, value),
            init=Store(c, own, init.value),
        )

    def result(self, c: Buffer) -> Block:
        """Return ``C = C_m`` over the block's own spatial axes."""
        old = [a for a in self.block.axes if a.kind is AxisKind.SPATIAL]
        axes = tuple(replace(a, var=var(a.var.name), value=Const(0)) for a in old)
        by: dict[Var, Expr] = {a.var: Const(0) for a in self.block.axes}
        by |= {a.var: x.var for a, x in zip(old, axes, strict=True)}
        at = tuple(number_of(self.found.roles[r], by) for r in ROLES[:3])
        store = self.found.store
        index = tuple(substitute_expr(e, by) for e in store.index)
        name = fresh_name(self.func, f"{self.block.name}_out")
        empty = Block(name, axes, (), (point(store.buffer, index),), Seq(()))
        return with_body(
            self.func, self.asked, empty, replace(store, index=index, value=Load(c, at))
        )


def digits(axes: Sequence[BlockAxis], v: Expr) -> dict[Var, Expr]:
    """Return the axes as the digits of ``v``, the last one changing fastest."""
    found: dict[Var, Expr] = {}
    step = 1
    for n, a in reversed([*enumerate(axes)]):
        e = floordiv(v, step)
        found[a.var] = e if n == 0 else floormod(e, a.extent)
        step *= a.extent
    return found


def number_of(axes: Sequence[BlockAxis], by: Mapping[Var, Expr]) -> Expr:
    """Return the number whose digits the axes are, the inverse of ``digits``."""
    e: Expr = Const(0)
    for a in axes:
        e = add(mul(e, a.extent), by[a.var])
    return e


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
