"""Simplification of data movement: reshapes, transposes, broadcasts, slices, pads and the like.

Rules are a table from opcode to a function ``instruction -> simpler instruction or None``. After
the pass, a broadcast's operand has no dimensions of size 1, an ``iota`` has one dimension, a
transpose moves something, and no reduction is over dimensions of size 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays import row_major
from ....dtypes import from_numpy, to_numpy
from ...meaning.values import simple_op
from ...nodes import HloModule, Instruction, PadDim, SliceDim
from ...patterns import build
from ...patterns.match import Factors, all_static, common_factors, inverse, is_splat, splat
from ...rewrite import make, map_computations, rebuild, with_attrs, with_operands

Rule = Callable[[Instruction], Instruction | None]


def simplify_shapes(module: HloModule) -> HloModule:
    """Merge, cancel and drop data movement: ``reshape(reshape(x))``  ->  ``reshape(x)``."""
    return map_computations(module, lambda c: rebuild(c, simplify))


def simplify(i: Instruction) -> Instruction | None:
    """Return a simpler form of one instruction, None if there is none."""
    rule = RULES.get(i.opcode)
    if rule is None or not all_static(i):
        return None
    new = rule(i)
    return None if new is None or new is i else new


def _reshape(i: Instruction) -> Instruction | None:
    x = i.operands[0]
    if x.array.dims == i.array.dims:
        return x
    if x.opcode in ("reshape", "constant", "broadcast"):
        new = build.reshape(x, i.array.dims)
        return None if new.opcode == "reshape" and new.operands[0] is x else new
    moved = _with_fewer_parts(x) if x.opcode == "transpose" else None
    return None if moved is None else build.reshape(moved, i.array.dims)


def _transpose(i: Instruction) -> Instruction | None:
    x, order = i.operands[0], i.attrs["dimensions"]
    new = _through_units(x, order) or _through_parts(x, order) or build.transpose(x, order)
    same = new.opcode == "transpose" and new.operands[0] is x
    return None if same else new


def _through_units(x: Instruction, order: tuple[int, ...]) -> Instruction | None:
    """transpose(reshape(transpose(y)))  ->  reshape(transpose(y)), for a reshape by sizes of 1"""
    if x.opcode != "reshape" or x.operands[0].opcode != "transpose":
        return None
    inner = x.operands[0]
    y = inner.operands[0]
    kept = [d for d in inner.attrs["dimensions"] if y.array.dims[d] != 1]
    inside = [d for d, n in enumerate(x.array.dims) if n != 1]
    if [y.array.dims[d] for d in kept] != [x.array.dims[d] for d in inside]:
        return None
    source = dict(zip(inside, kept, strict=True))
    units = [d for d, n in enumerate(y.array.dims) if n == 1]
    moved = build.transpose(y, (*units, *(source[d] for d in order if d in source)))
    return build.reshape(moved, tuple(x.array.dims[d] for d in order))


def _through_parts(x: Instruction, order: tuple[int, ...]) -> Instruction | None:
    """transpose(reshape(transpose(y)))  ->  transpose(reshape(y)), where no dimensions merge"""
    if x.opcode != "reshape" or x.operands[0].opcode != "transpose":
        return None
    factors = common_factors(x.operands[0].array.dims, x.array.dims)
    if factors is None or any(len(each) > 1 for each in factors.joined):
        return None
    return _composed(x, order, factors)


def _with_fewer_parts(t: Instruction) -> Instruction | None:
    """reshape(transpose(reshape(transpose(y))))  ->  reshape(transpose(reshape(y)))

    The same without the inner transpose, where a dimension of y was split and its parts stay
    neighbors: they move as one. ``t`` is the outer transpose; what is returned has its elements.
    """
    x = t.operands[0]
    if x.opcode != "reshape":
        return None
    factors = common_factors(x.operands[0].array.dims, x.array.dims)
    return None if factors is None else _composed(x, t.attrs["dimensions"], factors, join=True)


def _composed(
    x: Instruction, order: tuple[int, ...], factors: Factors, *, join: bool = False
) -> Instruction | None:
    """Return ``transpose(x)`` of a reshape ``x`` as one transpose of what is before the reshape.

    ``factors`` are those of the reshape. With ``join``, the ones that stay neighbors are one. None
    if that brings nothing: no transpose came before, and there is nothing to join.
    """
    inner = x.operands[0]
    moved = inner.opcode == "transpose"
    y = inner.operands[0] if moved else inner
    before = inner.attrs["dimensions"] if moved else tuple(range(y.array.rank))
    source = [factors.split[p] for p in inverse(before)]
    target = [f for d in order for f in factors.joined[d]]
    runs = [
        run for each in source for run in (_runs(each, target) if join else [[f] for f in each])
    ]
    if not moved and len(runs) == sum(map(len, source)):
        return None
    after = sorted(range(len(runs)), key=lambda r: target.index(runs[r][0]))
    parts = build.reshape(y, [math.prod(factors.sizes[f] for f in run) for run in runs])
    return build.reshape(build.transpose(parts, after), [x.array.dims[d] for d in order])


def _runs(factors: list[int], target: list[int]) -> list[list[int]]:
    """Return factors of a dimension in runs that are neighbors, in the same order, in another."""
    runs: list[list[int]] = []
    for f in factors:
        if runs and target.index(f) == target.index(runs[-1][-1]) + 1:
            runs[-1].append(f)
        else:
            runs.append([f])
    return runs


def _broadcast(i: Instruction) -> Instruction | None:
    x, mapped = i.operands[0], i.attrs.get("dimensions", ())
    new = build.broadcast(x, mapped, i.array.dims)
    same = new.opcode == "broadcast" and new.operands[0] is x
    return None if same else new


def _constant(i: Instruction) -> Instruction | None:
    """constant of equal elements  ->  broadcast(scalar constant), or ``complex`` of two such"""
    literal: np.ndarray[Any, Any] = i.attrs["literal"]
    if literal.size < 2:
        return None
    if literal.flat[:1].tobytes() != literal.flat[-1:].tobytes():
        return None
    flat = row_major(literal).reshape(-1).view(np.uint8).reshape(literal.size, -1)
    if (flat != flat[0]).any():
        return None
    value, dtype, dims = literal.flat[0], i.array.dtype, i.array.dims
    if dtype.kind != "complex":
        return build.full(value, dtype, dims)
    parts = (build.full(v, from_numpy(v.dtype), dims) for v in (value.real, value.imag))
    return make("complex", i.array, tuple(parts))


def _slice(i: Instruction) -> Instruction | None:
    x, parts = i.operands[0], i.attrs["slice"]
    if x.array.dims == i.array.dims:
        return x
    match x.opcode:
        case "slice":
            inner = x.attrs["slice"]
            both = tuple(_compose(a, b) for a, b in zip(inner, parts, strict=True))
            return with_operands(with_attrs(i, slice=both), (x.operands[0],))
        case "broadcast":
            return _slice_of_broadcast(i, x, parts)
        case "concatenate":
            return _slice_of_concatenate(i, x, parts)
        case _:
            return None


def _compose(inner: SliceDim, outer: SliceDim) -> SliceDim:
    start = inner.start + outer.start * inner.stride
    count = -(-(outer.limit - outer.start) // outer.stride)
    stride = inner.stride * outer.stride
    return SliceDim(start, start + max(0, count - 1) * stride + min(1, count), stride)


def _slice_of_broadcast(
    i: Instruction, x: Instruction, parts: tuple[SliceDim, ...]
) -> Instruction | None:
    y, mapped = x.operands[0], x.attrs.get("dimensions", ())
    if any(x.array.dims[d] != i.array.dims[d] for d in mapped):
        return None
    return build.broadcast(y, mapped, i.array.dims)


def _slice_of_concatenate(
    i: Instruction, x: Instruction, parts: tuple[SliceDim, ...]
) -> Instruction | None:
    """slice(concatenate(.., y, ..))  ->  slice(y), if the slice lies within ``y``"""
    (axis,) = x.attrs["dimensions"]
    begin = 0
    for y in x.operands:
        end = begin + y.array.dims[axis]
        p = parts[axis]
        if begin <= p.start and p.limit <= end and p.start < p.limit:
            moved = SliceDim(p.start - begin, p.limit - begin, p.stride)
            inside = (*parts[:axis], moved, *parts[axis + 1 :])
            new = with_operands(with_attrs(i, slice=inside), (y,))
            return y if y.array.dims == i.array.dims else new
        begin = end
    return None


def _pad(i: Instruction) -> Instruction | None:
    x, value = i.operands
    padding: tuple[PadDim, ...] = i.attrs["padding"]
    if all(p.low == p.high == 0 and (p.interior == 0 or d < 2) for p, d in _dims(padding, x)):
        return x
    if x.array.size == 0:
        return build.broadcast(value, (), i.array.dims)
    a, b = splat(x), splat(value)
    if a is not None and b is not None and a.tobytes() == b.tobytes():
        return build.broadcast(value, (), i.array.dims)
    if x.opcode == "pad" and _same_value(x.operands[1], value) and _plain(padding, x):
        merged = tuple(
            PadDim(a.low + b.low, a.high + b.high, a.interior)
            for a, b in zip(x.attrs["padding"], padding, strict=True)
        )
        return with_operands(with_attrs(i, padding=merged), (x.operands[0], value))
    return None


def _dims(padding: tuple[PadDim, ...], x: Instruction) -> list[tuple[PadDim, int]]:
    return list(zip(padding, x.array.dims, strict=True))


def _plain(outer: tuple[PadDim, ...], inner: Instruction) -> bool:
    """True if a pad of a pad only adds to the edges, so that the two amounts can be summed."""
    first = all(p.low >= 0 and p.high >= 0 and p.interior == 0 for p in outer)
    return first and all(p.low >= 0 and p.high >= 0 for p in inner.attrs["padding"])


def _same_value(a: Instruction, b: Instruction) -> bool:
    x, y = splat(a), splat(b)
    return a is b or (x is not None and y is not None and x.tobytes() == y.tobytes())


def _concatenate(i: Instruction) -> Instruction | None:
    (axis,) = i.attrs["dimensions"]
    kept = tuple(o for o in i.operands if o.array.dims[axis] > 0)
    if len(kept) == 1:
        return kept[0]
    values = {None if (v := splat(o)) is None else v.tobytes() for o in kept}
    if kept and len(values) == 1 and None not in values:
        return build.full(splat(kept[0]), i.array.dtype, i.array.dims)
    if kept and len(kept) < len(i.operands):
        return make("concatenate", i.shape, kept, name=i.name, **i.attrs)
    return None


def _reverse(i: Instruction) -> Instruction | None:
    x = i.operands[0]
    moved = tuple(d for d in i.attrs["dimensions"] if x.array.dims[d] > 1)
    if not moved:
        return x
    if x.opcode == "reverse":
        both = tuple(sorted(set(moved) ^ set(x.attrs["dimensions"])))
        return with_operands(with_attrs(i, dimensions=both), (x.operands[0],))
    if x.opcode == "broadcast":
        mapped = x.attrs.get("dimensions", ())
        if not set(moved) & set(mapped):
            return x
    return None if moved == i.attrs["dimensions"] else with_attrs(i, dimensions=moved)


def _iota(i: Instruction) -> Instruction | None:
    axis = i.attrs["iota_dimension"]
    extent = i.array.dims[axis]
    if extent == 1:
        return build.full(0, i.array.dtype, i.array.dims)
    if i.array.rank == 1:
        return None
    line = build.iota(i.array.dtype, (extent,))
    return build.broadcast(line, (axis,), i.array.dims)


def _reduce(i: Instruction) -> Instruction | None:
    """Drop reduced dimensions of size 1; if there are no others, combine with the init directly."""
    if len(i.operands) != 2:
        return None
    x, init = i.operands
    axes: tuple[int, ...] = i.attrs["dimensions"]
    if 0 in x.array.dims:
        return build.convert(build.broadcast(init, (), i.array.dims), i.array.dtype)
    unit = [d for d in axes if x.array.dims[d] == 1]
    same = {x.array.dtype, init.array.dtype, i.array.dtype} == {i.array.dtype}
    op = simple_op(i.attrs["to_apply"]) if same else None
    if len(unit) < len(axes):
        return _reduce_nested(i, x, op) if not unit else _reduce_fewer(i, x, unit)
    if op is None:
        return None
    single = build.reshape(x, i.array.dims)
    if _is_identity(op, init):
        return single
    return build.pointwise(op, build.broadcast(init, (), i.array.dims), single)


def _reduce_fewer(i: Instruction, x: Instruction, unit: list[int]) -> Instruction:
    kept = [d for d in range(x.array.rank) if d not in unit]
    axes = tuple(kept.index(d) for d in i.attrs["dimensions"] if d not in unit)
    small = build.reshape(x, [x.array.dims[d] for d in kept])
    return with_operands(with_attrs(i, dimensions=axes), (small, *i.operands[1:]))


def _reduce_nested(i: Instruction, x: Instruction, op: str | None) -> Instruction | None:
    """reduce(reduce(x))  ->  reduce(x), for one operation with its identity as the inner init"""
    if x.opcode != "reduce" or len(x.operands) != 2 or op is None:
        return None
    if simple_op(x.attrs["to_apply"]) != op or not _is_identity(op, x.operands[1]):
        return None
    if x.operands[0].array.dtype != x.array.dtype:
        return None
    y, inner = x.operands[0], x.attrs["dimensions"]
    kept = [d for d in range(y.array.rank) if d not in inner]
    both = tuple(sorted((*inner, *(kept[d] for d in i.attrs["dimensions"]))))
    return with_operands(with_attrs(i, dimensions=both), (y, i.operands[1]))


def _is_identity(op: str, init: Instruction) -> bool:
    value, kind = splat(init), init.array.dtype.kind
    if value is None:
        return False
    match op:
        case "add" | "or" | "xor":
            return bool(value == 0)
        case "multiply":
            return bool(value == 1)
        case "and":
            return is_splat(init, -1 if kind == "signed" else 1) and kind in ("signed", "pred")
        case _:
            return is_extreme(init, low=op == "maximum")


def is_extreme(x: Instruction, *, low: bool) -> bool:
    """True if every element of ``x`` is the lowest (or the highest) value of its type."""
    value, dtype = splat(x), x.array.dtype
    if value is None or dtype.kind == "complex":
        return False
    if dtype.is_float:
        return float(value) == (-math.inf if low else math.inf)
    if dtype.kind == "pred":
        return bool(value) is not low
    limits = np.iinfo(to_numpy(dtype)) if dtype.bits >= 8 else None
    return limits is not None and int(value) == (limits.min if low else limits.max)


def _dynamic_slice(i: Instruction) -> Instruction | None:
    """dynamic-slice(x, constants)  ->  slice(x), with starts clamped as at run time"""
    x, *starts = i.operands
    if x.array.dims == i.array.dims:
        return x
    if len(starts) != x.array.rank:
        return None
    values = [splat(s) for s in starts]
    parts: list[SliceDim] = []
    for value, size, extent in zip(values, i.array.dims, x.array.dims, strict=True):
        if value is None and size != extent:
            return None
        start = 0 if value is None else min(max(int(value), 0), extent - size)
        parts.append(SliceDim(start, start + size))
    return make("slice", i.shape, (x,), name=i.name, metadata=i.metadata, slice=tuple(parts))


def _get_dimension_size(i: Instruction) -> Instruction | None:
    (axis,) = i.attrs["dimensions"]
    return build.scalar(i.operands[0].array.dims[axis], i.array.dtype)


def _bitcast_convert(i: Instruction) -> Instruction | None:
    x = i.operands[0]
    return x if x.array.dtype == i.array.dtype else None


def _spread_scalars(i: Instruction) -> Instruction | None:
    """clamp(scalar, x, scalar)  ->  clamp(broadcast, x, broadcast); also for ``select``"""
    dims = i.array.dims
    if all(o.array.dims == dims for o in i.operands):
        return None
    wide = (o if o.array.dims == dims else build.broadcast(o, (), dims) for o in i.operands)
    return with_operands(i, tuple(wide))


RULES: dict[str, Rule] = {
    "clamp": _spread_scalars,
    "select": _spread_scalars,
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "constant": _constant,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "reverse": _reverse,
    "iota": _iota,
    "reduce": _reduce,
    "dynamic-slice": _dynamic_slice,
    "get-dimension-size": _get_dimension_size,
    "bitcast-convert": _bitcast_convert,
}
