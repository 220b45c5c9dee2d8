"""``pad_dynamic`` for ``reshape`` and ``dynamic-reshape``.

The live elements, in row-major order, fill the live part of the result in that order. Where they
stand in the same places of the padded arrays too, that is a reshape. Elsewhere it is a gather: a
place of the result has a number among the live elements, which is divided by the operand's sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....dtypes import s32
from ....errors import UnsupportedError
from ...live_sizes import ReshapeGroup, marks, reshape_groups
from ...nodes import Instruction, Shape
from ...patterns import build
from ...rewrite import make
from .moves import Rule
from .values import Padded, Scalar, arithmetic, scalar, settled, zeroed

MOST = (1 << 31) - 1  # elements whose numbers are s32


def reshape(i: Instruction, operands: list[Padded]) -> Padded:
    (x,) = operands
    runs = reshape_groups(i, x.sizes)
    value = zeroed(x, (d for r in runs if r.live is None for d in r.old))
    sizes: dict[int, Scalar] = {}
    for r in runs:
        if r.live is not None:
            rest = prod(i.array.dims[d] for d in r.new if d != r.live)
            total = product([x.size(d) for d in r.old])
            sizes[r.live] = arithmetic("divide", total, rest) if rest else i.array.dims[r.live]
    if all(_in_place(r, x) for r in runs):
        return Padded(build.reshape(value, i.array.dims), settled(i.array.dims, sizes))
    flat = build.reshape(value, [prod(x.dims[d] for d in r.old) for r in runs])
    for axis, r in enumerate(runs):
        if not _in_place(r, x):
            old = [(x.dims[d], x.size(d)) for d in r.old]
            new = [(i.array.dims[d], sizes.get(d, i.array.dims[d])) for d in r.new]
            places, number = sources(i, old, new)
            flat = _taken(flat, axis, places)
            if r.live is None:
                flat = _cut(flat, axis, number, product([s for _, s in old]))
    return Padded(build.reshape(flat, i.array.dims), settled(i.array.dims, sizes))


def _in_place(r: ReshapeGroup, x: Padded) -> bool:
    """Whether live elements keep their padded places: sizes vary in the first dimension only."""
    if any(d in x.sizes for d in r.old[1:]):
        return False
    return not (r.old and r.old[0] in x.sizes) or r.live is None or r.live == r.new[0]


def dynamic_reshape(i: Instruction, operands: list[Padded]) -> Padded:
    """All elements in one run, under the sizes that operands give for bounded dimensions."""
    x, *given = operands
    dims = i.array.dims
    sizes: dict[int, Scalar] = {}
    for d, g in enumerate(given):
        if not marks(i.array)[d]:
            sizes[d] = dims[d]
            continue
        whole = build.convert(g.value, s32)
        sizes[d] = arithmetic("minimum", arithmetic("maximum", whole, 0), dims[d])
    old = [(n, x.size(d)) for d, n in enumerate(x.dims)]
    places, number = sources(i, old, [(n, sizes[d]) for d, n in enumerate(dims)])
    flat = _taken(build.reshape(x.value, [prod(x.dims)]), 0, places)
    flat = _cut(flat, 0, number, product([s for _, s in old]))
    return Padded(build.reshape(flat, dims), settled(dims, sizes))


def product(sizes: Sequence[Scalar]) -> Scalar:
    """How many elements arrays of these sizes have."""
    total: Scalar = 1
    for s in sizes:
        total = arithmetic("multiply", total, s)
    return total


def sources(
    i: Instruction, old: Sequence[tuple[int, Scalar]], new: Sequence[tuple[int, Scalar]]
) -> tuple[Instruction, Instruction]:
    """For every place of ``new`` (extents and live sizes): the place in ``old``, and its number.

    Both are s32 vectors over the row-major places of the padded array; the number counts live
    elements, of old and new alike.
    """
    extents = tuple(n for n, _ in new)
    if max(prod(extents), prod(n for n, _ in old)) > MOST:
        why = f"it numbers more than {MOST} elements"
        raise UnsupportedError(f"cannot compile {i.opcode} `{i.name}`", why)
    shape = Shape(s32, extents)
    number = build.full(0, s32, extents)
    step: Scalar = 1
    for d in reversed(range(len(new))):
        place = make("iota", shape, iota_dimension=d)
        number = build.pointwise(
            "add", number, build.pointwise("multiply", place, _spread(step, extents))
        )
        step = arithmetic("multiply", step, new[d][1])
    number = build.reshape(number, (prod(extents),))
    length = number.array.dims
    place, left, stride = build.full(0, s32, length), number, 1
    for extent, size in reversed(old):
        divisor = _spread(arithmetic("maximum", size, 1), length)
        digit = build.pointwise("remainder", left, divisor)
        left = build.pointwise("divide", left, divisor)
        place = build.pointwise(
            "add", place, build.pointwise("multiply", digit, _spread(stride, length))
        )
        stride *= extent
    return place, number


def _spread(x: Scalar, dims: tuple[int, ...]) -> Instruction:
    return build.broadcast(scalar(x), (), dims)


def _taken(x: Instruction, axis: int, places: Instruction) -> Instruction:
    """``x`` at these places along one dimension."""
    dims = x.array.dims
    (count,) = places.array.dims
    shape = Shape(x.array.dtype, (*dims[:axis], count, *dims[axis + 1 :]))
    if 0 in dims:
        return build.full(0, shape.dtype, shape.dims)
    return make(
        "gather", shape, (x, places),
        offset_dims=tuple(d for d in range(len(dims)) if d != axis), collapsed_slice_dims=(axis,),
        start_index_map=(axis,), index_vector_dim=1,
        slice_sizes=tuple(1 if d == axis else n for d, n in enumerate(dims)),
    )  # fmt: skip


def _cut(x: Instruction, axis: int, number: Instruction, total: Scalar) -> Instruction:
    """``x`` with zeros where there is no element with that number."""
    inside = build.pointwise("compare", number, _spread(total, number.array.dims), direction="LT")
    dims = x.array.dims
    zero = build.full(0, x.array.dtype, dims)
    return build.pointwise("select", build.broadcast(inside, (axis,), dims), x, zero)


RULES: dict[str, Rule] = {"reshape": reshape, "dynamic-reshape": dynamic_reshape}
