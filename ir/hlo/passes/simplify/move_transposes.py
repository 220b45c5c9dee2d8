"""Sinking of transposes below their users, until they cancel.

A model in NCHW becomes a chain of NHWC convolutions: each canonical convolution ends in a
transpose, which sinks below the element-wise work, pooling and padding that follow, and cancels
with the one before the next convolution.
"""

from __future__ import annotations

import math

from ...nodes import HloModule, Instruction, Shape
from ...ops.registry import definition
from ...patterns import build
from ...patterns.match import all_static, common_factors, inverse, nonunit, segments, splat
from ...rewrite import make, map_computations, rebuild, with_operands
from ..canonical.dot import is_canonical

Order = tuple[int, ...]


def move_transposes(module: HloModule) -> HloModule:
    """``op(transpose(x), transpose(y))``  ->  ``transpose(op(x, y))``"""
    return map_computations(module, lambda c: rebuild(c, _sink))


def _sink(i: Instruction) -> Instruction | None:
    if i.opcode in ("dot", "reshape"):
        past = _past_dot if i.opcode == "dot" else _past_reshape
        return past(i) if all_static(i) else None
    if not any(o.opcode == "transpose" for o in i.operands) or not all_static(i):
        return None
    match i.opcode:
        case "reduce":
            return _past_reduce(i)
        case "reduce-window" | "pad":
            return _past_padded(i)
        case "slice" | "reverse" | "concatenate":
            return _past_movement(i)
        case "gather":
            return _past_gather(i)
        case opcode if definition(opcode).pointwise:
            return _past_pointwise(i)
        case _:
            return None


def _common_order(operands: tuple[Instruction, ...]) -> Order | None:
    """Return the permutation that all transposed operands share; None if there are several, or if
    one of the others is neither a splat nor repeats a smaller array, which is transposed then."""
    views = [o for o in operands if o.opcode == "transpose"]
    orders = {o.attrs["dimensions"] for o in views}
    whole = any(not _repeats(o.operands[0]) for o in views)  # else each would move the other's
    for o in operands:
        known = o.opcode in ("transpose", "broadcast") or splat(o) is not None
        if not known and not (whole and _repeats(o)):
            return None
    return orders.pop() if len(orders) == 1 else None


def _repeats(x: Instruction) -> bool:
    """Return true for reshape(broadcast(y)) that repeats elements along dimensions of ``y``."""
    if x.opcode != "reshape" or x.operands[0].opcode != "broadcast":
        return False
    spread = x.operands[0]
    runs = segments(spread.array.dims, x.array.dims)
    smaller = 2 * spread.operands[0].array.size <= x.array.size
    return smaller and runs is not None and all(len(after) == 1 for _, after in runs)


def _transposed(x: Instruction, order: Order) -> Instruction:
    """Return ``x`` with its dimensions in this order; of what repeats an array, that array's."""
    if not _repeats(x):
        return build.transpose(x, order)
    spread = x.operands[0]
    runs = segments(spread.array.dims, x.array.dims) or []
    parts = {after[0]: before for before, after in runs}
    units = [d for d, n in enumerate(spread.array.dims) if n == 1]
    apart = build.transpose(spread, [*units, *(d for k in order for d in parts.get(k, ()))])
    return build.reshape(apart, [x.array.dims[k] for k in order])


def _past_pointwise(i: Instruction) -> Instruction | None:
    order = _common_order(i.operands)
    if order is None or any(o.array.dims != i.array.dims for o in i.operands):
        return None
    return _untransposed(i, order, tuple(_transposed(o, inverse(order)) for o in i.operands), {})


def _untransposed(
    i: Instruction, order: Order, operands: tuple[Instruction, ...], changes: dict[str, object]
) -> Instruction:
    """Return ``i`` on untransposed operands, with its result transposed by ``order``."""
    dims = tuple(i.array.dims[d] for d in inverse(order))
    shape, attrs = Shape(i.array.dtype, dims), {**i.attrs, **changes}
    new = make(i.opcode, shape, operands, name=i.name, metadata=i.metadata, **attrs)
    return build.transpose(new, order)


def _past_reduce(i: Instruction) -> Instruction | None:
    """reduce(transpose(x))  ->  transpose(reduce(x)), which transposes fewer elements"""
    if len(i.operands) != 2:
        return None
    view, init = i.operands
    order: Order = view.attrs["dimensions"]
    axes = tuple(sorted(order[d] for d in i.attrs["dimensions"]))
    kept = [d for d in range(len(order)) if d not in axes]
    after = tuple(kept.index(order[d]) for d in range(len(order)) if order[d] not in axes)
    x = view.operands[0]
    shape = Shape(i.array.dtype, tuple(x.array.dims[d] for d in kept))
    attrs = {**i.attrs, "dimensions": axes}
    new = make("reduce", shape, (x, init), name=i.name, metadata=i.metadata, **attrs)
    return build.transpose(new, after)


def _past_dot(i: Instruction) -> Instruction | None:
    """dot(reshape(transpose(x)), y)  ->  reshape(transpose(reshape(dot(x, y))))

    Where the transpose permutes parts of the rows of a canonical dot, whose results are no longer
    than its rows: grouped queries, whose weights are made in the order of their scores.
    """
    rows, right = i.operands
    if rows.opcode != "reshape" or rows.operands[0].opcode != "transpose":
        return None
    if not is_canonical(i) or i.array.dims[-1] > rows.array.dims[-1]:
        return None
    moved = rows.operands[0]
    order: Order = moved.attrs["dimensions"]
    dims, lead = moved.array.dims, rows.array.dims[:-2]
    first = next((n for n in range(len(dims)) if math.prod(dims[:n]) == math.prod(lead)), None)
    first = first if lead else 0
    if first is None or dims[-1] != rows.array.dims[-1] or order[-1] != len(dims) - 1:
        return None
    units = [d for d in order[:first] if moved.operands[0].array.dims[d] != 1]
    if units != sorted(units) or any(d >= first for d in order[:first]):
        return None
    x = moved.operands[0]
    product = with_operands(i, (build.reshape(x, rows.array.dims), right))
    apart = build.reshape(product, (*x.array.dims[:-1], i.array.dims[-1]))
    return build.reshape(build.transpose(apart, order), i.array.dims)


