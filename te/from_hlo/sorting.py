"""Sort and topk, row by row: a stable bottom-up merge sort with fixed trip counts, or, where only
the first few of a row are asked for, one pass that inserts into a short sorted list.

Runs of width 1, 2, 4, ... are merged between the two halves of a scratch row. Each merge keeps its
two heads in memory and moves one element per step, so the result is a permutation of the row for
any comparator, consistent or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.dtypes import DType, pred
from ...ir.dtypes import index as index_type
from ...ir.hlo.nodes import Instruction, Shape, TupleShape
from ...ir.loop.build import add, cast, compare, const, floormod, minimum, op, select, sub
from ...ir.loop.nodes import Buffer, Expr, For, If, Load, Op, Stmt, Store, Var
from ...ir.loop.notes import OPAQUE
from ...ir.loop.visit import seq
from .. import blocks
from ..blocks import lets, variables
from .scalars import apply, refuse, total_order
from .stages import Draft


@dataclass(frozen=True, slots=True)
class _Column:
    """One of the arrays that are sorted together: where it comes from and goes to."""

    dtype: DType
    read: Callable[[tuple[Expr, ...]], Expr]
    out: Buffer


Before = Callable[[Sequence[Expr], Sequence[Expr]], Expr]

FEW = 64
"""So many of a row are inserted one by one: in the worst case as dear as merging the whole row."""


def sort(d: Draft, x: Instruction) -> None:
    """HLO ``sort``: every operand is permuted alike; equal elements keep their order."""
    name = d.fresh("sort")
    shapes = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
    columns = []
    for n, (operand, shape) in enumerate(zip(x.operands, shapes, strict=True)):
        assert isinstance(shape, Shape)
        out = d.target((x, n), f"{name}_{n}" if n else name, shape.dims, shape.dtype)
        columns.append(_Column(shape.dtype, _reader(d, operand), out))

    def before(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        pairs = [e for pair in zip(a, b, strict=True) for e in pair]
        return apply(x.attrs["to_apply"], pairs)[0]

    (dim,) = x.attrs["dimensions"]
    extents = x.operands[0].array.dims
    _merge_sort(d, name, extents, dim, extents[dim], columns, before)
    for n, column in enumerate(columns):
        d.done((x, n), column.out)


def topk(d: Draft, x: Instruction) -> None:
    """The first ``k`` of the sorted last dimension, and where they stood."""
    (operand,) = x.operands
    extents, dtype = operand.array.dims, operand.array.dtype
    assert isinstance(x.shape, TupleShape)
    values, places = x.shape.elements
    assert isinstance(values, Shape) and isinstance(places, Shape)
    direction = "gt" if _largest(d, x) else "lt"
    name = d.fresh("topk")
    out = d.target((x, 0), name, values.dims, values.dtype)
    where = d.target((x, 1), f"{name}_1", places.dims, places.dtype)

    def before(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        keys = (total_order(a[0]), total_order(b[0])) if dtype.is_float else (a[0], b[0])
        return Op(direction, keys, pred)

    columns = [
        _Column(dtype, _reader(d, operand), out),
        _Column(places.dtype, lambda at: cast(at[-1], places.dtype), where),
    ]
    count = values.dims[-1]
    if 0 < count <= min(FEW, extents[-1] // 2):
        _insert(d, name, extents, count, columns, before)
    else:
        _merge_sort(d, name, extents, len(extents) - 1, count, columns, before)
    d.done((x, 0), out)
    d.done((x, 1), where)


def _largest(d: Draft, x: Instruction) -> bool:
    found = x.attrs.get("largest", True)
    if not isinstance(found, bool):
        refuse(x, d.emitter.computation, f"`largest` is {found!r}")
    return found


def _reader(d: Draft, operand: Instruction) -> Callable[[tuple[Expr, ...]], Expr]:
    return lambda at: d.emitter.element(operand, at)


def _insert(
    d: Draft,
    name: str,
    extents: Sequence[int],
    count: int,
    columns: Sequence[_Column],
    before: Before,
) -> None:
    """Write the first ``count`` elements of each row along the last dimension, in order.

    A sorted list of that length takes each element that goes before its last; from the end on,
    what the element goes before moves down by one, into a spare place at first.
    """
    axes = d.emitter.spatial(extents[:-1])
    row = variables(axes)
    kept = [d.alloc(f"{name}_kept{i}", (count + 1,), c.dtype) for i, c in enumerate(columns)]
    (clear, step, back, write) = d.emitter.reducing((count + 1, extents[-1], count, count), "s")
    new = [Var(f"new{i}", c.dtype) for i, c in enumerate(columns)]

    def first(place: Expr) -> Expr:
        """True if the new element goes before the one at ``place``, or none is there yet."""
        held = [Load(k, (place,)) for k in kept]
        return op("or", compare("ge", place, step.var), before(new, held))

    place = Var("place")
    moved = [Store(k, (add(place, 1),), Load(k, (place,))) for k in kept]
    put = [Store(k, (place,), x) for k, x in zip(kept, new, strict=True)]
    shift = lets([(place, sub(count - 1, back.var))], If(first(place), seq(*moved, *put)))
    element = [(x, c.read((*row, step.var))) for x, c in zip(new, columns, strict=True)]
    taken = If(first(const(count - 1)), For(back.var, const(count), shift))
    cleared = [Store(k, (clear.var,), const(0, k.dtype)) for k in kept]
    written = [
        Store(c.out, (*row, write.var), Load(k, (write.var,)))
        for k, c in zip(kept, columns, strict=True)
    ]
    body = seq(
        For(clear.var, const(count + 1), seq(*cleared)),
        For(step.var, const(extents[-1]), lets(element, taken)),
        For(write.var, const(count), seq(*written)),
    )
    d.body.append(blocks.nest(name, axes, body, notes=OPAQUE.alone(1)))


def _merge_sort(
    d: Draft,
    name: str,
    extents: Sequence[int],
    dim: int,
    count: int,
    columns: Sequence[_Column],
    before: Before,
) -> None:
    """Sort rows along ``dim`` and write the first ``count`` elements of each."""
    n = extents[dim]
    axes = d.emitter.spatial([e for i, e in enumerate(extents) if i != dim])
    row = variables(axes)
    runs = [d.alloc(f"{name}_run{i}", (2, n), c.dtype) for i, c in enumerate(columns)]
    heads = d.alloc(f"{name}_heads", (2,), index_type)
    levels = max(n - 1, 0).bit_length()

    def whole(p: Expr) -> tuple[Expr, ...]:
        return (*row[:dim], p, *row[dim:])

    (fetch, level, step, write) = d.emitter.reducing((n, levels, n, count), "s")
    fetched = [
        blocks.store(r, (const(0), fetch.var), c.read(whole(fetch.var)))
        for r, c in zip(runs, columns, strict=True)
    ]
    merge = _merge_step(level.var, step.var, n, runs, heads, before)
    last = const(levels % 2)
    written = [
        Store(c.out, whole(write.var), Load(r, (last, write.var)))
        for r, c in zip(runs, columns, strict=True)
    ]
    body = seq(
        For(fetch.var, const(n), seq(*fetched)),
        For(level.var, const(levels), For(step.var, const(n), merge)),
        For(write.var, const(count), seq(*written)),
    )
    d.body.append(blocks.nest(name, axes, body, notes=OPAQUE.alone(1)))


def _merge_step(
    level: Var, p: Var, n: int, runs: Sequence[Buffer], heads: Buffer, before: Before
) -> Stmt:
    """Move one element to place ``p`` of the next level: the lesser of the two heads.

    The pair of runs around ``p`` is ``[base, middle)`` and ``[middle, end)``; ``left`` and
    ``right`` are the heads. The right one goes first only where it must.
    """
    width, base, middle, end = (Var(v) for v in ("width", "base", "middle", "end"))
    left, right = Var("left"), Var("right")
    bounds: list[tuple[Var, Expr]] = [
        (width, op("shift-left", const(1), level)),
        (base, op("and", p, op("negate", op("multiply", width, const(2))))),
        (middle, minimum(add(base, width), n)),
        (end, minimum(add(base, op("multiply", width, const(2))), n)),
    ]
    reset = If(
        compare("eq", p, base),
        seq(Store(heads, (const(0),), base), Store(heads, (const(1),), middle)),
    )
    source = floormod(level, 2)
    names: list[tuple[Var, Expr]] = [
        (left, Load(heads, (const(0),))),
        (right, Load(heads, (const(1),))),
    ]
    a, b = [Var(f"a{i}", r.dtype) for i, r in enumerate(runs)], []
    for i, r in enumerate(runs):
        b.append(Var(f"b{i}", r.dtype))
        names.append((a[i], Load(r, (source, minimum(left, n - 1)))))
        names.append((b[i], Load(r, (source, minimum(right, n - 1)))))
    swapped = op("and", compare("lt", right, end), before(b, a))
    take = Var("take", pred)
    names.append((take, op("or", compare("ge", left, middle), swapped)))
    moved = cast(take, index_type)
    writes = [
        *(
            Store(r, (sub(1, source), p), select(take, y, x))
            for r, x, y in zip(runs, a, b, strict=True)
        ),
        Store(heads, (const(0),), sub(add(left, 1), moved)),
        Store(heads, (const(1),), add(right, moved)),
    ]
    return lets(bounds, seq(reset, lets(names, seq(*writes))))
