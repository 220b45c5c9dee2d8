"""``pad_dynamic`` for operations that move elements: slices, joins, views, sizes themselves.

A rule takes an instruction and its padded operands and returns the padded result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....dtypes import s32
from ...live_sizes import is_whole
from ...nodes import Instruction, PadDim, Shape, SliceDim
from ...patterns import build
from ...rewrite import make
from .values import (
    Padded,
    Scalar,
    arithmetic,
    constant_size,
    live_mask,
    masked,
    scalar,
    smallest_sizes,
    static,
    varying,
    zeroed,
)

Rule = Callable[[Instruction, list[Padded]], Padded]


def reapply(i: Instruction, *operands: Instruction) -> Instruction:
    """Return the same operation on padded operands, with a static shape."""
    return replace(i, operands=operands, shape=static(i.shape))


def elementwise(i: Instruction, operands: list[Padded]) -> Padded:
    """Apply an element-wise operation; its live sizes are the smallest of the operands'."""
    return Padded(
        reapply(i, *(o.value for o in operands)), smallest_sizes(o.sizes for o in operands)
    )


def broadcast(i: Instruction, operands: list[Padded]) -> Padded:
    """Move live sizes to the dimensions that the operand's become."""
    (x,) = operands
    dims = i.attrs.get("dimensions", ())
    return Padded(reapply(i, x.value), {dims[d]: s for d, s in x.sizes.items()})


def transpose(i: Instruction, operands: list[Padded]) -> Padded:
    """Permute live sizes with the dimensions."""
    (x,) = operands
    sizes = {k: x.sizes[d] for k, d in enumerate(i.attrs["dimensions"]) if d in x.sizes}
    return Padded(reapply(i, x.value), sizes)


def reverse(i: Instruction, operands: list[Padded]) -> Padded:
    """Reverse, then drop the padding, which comes first."""
    (x,) = operands
    value = reapply(i, x.value)
    for d in i.attrs["dimensions"]:
        if d in x.sizes:
            skipped = arithmetic("subtract", x.dims[d], x.sizes[d])
            value = _part(build.extended(value, d, x.dims[d]), {d: skipped}, x.dims)
    return Padded(value, x.sizes)


def _starts(starts: dict[int, Scalar], rank: int) -> tuple[Instruction, ...]:
    return tuple(scalar(starts.get(k, 0)) for k in range(rank))


def _part(x: Instruction, starts: dict[int, Scalar], sizes: tuple[int, ...]) -> Instruction:
    """Return a ``dynamic-slice`` of ``x``; dimensions without a start begin at 0."""
    operands = (x, *_starts(starts, len(sizes)))
    shape = Shape(x.array.dtype, sizes)
    return make("dynamic-slice", shape, operands, dynamic_slice_sizes=sizes)


def concatenate(i: Instruction, operands: list[Padded]) -> Padded:
    """Write each part where the live part of the one before it ends, over its padding."""
    (d,) = i.attrs["dimensions"]
    sizes: dict[int, Scalar] = dict(
        smallest_sizes({k: s for k, s in o.sizes.items() if k != d} for o in operands)
    )
    ends: list[Scalar] = [0]
    for o in operands:
        ends.append(arithmetic("add", ends[-1], o.size(d)))
    sizes[d] = ends[-1]
    value = reapply(i, *(o.value for o in operands))
    if any(d in o.sizes for o in operands[:-1]):
        value = build.full(0, i.array.dtype, i.array.dims)
        for o, start in zip(operands, ends, strict=False):
            starts = _starts({d: start}, i.array.rank)
            operands_of = (value, o.value, *starts)
            value = make("dynamic-update-slice", Shape(i.array.dtype, i.array.dims), operands_of)
    return Padded(value, varying(i.array.dims, sizes))


def slice_(i: Instruction, operands: list[Padded]) -> Padded:
    """Clip a range to the live size, unless a single element is taken, which is 0 beyond it."""
    (x,) = operands
    sizes: dict[int, Scalar] = {}
    fixed: list[int] = []
    for d, size in x.sizes.items():
        cut: SliceDim = i.attrs["slice"][d]
        if is_whole(cut.start, cut.limit, cut.stride, x.dims[d]):
            sizes[d] = size
        elif i.array.dims[d] == 1 and not i.array.marks[d]:
            fixed.append(d)
        else:
            end = arithmetic("minimum", size, cut.limit)
            sizes[d] = strided_count(end, cut.start, cut.stride)
    return Padded(reapply(i, zeroed(x, fixed)), varying(i.array.dims, sizes))


def strided_count(end: Scalar, start: int, stride: int) -> Scalar:
    """Return how many of ``start``, ``start + stride``, ... are below ``end``."""
    length = arithmetic("maximum", arithmetic("subtract", end, start), 0)
    return arithmetic("divide", arithmetic("add", length, stride - 1), stride)


def pad(i: Instruction, operands: list[Padded]) -> Padded:
    """Fill the operand's padding with the pad value, since the new edge begins where it does."""
    x, fill = operands
    sizes: dict[int, Scalar] = {}
    for d, size in x.sizes.items():
        p: PadDim = i.attrs["padding"][d]
        gaps = arithmetic("maximum", arithmetic("subtract", size, 1), 0)
        spread = arithmetic("add", size, arithmetic("multiply", gaps, p.interior))
        sizes[d] = arithmetic("maximum", arithmetic("add", spread, p.low + p.high), 0)
    value = reapply(i, masked(x.value, x.sizes, fill.value), fill.value)
    return Padded(value, varying(i.array.dims, sizes))


