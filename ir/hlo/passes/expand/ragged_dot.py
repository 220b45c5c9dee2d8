"""``ragged-dot`` as a loop: groups of consecutive rows, each with a right operand of its own.

Experts of a mixture are such groups: tokens are sorted by expert, and ``sizes`` says how many each
has. A turn of the loop multiplies one tile of rows by the operand of their group, which it reads
where it is, so work and traffic are those of the experts in use. The number of turns follows from
the sizes. Other ragged products are a loop over groups, whose other rows are masked.
"""

from __future__ import annotations

from ....dtypes import pred, s64
from ...nodes import Computation, HloModule, Instruction, Shape
from ...ops.linear import ragged_kind
from ...patterns import build
from ...patterns.match import all_static
from ...rewrite import assemble, make, map_computations, parameter, rebuild
from ..canonical.dot import sum_over

LEAST_TILE, MOST_TILE = 8, 128
"""Rows of a tile. With fewer, a product waits for its weights, and more rows cost nothing."""

Dims = tuple[int, ...]


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
    plan = _plan(sizes, rows.array.dims[0], high)
    blank = build.full(0, i.array.dtype, dims)
    state = build.tuple_of([build.scalar(0, s64), blank, rows, w, *plan])
    out = _looped(i, state, _tile_turn(i, state, high, len(inner)))
    order = list(range(1, len(dims)))
    order.insert(free.index(ragged), 0)
    return build.transpose(out, tuple(order))


def _tile(rows: int, groups: int) -> int:
    """Return the rows of a tile: half of those of an average group, as most end within one."""
    half = max(1, rows // groups // 2)
    return min(rows, max(LEAST_TILE, min(MOST_TILE, 1 << (half - 1).bit_length())))


def _plan(sizes: Instruction, rows: int, high: int) -> list[Instruction]:
    """Return for each turn its group, the place of its tile, and the tile's first and last row.

    A tile lies within the rows. The last value is the number of turns.
    """
    groups = sizes.array.dims[0]
    start, stop = _spans(sizes, rows)
    counts = build.pointwise("subtract", stop, start)
    tiles = _binary("divide", _binary("add", counts, high - 1), high)
    after = _cumulated(tiles)
    turns = rows // high + groups
    turn = build.iota(s64, (turns, groups), 0)
    one = build.iota(s64, (turns, groups), 1)
    done = build.pointwise("compare", _across(after, turns), turn, direction="LE")
    begun = build.convert(done, s64)
    count = _binary("minimum", sum_over(begun, (1,)), groups - 1)
    own = build.pointwise("compare", one, _along(count, groups), direction="EQ")

    def of_group(value: Instruction) -> Instruction:
        zeros = build.full(0, s64, (turns, groups))
        return sum_over(build.pointwise("select", own, _across(value, turns), zeros), (1,))

    before = build.pointwise("subtract", after, tiles)
    number = build.pointwise("subtract", build.iota(s64, (turns,)), of_group(before))
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


def _looped(i: Instruction, state: Instruction, body: Computation) -> Instruction:
    """Return the second element of a state after all turns, which its first one counts."""
    loop = make(
        "while",
        state.shape,
        (state,),
        name=i.name,
        metadata=i.metadata,
        condition=_more(state),
        body=body,
    )
    return build.element(loop, 1)


def _more(state: Instruction) -> Computation:
    given = parameter(0, state.shape, "state")
    elements = len(state.operands)
    test = (build.element(given, 0), build.element(given, elements - 1))
    return assemble("ragged_more", (given,), make("compare", Shape(pred), test, direction="LT"))


def _tile_turn(i: Instruction, state: Instruction, high: int, inner: int) -> Computation:
    """Return the body: multiply a tile, and put those of its rows that are the group's."""
    given = parameter(0, state.shape, "state")
    turn, out, rows, w, *plan = (build.element(given, n) for n in range(len(state.operands)))
    group, place, first, last = (build.reshape(build.rows(p, turn, 1), ()) for p in plan[:-1])
    tile = build.rows(rows, place, high)
    right, attrs = _of_group(i, w, group)
    attrs["lhs_contracting_dims"] = tuple(range(1 + inner, rows.array.rank))
    dims = (high, *out.array.dims[1:])
    product = _dot(i, tile, right, dims, attrs)
    row = build.pointwise("add", build.iota(s64, (high,)), build.broadcast(place, (), (high,)))
    mine = _between(row, first, last)
    kept = build.broadcast(mine, (0,), dims)
    new = build.pointwise("select", kept, product, build.rows(out, place, high))
    following = build.pointwise("add", turn, build.scalar(1, s64))
    root = build.tuple_of([following, build.put_rows(out, new, place), rows, w, *plan])
    return assemble("ragged_turn", (given,), root)


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
    count = build.scalar(sizes.array.dims[0], s64)
    blank = build.full(0, i.array.dtype, i.array.dims)
    state = build.tuple_of([build.scalar(0, s64), blank, x, w, *spans, count])
    given = parameter(0, state.shape, "state")
    turn, out, x, w, *spans_, _ = (build.element(given, n) for n in range(len(state.operands)))
    first, last = (build.reshape(build.rows(s, turn, 1), ()) for s in spans_)

    def of_group(value: Instruction, dim: int) -> Instruction:
        row = build.iota(s64, (value.array.dims[dim],))
        return build.broadcast(_between(row, first, last), (dim,), value.array.dims)

    if kind == "free":
        right, attrs = _of_group(i, w, turn)
        product = _dot(i, x, right, out.array.dims, attrs)
        own = of_group(product, _result_dim(i, ragged))
        made = build.pointwise("select", own, product, out)
    else:
        theirs = i.attrs["rhs_contracting_dims"][i.attrs["lhs_contracting_dims"].index(ragged)]
        left, right = (
            build.pointwise("select", of_group(v, d), v, build.full(0, v.array.dtype, v.array.dims))
            for v, d in ((x, ragged), (w, theirs))
        )
        attrs = {k: v for k, v in i.attrs.items() if _is_plain(k)}
        product = _dot(i, left, right, out.array.dims[1:], attrs)
        one = build.reshape(product, (1, *product.array.dims))
        made = build.put_rows(out, one, turn)
    following = build.pointwise("add", turn, build.scalar(1, s64))
    rest = [build.element(given, n) for n in range(2, len(state.operands))]
    body = assemble("ragged_turn", (given,), build.tuple_of([following, made, *rest]))
    return _looped(i, state, body)


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
