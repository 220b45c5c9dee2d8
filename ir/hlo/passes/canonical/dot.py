"""Dots in canonical form: ``[m, k] x [k, n]`` or ``[b, m, k] x [b, k, n]``.

Dimensions are transposed into place and merged. The product is computed as ``x y`` or ``(y' x')'``,
whichever moves fewer bytes, taking into account transposes before and after that cancel. Dots that
contract nothing become multiplications, batched inner products of vectors row reductions, and
products by one number sums: all fuse better that way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....dtypes import f32, s32
from ...meaning.values import simple_op
from ...nodes import Computation, HloModule, Instruction, Shape
from ...ops.registry import definition
from ...patterns import build
from ...patterns.match import all_static, inverse, is_pointwise, moves
from ...rewrite import assemble, make, map_computations, parameter, rebuild, users
from .attention import attention_orders
from .shared import share_repeated

Dims = tuple[int, ...]


def canonical_dot(module: HloModule) -> HloModule:
    """Any ``dot``  ->  ``reshape(transpose(dot(reshape(transpose(x)), reshape(transpose(y)))))``"""
    return map_computations(module, _canonical)


def expand_dots(module: HloModule) -> HloModule:
    """A ``dot`` that contracts nothing  ->  ``multiply(broadcast(x), broadcast(y))``"""
    return map_computations(module, lambda c: rebuild(c, _expand))


def _expand(i: Instruction) -> Instruction | None:
    if i.opcode != "dot" or not all_static(i):
        return None
    p = _places(i)
    return _outer_product(i, p) if _extent(i.operands[0], p.contracted[0]) == 1 else None


def _canonical(computation: Computation) -> Computation:
    if not any(i.opcode == "dot" for i in computation.instructions):
        return computation
    followers = users(computation)
    orders = attention_orders(computation)
    written = iter(computation.instructions)  # in step with `rebuild`

    def rule(i: Instruction) -> Instruction | None:
        old = next(written)
        if i.opcode != "dot" or not all_static(i):
            return None
        if (sums := _by_one_number(i)) is not None:
            return sums
        swap = orders.get(old)
        if (shared := share_repeated(i)) is not None:
            dot = shared.dot
            if not is_canonical(dot) or swap:
                dot = _rewrite(dot, None, swap)
            return build.reshape(build.transpose(dot, shared.order), i.array.dims)
        if is_canonical(i) and not swap:
            return None
        return _rewrite(i, _following(old, followers), swap)

    return rebuild(computation, rule)


def _by_one_number(i: Instruction) -> Instruction | None:
    """``dot(x, broadcast(c))``  ->  ``broadcast(sum(x * c))``, with sums of 32 bits or more"""
    p, kind = _places(i), i.array.dtype
    if kind.kind in ("complex", "pred") or 0 in i.operands[0].array.dims:
        return None
    for k, w in enumerate(i.operands):
        x, own = i.operands[1 - k], 1 - k
        if w.opcode != "broadcast" or w.operands[0].array.rank or x.array.dtype.kind != kind.kind:
            continue
        wide = kind if kind.bits >= 32 else f32 if kind.is_float else s32
        number = build.broadcast(build.convert(w.operands[0], wide), (), x.array.dims)
        parts = build.convert(x, wide), number
        terms = make("multiply", number.shape, parts, name=i.name, metadata=i.metadata)
        sums = build.convert(sum_over(terms, p.contracted[own]), kind)
        first = len(p.batch[0]) + (len(p.free[0]) if own else 0)
        at = {d: n for n, d in enumerate(p.batch[own])}
        at |= {d: first + n for n, d in enumerate(p.free[own])}
        return build.broadcast(sums, tuple(at[d] for d in sorted(at)), i.array.dims)
    return None


def is_canonical(i: Instruction) -> bool:
    """True for a dot in the form that ``canonical_dot`` gives it."""
    if i.opcode != "dot":
        return False
    p = _places(i)
    lhs, rhs, rank = i.operands[0].array, i.operands[1].array, len(p.batch[0])
    if rank > 1 or lhs.rank != rank + 2 or rhs.rank != rank + 2:
        return False
    first = tuple(range(rank))
    placed = p.batch == (first, first) and p.contracted == ((rank + 1,), (rank,))
    inner = rank == 1 and lhs.dims[1] == 1 and rhs.dims[2] == 1
    return placed and lhs.dims[-1] != 1 and not inner and (rank == 0 or lhs.dims[0] != 1)


@dataclass(frozen=True, slots=True)
class _Places:
    """Batch, contracted and free dimensions of the left and the right operand."""

    batch: tuple[Dims, Dims]
    contracted: tuple[Dims, Dims]
    free: tuple[Dims, Dims]


def _places(i: Instruction) -> _Places:
    batch = (i.attrs.get("lhs_batch_dims", ()), i.attrs.get("rhs_batch_dims", ()))
    contracted = (
        i.attrs.get("lhs_contracting_dims", ()),
        i.attrs.get("rhs_contracting_dims", ()),
    )
    left, right = (
        tuple(d for d in range(o.array.rank) if d not in b and d not in c)
        for o, b, c in zip(i.operands, batch, contracted, strict=True)
    )
    return _Places(batch, contracted, (left, right))


def _following(
    i: Instruction, followers: Mapping[Instruction, Sequence[Instruction]]
) -> Dims | None:
    """Return the permutation of the transpose that is the only use of a value, or None.

    Element-wise work on the value and on broadcasts, such as a bias, may come in between.
    """
    while len(followers[i]) == 1:
        (after,) = followers[i]
        if after.opcode == "transpose":
            order: Dims = after.attrs["dimensions"]
            return order
        others = [o for o in after.operands if o is not i]
        if not is_pointwise(after) or any(o.opcode != "broadcast" for o in others):
            return None
        i = after
    return None


def _rewrite(i: Instruction, following: Dims | None, swap: bool | None) -> Instruction:
    """Return a dot in canonical form; ``swap`` is the order of its operands, None for the best."""
    p = _places(i)
    if _extent(i.operands[0], p.contracted[0]) == 1:
        return _outer_product(i, p)
    if p.batch[0] and all(_extent(o, f) == 1 for o, f in zip(i.operands, p.free, strict=True)):
        return _inner_products(i, p)
    if swap is not None:
        return _product(i, p, swap=swap)
    straight, swapped = _cost(i, p, False, following), _cost(i, p, True, following)
    return _product(i, p, swap=swapped < straight)


def _extent(x: Instruction, dims: Dims) -> int:
    return math.prod(x.array.dims[d] for d in dims)


def _cost(i: Instruction, p: _Places, swap: bool, following: Dims | None) -> tuple[int, int]:
    """Return the bytes that transposes move if the product is computed in this order.

    The second number is how many of them leave their rows: of two orders that move as much, the one
    that keeps rows together is read faster, and what makes the rows may do it in that order.
    """
    first, second = (1, 0) if swap else (0, 1)
    total = scattered = 0
    for side, order in (
        (first, (p.batch[first], p.free[first], p.contracted[first])),
        (second, (p.batch[second], p.contracted[second], p.free[second])),
    ):
        x = i.operands[side]
        flat = sum(order, ())
        if x.opcode == "transpose":
            flat = tuple(x.attrs["dimensions"][d] for d in flat)
            x = x.operands[0]
        if _moves(flat, x.array.dims) and not _is_constant(x):
            total += x.array.bytes
            scattered += x.array.bytes * (flat[-1] != x.array.rank - 1)
    back = _back(p, swap)
    if following is not None:
        back = tuple(back[d] for d in following)
    made = [i.array.dims[d] for d in inverse(_back(p, swap))]
    if _moves(back, tuple(made)):
        total += i.array.bytes
        scattered += i.array.bytes * (back[-1] != i.array.rank - 1)
    return total, scattered


def _back(p: _Places, swap: bool) -> Dims:
    """Return the permutation from (batch, m, n), as computed, to the dot's dimensions."""
    b, left, right = len(p.batch[0]), len(p.free[0]), len(p.free[1])
    if not swap:
        return tuple(range(b + left + right))
    lefts, rights = range(b + right, b + right + left), range(b, b + right)
    return (*range(b), *lefts, *rights)


