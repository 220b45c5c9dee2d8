"""Lower topk, row by row: find the first few elements by insertion or selection, and sort those.

Short rows are sorted as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DType, pred
from ...ir.hlo.nodes import Instruction, Shape, TupleShape
from ...ir.loop.build import add, cast, compare, const, op, sub
from ...ir.loop.nodes import Buffer, Expr, For, If, Load, Op, Stmt, Store, Var
from ...ir.loop.notes import OPAQUE
from ...ir.loop.visit import lets, seq
from .. import blocks
from ..blocks import variables
from .keys import KeyedSort, key_of, key_type
from .merge_path import Before
from .scalars import refuse, total_order
from .selection import RUN, chunk, first_places
from .sorting import Column, merge_sort, reader, sort_by_key
from .stages import Draft

FEW = 4
"""Elements up to which the first of a row are found by insertion."""

SHORT, SHORTEST = 256, 16
"""Lengths up to which rows are sorted as a whole, of elements of up to 32 bits and of 64 bits."""


def topk(d: Draft, x: Instruction) -> None:
    """Lower HLO ``topk``: the first ``k`` of the sorted last dimension, and their places."""
    (operand,) = x.operands
    extents, dtype = operand.array.dims, operand.array.dtype
    assert isinstance(x.shape, TupleShape)
    values, places = x.shape.elements
    assert isinstance(values, Shape) and isinstance(places, Shape)
    largest, read = _largest(d, x), reader(d, operand)
    name = d.fresh("topk")
    out = d.target((x, 0), name, values.dims, values.dtype)
    where = d.target((x, 1), f"{name}_1", places.dims, places.dtype)

    def before(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        keys = (total_order(a[0]), total_order(b[0])) if dtype.is_float else (a[0], b[0])
        return Op("gt" if largest else "lt", keys, pred)

    columns = [
        Column(dtype, read, out),
        Column(places.dtype, lambda at: cast(at[-1], places.dtype), where),
    ]
    n, count, unsigned = extents[-1], values.dims[-1], key_type(dtype)
    few, run = 0 < count <= n // 2 and not _is_short(n, count, dtype), 1
    most = n > 1 if d.vectors else 0 not in extents
    most = most and count > 0 and not (few and d.vectors)
    if most and unsigned and _sorted(d, name, extents, unsigned, columns, largest):
        d.done((x, 0), out)
        d.done((x, 1), where)
        return
    if few and unsigned and (count > FEW or chunk(n, count) > 1):
        chosen = first_places(
            d, name, extents, count, unsigned, lambda at: key_of(read(at), unsigned, largest)
        )
        columns = [_through(c, chosen) for c in columns]
        extents, run = (*extents[:-1], count), RUN
        name = d.fresh(f"{name}_order")
    if few and run == 1 and count <= FEW:
        _insert(d, name, extents, count, columns, before)
    else:
        merge_sort(d, name, extents, len(extents) - 1, count, columns, before, run)
    d.done((x, 0), out)
    d.done((x, 1), where)


def _is_short(n: int, count: int, dtype: DType) -> bool:
    """True if sorting rows as a whole takes less time than selecting their first elements."""
    return count > FEW and n <= (SHORT if dtype.bits <= 32 else SHORTEST)


def _sorted(
    d: Draft,
    name: str,
    extents: Sequence[int],
    unsigned: DType,
    columns: Sequence[Column],
    largest: bool,
) -> bool:
    """Sort rows as a whole by keys; False, with nothing emitted, if merging is better."""
    read, wanted = columns[0].read, columns[0].out.shape[-1]

    def put(to: tuple[Expr, ...], ranked: Expr, was: tuple[Expr, ...]) -> Stmt:
        return seq(*(blocks.store(c.out, to, c.read(was)) for c in columns))

    def key(at: tuple[Expr, ...]) -> Expr:
        return key_of(read(at), unsigned, not largest)

    dim = len(extents) - 1
    s = KeyedSort(name, tuple(extents), dim, unsigned, key, put, True, wanted)
    return sort_by_key(d, s)


def _through(c: Column, places: Buffer) -> Column:
    """Return a column of the elements at ``places`` of each row."""
    return replace(c, read=lambda at: c.read((*at[:-1], Load(places, tuple(at)))))


def _largest(d: Draft, x: Instruction) -> bool:
    found = x.attrs.get("largest", True)
    if not isinstance(found, bool):
        refuse(x, d.emitter.computation, f"`largest` is {found!r}")
    return found


def _insert(
    d: Draft,
    name: str,
    extents: Sequence[int],
    count: int,
    columns: Sequence[Column],
    before: Before,
) -> None:
    """Write the first ``count`` elements of each row along the last dimension, in order.

    Each element that goes before the last of a sorted list is inserted: from the end, elements that
    come after it move down by one place. The list has a spare place, into which the last one moves.
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
