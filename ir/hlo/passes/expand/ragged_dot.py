"""``ragged-dot`` as a loop: groups of consecutive rows, each with a right operand of its own.

Experts of a mixture are such groups: tokens are sorted by expert, and ``sizes`` says how many each
has. An iteration of the loop multiplies one tile of rows by the operand of their group, which it
reads where it is, so work and traffic are those of the experts in use. The trip count follows from
the sizes. Other ragged products are a loop over groups, whose other rows are masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ....dtypes import s64
from ...nodes import HloModule, Instruction, Shape
from ...ops.linear import ragged_kind
from ...patterns import build
from ...patterns.counted import Values, counted_loop
from ...patterns.match import all_static
from ...rewrite import make, map_computations, rebuild
from ..canonical.dot import sum_over

LEAST_TILE, MOST_TILE = 8, 128
"""Rows of a tile. With fewer, a product waits for its weights, and more rows cost nothing."""

Dims = tuple[int, ...]

Own: TypeAlias = Callable[[Instruction, int], Instruction]
"""``own(value, dim)``: where along a dimension of a value the rows of the iteration's group are."""


def expand_ragged_dot(module: HloModule) -> HloModule:
    """``ragged-dot(x, w, sizes)``  ->  ``while`` over tiles of rows, with a ``dot`` in its body"""
    return map_computations(module, lambda c: rebuild(c, _expand))


def _expand(i: Instruction) -> Instruction | None:
    return expansion(i) if i.opcode == "ragged-dot" and all_static(i) else None


def expansion(i: Instruction) -> Instruction:
    """Return what computes a ``ragged-dot``."""
    x, w, sizes = i.operands
    kind = ragged_kind(i.attrs)
    if kind == "batch":
        return _dot(i, x, w, i.array.dims, {k: v for k, v in i.attrs.items() if _is_plain(k)})
    if not i.array.size or not x.array.size or not sizes.array.size:
        return build.full(0, i.array.dtype, i.array.dims)
    if kind == "free" and not i.attrs.get("lhs_batch_dims"):
        return _by_tiles(i)
    return _by_groups(i, kind)


def _is_plain(name: str) -> bool:
    return name not in ("lhs_ragged_dims", "rhs_group_dims")


def _by_tiles(i: Instruction) -> Instruction:
    """Return a loop over tiles of rows, each of one group."""
    x, w, sizes = i.operands
    (ragged,), summed = i.attrs["lhs_ragged_dims"], i.attrs["lhs_contracting_dims"]
    free = [d for d in range(x.array.rank) if d not in summed]
    inner = [d for d in free if d != ragged]
    rows = build.transpose(x, (ragged, *inner, *summed))
    high = _tile(rows.array.dims[0], sizes.array.dims[0])
    dims = (rows.array.dims[0], *i.array.dims[: free.index(ragged)])
    dims += i.array.dims[free.index(ragged) + 1 :]
    *plan, trips = _plan(sizes, rows.array.dims[0], high)
    blank = build.full(0, i.array.dtype, dims)

    def iteration(number: Instruction, carried: Values, fixed: Values) -> Values:
        return [_tile_iteration(i, number, carried[0], fixed, high, len(inner))]

    (out,) = counted_loop(i, trips, [blank], [rows, w, *plan], iteration)
    order = list(range(1, len(dims)))
    order.insert(free.index(ragged), 0)
    return build.transpose(out, tuple(order))