def _moves(order: Dims, dims: Dims) -> bool:
    kept = [d for d in order if dims[d] != 1]
    return kept != sorted(kept)


def _is_constant(x: Instruction, depth: int = 8) -> bool:
    """True if ``x`` is made of constants in a few steps, so that it can have any order."""
    if x.opcode == "constant":
        return True
    if not depth or not x.operands or not (moves(x) or is_pointwise(x)):
        return False
    return all(_is_constant(o, depth - 1) for o in x.operands)


def _product(i: Instruction, p: _Places, *, swap: bool) -> Instruction:
    first, second = (1, 0) if swap else (0, 1)
    x, y = i.operands[first], i.operands[second]
    batch, k = _extent(x, p.batch[first]), _extent(x, p.contracted[first])
    m, n = _extent(x, p.free[first]), _extent(y, p.free[second])
    lead = (batch,) if batch != 1 else ()
    left = build.transpose(x, (*p.batch[first], *p.free[first], *p.contracted[first]))
    right = _merged(y, (p.batch[second], p.contracted[second], p.free[second]))
    rank = len(lead)
    attrs = {k: v for k, v in i.attrs.items() if not k.endswith("_dims")}
    if swap and "operand_precision" in attrs:
        del attrs["operand_precision"]
    if lead:
        attrs |= {"lhs_batch_dims": (0,)}
    attrs |= {"lhs_contracting_dims": (rank + 1,)}
    if lead:
        attrs |= {"rhs_batch_dims": (0,)}
    attrs |= {"rhs_contracting_dims": (rank,)}
    operands = (build.reshape(left, (*lead, m, k)), build.reshape(right, (*lead, k, n)))
    shape = Shape(i.array.dtype, (*lead, m, n))
    dot = make("dot", shape, operands, name=i.name, metadata=i.metadata, **attrs)
    made = tuple(i.array.dims[d] for d in inverse(_back(p, swap)))
    return build.transpose(build.reshape(dot, made), _back(p, swap))