def _past_padded(i: Instruction) -> Instruction | None:
    """Permute the window or padding, which has one entry per dimension, like the dimensions."""
    if len(i.operands) != 2:
        return None
    view, value = i.operands
    order: Order = view.attrs["dimensions"]
    name = "window" if i.opcode == "reduce-window" else "padding"
    moved = tuple(i.attrs[name][d] for d in inverse(order))
    return _untransposed(i, order, (view.operands[0], value), {name: moved})


def _past_movement(i: Instruction) -> Instruction | None:
    order = _common_order(i.operands)
    if order is None or any(o.opcode != "transpose" for o in i.operands):
        return None
    operands = tuple(o.operands[0] for o in i.operands)
    if i.opcode == "slice":
        parts = tuple(i.attrs["slice"][d] for d in inverse(order))
        return _untransposed(i, order, operands, {"slice": parts})
    moved = tuple(sorted(order[d] for d in i.attrs["dimensions"]))
    return _untransposed(i, order, operands, {"dimensions": moved})


def _past_gather(i: Instruction) -> Instruction | None:
    """Pick elements along a dimension before the transposition that moves it, so by whole rows."""
    view, places = i.operands
    collapsed = i.attrs["collapsed_slice_dims"]
    if view.opcode != "transpose" or len(collapsed) != 1 or i.array.rank != view.array.rank:
        return None
    if i.attrs["start_index_map"] != collapsed or i.attrs.get("operand_batching_dims"):
        return None
    if i.attrs["offset_dims"] != tuple(d for d in range(i.array.rank) if d not in collapsed):
        return None
    order: Order = view.attrs["dimensions"]
    axis = order[collapsed[0]]
    changes: dict[str, object] = {
        "collapsed_slice_dims": (axis,),
        "start_index_map": (axis,),
        "offset_dims": tuple(d for d in range(i.array.rank) if d != axis),
        "slice_sizes": tuple(i.attrs["slice_sizes"][d] for d in inverse(order)),
    }
    return _untransposed(i, order, (view.operands[0], places), changes)


def _past_reshape(i: Instruction) -> Instruction | None:
    match i.operands[0].opcode:
        case "transpose":
            return _past_split(i)
        case "broadcast":
            return _past_repeat(i)
        case _:
            return None


def _past_split(i: Instruction) -> Instruction | None:
    """reshape(transpose(x))  ->  transpose(reshape(x)), where dimensions split and none merge"""
    view = i.operands[0]
    factors = common_factors(view.array.dims, i.array.dims)
    if factors is None or any(len(each) > 1 for each in factors.joined):
        return None
    if all(len(each) < 2 for each in factors.split):
        return None
    x, order = view.operands[0], view.attrs["dimensions"]
    target = [f for each in factors.joined for f in each]
    source = [f for d in inverse(order) for f in factors.split[d]]
    units = [d for d, n in enumerate(i.array.dims) if n == 1]
    long = [d for d, n in enumerate(i.array.dims) if n != 1]
    ends = [*units, *(long[target.index(f)] for f in source)]
    return build.transpose(build.reshape(x, [i.array.dims[d] for d in ends]), inverse(tuple(ends)))


def _past_repeat(i: Instruction) -> Instruction | None:
    """reshape(broadcast(transpose(x)))  ->  transpose(reshape(broadcast(x)))

    Where each dimension of the result is one of x, whose elements or rows are repeated: pixels
    that become squares of equal ones, before their channels move.
    """
    spread = i.operands[0]
    if spread.opcode != "broadcast":
        return None
    x = spread.operands[0]
    view = x.operands[0] if x.opcode == "reshape" else x
    if view.opcode != "transpose" or nonunit(view.array.dims) != nonunit(x.array.dims):
        return None
    runs = segments(spread.array.dims, i.array.dims)
    if runs is None or any(len(after) > 1 for _, after in runs):
        return None
    y, order = view.operands[0], view.attrs["dimensions"]
    long = [d for d, n in enumerate(x.array.dims) if n != 1]
    source = [d for d in order if y.array.dims[d] != 1]  # of each of these, in y
    place = {spread.attrs["dimensions"][d]: source[n] for n, d in enumerate(long)}
    groups = [
        ([place[d] for d in before if d in place], before, after[0]) for before, after in runs
    ]
    if any(len(mine) > 1 for mine, _, _ in groups):
        return None
    groups.sort(key=lambda group: group[0])
    at = [d for _, before, _ in groups for d in before]
    repeated = build.broadcast(
        build.reshape(y, nonunit(y.array.dims)),
        tuple(at.index(d) for d in sorted(place, key=place.__getitem__)),
        tuple(spread.array.dims[d] for d in at),
    )
    ends = [d for d, n in enumerate(i.array.dims) if n == 1] + [after for _, _, after in groups]
    merged = build.reshape(repeated, [i.array.dims[d] for d in ends])
    return build.transpose(merged, inverse(tuple(ends))) if len(ends) == i.array.rank else None
