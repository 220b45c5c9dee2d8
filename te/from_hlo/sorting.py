"""Sort, row by row: by integer keys if the comparator is equivalent to some, else by merging.

The merge sort is stable and bottom-up, with fixed trip counts. Runs of width 1, 2, 4, ... are
merged between the two halves of a scratch row. Each merge keeps its two heads in registers and
moves one element per step, so the result is a permutation of the row for any comparator, consistent
or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.dtypes import DType, pred
from ...ir.dtypes import index as index_type
from ...ir.hlo.meaning.sort import sort_key
from ...ir.hlo.nodes import Computation, Instruction, Shape, TupleShape
from ...ir.hlo.rewrite import post_order
from ...ir.loop.build import add, cast, compare, const, floormod, minimum, op, select, sub
from ...ir.loop.nodes import Buffer, Expr, For, If, Load, Stmt, Store, Var
from ...ir.loop.notes import OPAQUE
from ...ir.loop.visit import lets, seq
from .. import blocks
from ..blocks import variables
from .keys import KeyedSort, element_of, key_of, key_type, place_type, value_key
from .merge_path import Before
from .network import LONGEST, network_sort, network_type
from .radix import SHORTEST, radix_sort
from .scalars import apply
from .stages import Draft
from .tiles import Records, sort_tiles

ALONE = 256
"""Elements of a single row up to which a network is as fast, although other lanes are idle."""


@dataclass(frozen=True, slots=True)
class Column:
    """One of the arrays that are sorted together: how to read it, and where its result goes."""

    dtype: DType
    read: Callable[[tuple[Expr, ...]], Expr]
    out: Buffer


def sort(d: Draft, x: Instruction) -> None:
    """Lower HLO ``sort``: every operand is permuted alike; equal elements keep their order."""
    name = d.fresh("sort")
    shapes = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
    columns = []
    for n, (operand, shape) in enumerate(zip(x.operands, shapes, strict=True)):
        assert isinstance(shape, Shape)
        out = d.target((x, n), f"{name}_{n}" if n else name, shape.dims, shape.dtype)
        columns.append(Column(shape.dtype, reader(d, operand), out))

    def before(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        pairs = [e for pair in zip(a, b, strict=True) for e in pair]
        return apply(x.attrs["to_apply"], pairs)[0]

    (dim,) = x.attrs["dimensions"]
    extents = x.operands[0].array.dims
    if _sorted_by_key(d, x, name, columns):
        pass
    elif d.vectors or 0 in extents:
        merge_sort(d, name, extents, dim, extents[dim], columns, before)
    else:
        records = _compared(x.attrs["to_apply"], columns, dim, extents[dim])
        sort_tiles(d, name, extents, dim, records, extents[dim])
    for n, column in enumerate(columns):
        d.done((x, n), column.out)


def _sorted_by_key(d: Draft, x: Instruction, name: str, columns: Sequence[Column]) -> bool:
    """Sort by keys if the comparator compares one integer, or one float in total order.

    On a GPU, other comparisons of floats have keys, too: they leave the place of NaN open, which is
    sorted as the largest. Returns False, with nothing emitted, if there are no keys.
    """
    (dim,) = x.attrs["dimensions"]
    extents, comparator = x.operands[0].array.dims, x.attrs["to_apply"]
    found = sort_key(comparator)
    if found is None or extents[dim] < 2:
        return False
    number, of, descending = found
    dtype, total = of.root.array.dtype, comparator.root.attrs.get("type") == "TOTALORDER"
    unsigned = key_type(dtype)
    partial = dtype.is_float and not total
    if unsigned is None or not (dtype.is_int or dtype.is_float) or (partial and d.vectors):
        return False
    alone = len(columns) == 1 and of.root.opcode == "parameter" and not partial

    def key(at: tuple[Expr, ...]) -> Expr:
        element = columns[number].read(at)
        (value,) = apply(of, [element] * len(of.parameters))
        return (value_key if partial else key_of)(value, unsigned, not descending)

    def put(to: tuple[Expr, ...], ranked: Expr, was: tuple[Expr, ...]) -> Stmt:
        if alone:
            return Store(columns[0].out, to, element_of(ranked, dtype, not descending))
        return seq(*(blocks.store(c.out, to, c.read(was)) for c in columns))

    s = KeyedSort(name, extents, dim, unsigned, key, put, not alone, extents[dim])
    return sort_by_key(d, s)


def sort_by_key(d: Draft, s: KeyedSort) -> bool:
    """Sort rows by their keys with the algorithm for their length; False if merging is better."""
    n = s.length
    rows = math.prod(s.extents) // n
    together = d.vectors and (rows > 1 or n <= ALONE)
    if not d.vectors and 0 not in s.extents:
        sort_tiles(d, s.name, s.extents, s.dim, _records(s), s.wanted)
    elif together and n <= LONGEST and network_type(s.dtype, s.moves) is not None:
        network_sort(d, s)
    elif n >= SHORTEST:
        radix_sort(d, s)
    else:
        return False
    return True


def _records(s: KeyedSort) -> Records:
    """Return the keys as records, with their places if more than the keys has to move."""
    places = (place_type(s.length),) if s.moves else ()

    def fetch(at: tuple[Expr, ...]) -> Sequence[Expr]:
        return [s.key(at), *(cast(at[s.dim], t) for t in places)]

    def put_all(to: tuple[Expr, ...], values: Sequence[Expr]) -> Stmt:
        was = cast(values[1], index_type) if s.moves else to[s.dim]
        return s.put(to, values[0], (*to[: s.dim], was, *to[s.dim + 1 :]))

    def before(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        return compare("lt", a[0], b[0])

    return Records((s.dtype, *places), 1, True, fetch, before, put_all)


def _compared(comparator: Computation, columns: Sequence[Column], dim: int, n: int) -> Records:
    """Return the values that a comparator reads as records, with places if others have to move."""
    numbers = {
        i.attrs["number"] // 2 for i in post_order([comparator.root]) if i.opcode == "parameter"
    }
    own = sorted(numbers or {0})
    places = (place_type(n),) if len(own) < len(columns) else ()

    def fetch(at: tuple[Expr, ...]) -> Sequence[Expr]:
        return [*(columns[i].read(at) for i in own), *(cast(at[dim], t) for t in places)]

    def put(to: tuple[Expr, ...], values: Sequence[Expr]) -> Stmt:
        was = (*to[:dim], cast(values[-1], index_type), *to[dim + 1 :]) if places else to
        found = dict(zip(own, values, strict=False))
        pairs = ((c, found.get(i)) for i, c in enumerate(columns))
        return seq(*(blocks.store(c.out, to, c.read(was) if v is None else v) for c, v in pairs))

    def before(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        every: list[tuple[Expr, Expr]] = [(const(0, c.dtype),) * 2 for c in columns]
        for i, left, right in zip(own, a, b, strict=True):
            every[i] = left, right
        return apply(comparator, [x for pair in every for x in pair])[0]

    dtypes = (*(columns[i].dtype for i in own), *places)
    return Records(dtypes, len(own), False, fetch, before, put)


def reader(d: Draft, operand: Instruction) -> Callable[[tuple[Expr, ...]], Expr]:
    """Return the elements of an operand, by index."""
    return lambda at: d.emitter.element(operand, at)


def merge_sort(
    d: Draft,
    name: str,
    extents: Sequence[int],
    dim: int,
    count: int,
    columns: Sequence[Column],
    before: Before,
    run: int = 1,
) -> None:
    """Sort rows along ``dim`` and write the first ``count`` elements of each.

    Every ``run`` elements, a power of two, are in order already.
    """
    n = extents[dim]
    axes = d.emitter.spatial([e for i, e in enumerate(extents) if i != dim])
    row = variables(axes)
    runs = [d.alloc(f"{name}_run{i}", (2, n), c.dtype) for i, c in enumerate(columns)]
    heads = d.register(f"{name}_heads", (2,), index_type)
    levels = max(-(-n // run) - 1, 0).bit_length()

    def whole(p: Expr) -> tuple[Expr, ...]:
        return (*row[:dim], p, *row[dim:])

    (fetch, level, step, write) = d.emitter.reducing((n, levels, n, count), "s")
    fetched = [
        blocks.store(r, (const(0), fetch.var), c.read(whole(fetch.var)))
        for r, c in zip(runs, columns, strict=True)
    ]
    merge = _merge_step(level.var, run, step.var, n, runs, heads, before)
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
    level: Var, run: int, p: Var, n: int, runs: Sequence[Buffer], heads: Buffer, before: Before
) -> Stmt:
    """Move one element to place ``p`` of the next level: the lesser of the two heads.

    The pair of runs around ``p`` is ``[base, middle)`` and ``[middle, end)``; ``left`` and
    ``right`` are the heads. Of equal elements the left one goes first, which makes the sort stable.
    """
    width, base, middle, end = (Var(v) for v in ("width", "base", "middle", "end"))
    left, right = Var("left"), Var("right")
    bounds: list[tuple[Var, Expr]] = [
        (width, op("shift-left", const(run), level)),
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