def dynamic_slice(i: Instruction, operands: list[Padded]) -> Padded:
    """Clamp starts so that a part lies in the live part; a whole dimension keeps its live size."""
    x, *given = operands
    extents: tuple[int, ...] = i.attrs["dynamic_slice_sizes"]
    starts: dict[int, Scalar] = {}
    rest: dict[int, Scalar] = {}
    for d, start in enumerate(_scalars(given, x.value.array.rank)):
        starts[d] = _inside(start, arithmetic("subtract", x.size(d), extents[d]))
        if d in x.sizes and extents[d] != x.dims[d]:
            rest[d] = arithmetic("subtract", x.sizes[d], starts[d])
    moved = reapply(i, x.value, *_starts(starts, len(extents)))
    sizes = {d: s for d, s in x.sizes.items() if d not in rest}
    return Padded(masked(moved, rest, build.scalar(0, moved.array.dtype)), sizes)


def _scalars(given: list[Padded], rank: int) -> list[Instruction]:
    """Return start indices as scalars, also if they are given as one vector (the old form)."""
    first = given[0].value if given else None
    if first is None or first.array.rank == 0:
        return [g.value for g in given]
    parts = []
    for k in range(rank):
        one = make("slice", Shape(first.array.dtype, (1,)), (first,), slice=(SliceDim(k, k + 1),))
        parts.append(build.reshape(one, ()))
    return parts


def _inside(start: Instruction, last: Scalar) -> Instruction:
    """Clamp a start index to between 0 and ``last``, as s32; 0 if ``last`` is negative."""
    dtype = start.array.dtype
    if dtype != s32:
        most = (1 << min(31, dtype.bits - (dtype.kind == "signed"))) - 1
        ends = (build.scalar(0, dtype), build.scalar(most, dtype))
        start = build.convert(build.pointwise("clamp", ends[0], start, ends[1]), s32)
    return scalar(arithmetic("maximum", arithmetic("minimum", start, last), 0))


def dynamic_update_slice(i: Instruction, operands: list[Padded]) -> Padded:
    """Write the live part of the update into the live part of the operand.

    If the update has live sizes, its padding is replaced by the elements that it would overwrite;
    the operand is made longer for that time, so that the start can be where the live part ends.
    """
    x, update, *given = operands
    rank = x.value.array.rank
    starts: dict[int, Scalar] = {}
    for d, start in enumerate(_scalars(given, rank)):
        starts[d] = _inside(start, arithmetic("subtract", x.size(d), update.size(d)))
    room, part = x.value, update.value
    if (inside := live_mask(update.dims, update.sizes)) is not None:
        for d in update.sizes:
            room = build.extended(room, d, update.dims[d])
        part = build.pointwise("select", inside, part, _part(room, starts, update.dims))
    operands_of = (room, part, *_starts(starts, rank))
    value = make("dynamic-update-slice", room.array, operands_of, metadata=i.metadata)
    if room is not x.value:
        cut = tuple(SliceDim(0, n) for n in x.dims)
        value = make("slice", x.value.array, (value,), slice=cut)
    return Padded(value, x.sizes)


def get_dimension_size(i: Instruction, operands: list[Padded]) -> Padded:
    """Return the live size as a value."""
    (d,) = i.attrs["dimensions"]
    return Padded(build.convert(scalar(operands[0].size(d)), i.array.dtype))


def set_dimension_size(i: Instruction, operands: list[Padded]) -> Padded:
    """Set a live size, clamped to between 0 and the bound; elements beyond the old one are 0.

    An array that has this very size stays as it is.
    """
    x, given = operands
    (d,) = i.attrs["dimensions"]
    if x.sizes.get(d) is given.value:
        return x
    size = given.value if _fits(given.value, x.dims[d]) else _inside(given.value, x.dims[d])
    value = zeroed(x, (d,))
    sizes: dict[int, Scalar] = {**x.sizes, d: size}
    return Padded(value, varying(x.dims, sizes))


def _fits(size: Instruction, bound: int) -> bool:
    """True for a size that was clamped as ``_inside`` does it, to no more than this bound."""
    match size:
        case Instruction(
            opcode="maximum",
            shape=Shape(dtype=dtype),
            operands=(Instruction(opcode="minimum") as low, zero),
        ) if dtype == s32:
            most = constant_size(low.operands[1])
            return most is not None and most <= bound and constant_size(zero) == 0
        case _:
            return False


def bitcast_convert(i: Instruction, operands: list[Padded]) -> Padded:
    """Keep live sizes: a change of width only adds or drops a last dimension, which is static."""
    (x,) = operands
    return Padded(reapply(i, x.value), x.sizes)


RULES: dict[str, Rule] = {
    "broadcast": broadcast,
    "transpose": transpose,
    "reverse": reverse,
    "concatenate": concatenate,
    "slice": slice_,
    "pad": pad,
    "dynamic-slice": dynamic_slice,
    "dynamic-update-slice": dynamic_update_slice,
    "get-dimension-size": get_dimension_size,
    "set-dimension-size": set_dimension_size,
    "bitcast-convert": bitcast_convert,
}