def _merged(x: Instruction, parts: tuple[Dims, ...]) -> Instruction:
    """Return ``x`` with dimensions in the order of ``parts``, those of a part merged into one.

    Neighbors that stay neighbors are merged first: what is transposed then is a view of a buffer,
    which can be read in place.
    """
    parts = tuple(part for part in parts if part)
    source, order = x, tuple(range(x.array.rank))
    if definition(x.opcode).permutes:
        source, order = x.operands[0], x.attrs["dimensions"]
    dims = source.array.dims
    found = [[order[d] for d in part if x.array.dims[d] != 1] for part in parts]
    if any(part != list(range(part[0], part[0] + len(part))) for part in found if part):
        ordered = build.transpose(x, sum(parts, ()))
        return build.reshape(ordered, tuple(_extent(x, part) for part in parts))
    places = sorted(range(len(parts)), key=lambda n: found[n] or [-1])
    merged = build.reshape(source, tuple(math.prod(dims[d] for d in found[n]) for n in places))
    return build.transpose(merged, tuple(places.index(n) for n in range(len(parts))))


def _outer_product(i: Instruction, p: _Places) -> Instruction:
    """dot that contracts nothing  ->  multiply(broadcast(x), broadcast(y))"""
    b, left = len(p.batch[0]), len(p.free[0])
    sides = []
    for side, offset in ((0, b), (1, b + left)):
        x, free = i.operands[side], p.free[side]
        ordered = build.transpose(x, (*p.batch[side], *free, *p.contracted[side]))
        small = build.reshape(ordered, ordered.array.dims[: b + len(free)])
        mapped = (*range(b), *range(offset, offset + len(free)))
        sides.append(build.broadcast(build.convert(small, i.array.dtype), mapped, i.array.dims))
    return build.pointwise("multiply", *sides)


def _inner_products(i: Instruction, p: _Places) -> Instruction:
    """batched inner products  ->  reduce(multiply(x, y))"""
    sides = []
    for side in (0, 1):
        x = build.transpose(i.operands[side], (*p.batch[side], *p.free[side], *p.contracted[side]))
        batch = _extent(x, tuple(range(len(p.batch[side]))))
        rows = build.reshape(x, (batch, _extent(i.operands[side], p.contracted[side])))
        sides.append(build.convert(rows, i.array.dtype))
    products = build.pointwise("multiply", *sides)
    total = sum_over(products, (1,))
    return build.reshape(total, i.array.dims)


def sum_over(x: Instruction, axes: Dims) -> Instruction:
    """Return a ``reduce`` of ``x`` by addition over ``axes``, in its element type."""
    return _over(x, axes, "sum", "add", 0)


def is_sum_over(x: Instruction, axes: Dims) -> bool:
    """True for a sum of an array over ``axes``, from 0 or any other number on."""
    if x.opcode != "reduce" or len(x.operands) != 2 or tuple(x.attrs["dimensions"]) != axes:
        return False
    return simple_op(x.attrs["to_apply"]) == "add"


def largest_over(x: Instruction, axes: Dims) -> Instruction:
    """Return a ``reduce`` of floats ``x`` by ``maximum`` over ``axes``."""
    return _over(x, axes, "largest", "maximum", -math.inf)


def _over(x: Instruction, axes: Dims, name: str, opcode: str, start: float) -> Instruction:
    dtype = x.array.dtype
    a, b = (parameter(n, Shape(dtype), p) for n, p in enumerate(("a", "b")))
    body = assemble(f"{name}_{dtype}", (a, b), make(opcode, Shape(dtype), (a, b)))
    dims = tuple(d for k, d in enumerate(x.array.dims) if k not in axes)
    operands = (x, build.scalar(start, dtype))
    return make("reduce", Shape(dtype, dims), operands, dimensions=axes, to_apply=body)