def _tile(rows: int, groups: int) -> int:
    """Return the rows of a tile: half of those of an average group, as most end within one."""
    half = max(1, rows // groups // 2)
    return min(rows, max(LEAST_TILE, min(MOST_TILE, 1 << (half - 1).bit_length())))


def _plan(sizes: Instruction, rows: int, high: int) -> list[Instruction]:
    """Return each iteration's group, the place of its tile, and the tile's first and last row.

    A tile lies within the rows. The last value is the trip count.
    """
    groups = sizes.array.dims[0]
    start, stop = _spans(sizes, rows)
    counts = build.pointwise("subtract", stop, start)
    tiles = _binary("divide", _binary("add", counts, high - 1), high)
    after = _cumulated(tiles)
    trips = rows // high + groups
    iteration = build.iota(s64, (trips, groups), 0)
    one = build.iota(s64, (trips, groups), 1)
    done = build.pointwise("compare", _across(after, trips), iteration, direction="LE")
    begun = build.convert(done, s64)
    count = _binary("minimum", sum_over(begun, (1,)), groups - 1)
    own = build.pointwise("compare", one, _along(count, groups), direction="EQ")

    def of_group(value: Instruction) -> Instruction:
        zeros = build.full(0, s64, (trips, groups))
        return sum_over(build.pointwise("select", own, _across(value, trips), zeros), (1,))

    before = build.pointwise("subtract", after, tiles)
    number = build.pointwise("subtract", build.iota(s64, (trips,)), of_group(before))
    first = build.pointwise("add", of_group(start), _binary("multiply", number, high))
    last = build.pointwise("minimum", of_group(stop), _binary("add", first, high))
    place = _binary("minimum", first, rows - high)
    total = build.reshape(build.part(after, groups - 1, 1), ())
    return [count, place, first, last, total]


def _spans(sizes: Instruction, rows: int) -> tuple[Instruction, Instruction]:
    """Return where each group begins and ends; what is beyond all rows is cut off."""
    counts = _binary("maximum", build.convert(sizes, s64), 0)
    counts = _binary("minimum", counts, rows)
    ends = _cumulated(counts)
    begins = build.pointwise("subtract", ends, counts)
    return _binary("minimum", begins, rows), _binary("minimum", ends, rows)


def _cumulated(x: Instruction) -> Instruction:
    """Return the sums of a short vector up to each of its elements."""
    count = x.array.dims[0]
    to, own = (build.iota(s64, (count, count), d) for d in (0, 1))
    upto = build.pointwise("compare", own, to, direction="LE")
    zeros = build.full(0, s64, (count, count))
    return sum_over(build.pointwise("select", upto, _across(x, count), zeros), (1,))


def _across(x: Instruction, count: int) -> Instruction:
    """Return a vector as each of ``count`` rows."""
    return build.broadcast(x, (1,), (count, x.array.dims[0]))


def _along(x: Instruction, count: int) -> Instruction:
    """Return a vector as each of ``count`` columns."""
    return build.broadcast(x, (0,), (x.array.dims[0], count))


def _binary(opcode: str, x: Instruction, value: int) -> Instruction:
    return build.pointwise(opcode, x, build.full(value, x.array.dtype, x.array.dims))


def _tile_iteration(
    i: Instruction, number: Instruction, out: Instruction, fixed: Values, high: int, inner: int
) -> Instruction:
    """Multiply a tile, and put those of its rows that are the group's into the result so far."""
    rows, w, *plan = fixed
    group, place, first, last = (build.reshape(build.rows(p, number, 1), ()) for p in plan)
    tile = build.rows(rows, place, high)
    right, attrs = _of_group(i, w, group)
    attrs["lhs_contracting_dims"] = tuple(range(1 + inner, rows.array.rank))
    dims = (high, *out.array.dims[1:])
    product = _dot(i, tile, right, dims, attrs)
    row = build.pointwise("add", build.iota(s64, (high,)), build.broadcast(place, (), (high,)))
    kept = build.broadcast(_between(row, first, last), (0,), dims)
    new = build.pointwise("select", kept, product, build.rows(out, place, high))
    return build.put_rows(out, new, place)


def _of_group(
    i: Instruction, w: Instruction, group: Instruction
) -> tuple[Instruction, dict[str, object]]:
    """Return the right operand of a group, and the attributes of a product with it."""
    (d,) = i.attrs["rhs_group_dims"]
    cut = build.rows(w, group, 1, d)
    right = build.reshape(cut, (*cut.array.dims[:d], *cut.array.dims[d + 1 :]))
    attrs: dict[str, object] = {k: v for k, v in i.attrs.items() if _is_plain(k)}
    for k in ("rhs_batch_dims", "rhs_contracting_dims"):
        if k in attrs:
            attrs[k] = tuple(n - (n > d) for n in i.attrs[k])
    return right, attrs


def _between(row: Instruction, first: Instruction, last: Instruction) -> Instruction:
    """Return which rows of a vector are from the scalar ``first`` to before ``last``."""
    low, high = (build.broadcast(x, (), row.array.dims) for x in (first, last))
    reached = build.pointwise("compare", row, low, direction="GE")
    left = build.pointwise("compare", row, high, direction="LT")
    return build.pointwise("and", reached, left)


def _by_groups(i: Instruction, kind: str) -> Instruction:
    """Return a loop over groups, each of which multiplies all rows and keeps or masks its own."""
    x, w, sizes = i.operands
    (ragged,) = i.attrs["lhs_ragged_dims"]
    spans = _spans(sizes, x.array.dims[ragged])
    blank = build.full(0, i.array.dtype, i.array.dims)
    by = _own_rows if kind == "free" else _own_product

    def iteration(number: Instruction, carried: Values, fixed: Values) -> Values:
        first, last = (build.reshape(build.rows(s, number, 1), ()) for s in fixed[2:])

        def of_group(value: Instruction, dim: int) -> Instruction:
            row = build.iota(s64, (value.array.dims[dim],))
            return build.broadcast(_between(row, first, last), (dim,), value.array.dims)

        return [by(i, number, carried[0], fixed[0], fixed[1], of_group)]

    (out,) = counted_loop(i, sizes.array.dims[0], [blank], [x, w, *spans], iteration)
    return out


def _own_rows(
    i: Instruction, number: Instruction, out: Instruction, x: Instruction, w: Instruction, own: Own
) -> Instruction:
    """Multiply all rows by the operand of a group, and keep the group's."""
    (ragged,) = i.attrs["lhs_ragged_dims"]
    right, attrs = _of_group(i, w, number)
    product = _dot(i, x, right, out.array.dims, attrs)
    return build.pointwise("select", own(product, _result_dim(i, ragged)), product, out)


def _own_product(
    i: Instruction, number: Instruction, out: Instruction, x: Instruction, w: Instruction, own: Own
) -> Instruction:
    """Sum over the rows of a group: one of the result's products."""
    (ragged,) = i.attrs["lhs_ragged_dims"]
    theirs = i.attrs["rhs_contracting_dims"][i.attrs["lhs_contracting_dims"].index(ragged)]
    left, right = (
        build.pointwise("select", own(v, d), v, build.full(0, v.array.dtype, v.array.dims))
        for v, d in ((x, ragged), (w, theirs))
    )
    attrs = {k: v for k, v in i.attrs.items() if _is_plain(k)}
    product = _dot(i, left, right, out.array.dims[1:], attrs)
    return build.put_rows(out, build.reshape(product, (1, *product.array.dims)), number)


def _result_dim(i: Instruction, ragged: int) -> int:
    """Return the dimension of a result that a free dimension of the left operand is."""
    batch = i.attrs.get("lhs_batch_dims", ())
    fixed = (*batch, *i.attrs["lhs_contracting_dims"])
    free = [d for d in range(i.operands[0].array.rank) if d not in fixed]
    return len(batch) + free.index(ragged)


def _dot(
    i: Instruction, x: Instruction, w: Instruction, dims: Dims, attrs: dict[str, object]
) -> Instruction:
    shape = Shape(i.array.dtype, dims)
    return make("dot", shape, (x, w), name=i.name, metadata=i.metadata, **attrs)
