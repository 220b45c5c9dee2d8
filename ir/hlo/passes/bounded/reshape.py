"""``pad_dynamic`` for ``reshape`` and ``dynamic-reshape``.

The live elements, in row-major order, fill the live part of the result in that order. Where they
are at the same places in both padded arrays, that is a reshape. Otherwise it is a gather: the
number that a place of the result has among the live elements is divided by the operand's sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....dtypes import s32
from ....errors import UnsupportedError
from ...live_sizes import ReshapeGroup, reshape_groups
from ...nodes import Instruction, Shape
from ...patterns import build
from ...rewrite import make
from .moves import Rule
from .values import Padded, Scalar, arithmetic, scalar, varying, zeroed

MOST = (1 << 31) - 1  # elements whose numbers are s32


def reshape(i: Instruction, operands: list[Padded]) -> Padded:
    """Reshape group by group (see ``live_sizes.reshape_groups``), by a gather where needed."""
    (x,) = operands
    groups = reshape_groups(i, x.sizes)
    value = zeroed(x, (d for g in groups if g.live is None for d in g.old))
    sizes: dict[int, Scalar] = {}
    for g in groups:
        if g.live is not None:
            rest = prod(i.array.dims[d] for d in g.new if d != g.live)
            total = product([x.size(d) for d in g.old])
            sizes[g.live] = arithmetic("divide", total, rest) if rest else i.array.dims[g.live]
    if all(_in_place(g, x) for g in groups):
        return Padded(build.reshape(value, i.array.dims), varying(i.array.dims, sizes))
    flat = build.reshape(value, [prod(x.dims[d] for d in g.old) for g in groups])
    for axis, g in enumerate(groups):
        if not _in_place(g, x):
            old = [(x.dims[d], x.size(d)) for d in g.old]
            new = [(i.array.dims[d], sizes.get(d, i.array.dims[d])) for d in g.new]
            places, number = sources(i, old, new)
            flat = _taken(flat, axis, places)
            if g.live is None:
                flat = _cut(flat, axis, number, product([s for _, s in old]))
    return Padded(build.reshape(flat, i.array.dims), varying(i.array.dims, sizes))


def _in_place(g: ReshapeGroup, x: Padded) -> bool:
    """True if live elements keep their places, because only the first dimension varies."""
    if any(d in x.sizes for d in g.old[1:]):
        return False
    return not (g.old and g.old[0] in x.sizes) or g.live is None or g.live == g.new[0]


def dynamic_reshape(i: Instruction, operands: list[Padded]) -> Padded:
    """Reshape all elements as one group, to the sizes given for bounded dimensions."""
    x, *given = operands
    dims = i.array.dims
    sizes: dict[int, Scalar] = {}
    for d, g in enumerate(given):
        if not i.array.marks[d]:
            sizes[d] = dims[d]
            continue
        whole = build.convert(g.value, s32)
        sizes[d] = arithmetic("minimum", arithmetic("maximum", whole, 0), dims[d])
    old = [(n, x.size(d)) for d, n in enumerate(x.dims)]
    places, number = sources(i, old, [(n, sizes[d]) for d, n in enumerate(dims)])
    flat = _taken(build.reshape(x.value, [prod(x.dims)]), 0, places)
    flat = _cut(flat, 0, number, product([s for _, s in old]))
    return Padded(build.reshape(flat, dims), varying(dims, sizes))


def product(sizes: Sequence[Scalar]) -> Scalar:
    """Return the product of sizes."""
    total: Scalar = 1
    for s in sizes:
        total = arithmetic("multiply", total, s)
    return total


def sources(
    i: Instruction, old: Sequence[tuple[int, Scalar]], new: Sequence[tuple[int, Scalar]]
) -> tuple[Instruction, Instruction]:
    """Map every place of a reshape's result to a place of its operand and to its number.

    ``old`` and ``new`` are pairs of extent and live size, for each dimension. Returned are two s32
    vectors over the row-major places of the padded result: the row-major place in the padded
    operand, and the number among live elements, which is the same in both. ``UnsupportedError`` if
    a number does not fit s32.
    """
    extents = tuple(n for n, _ in new)
    if max(prod(extents), prod(n for n, _ in old)) > MOST:
        why = f"it numbers more than {MOST} elements"
        raise UnsupportedError(f"cannot compile {i.opcode} `{i.name}`", why)
    number = build.full(0, s32, extents)
    step: Scalar = 1
    for d in reversed(range(len(new))):
        place = build.iota(s32, extents, d)
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
    """Gather ``x`` at these places along one dimension."""
    dims = x.array.dims
    (count,) = places.array.dims
    shape = Shape(x.array.dtype, (*dims[:axis], count, *dims[axis + 1 :]))
    if 0 in dims:
        return build.full(0, shape.dtype, shape.dims)
    return make(
        "gather",
        shape,
        (x, places),
        offset_dims=tuple(d for d in range(len(dims)) if d != axis),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        index_vector_dim=1,
        slice_sizes=tuple(1 if d == axis else n for d, n in enumerate(dims)),
    )


def _cut(x: Instruction, axis: int, number: Instruction, total: Scalar) -> Instruction:
    """Replace elements of ``x`` whose number is ``total`` or more by zeros."""
    inside = build.pointwise("compare", number, _spread(total, number.array.dims), direction="LT")
    dims = x.array.dims
    zero = build.full(0, x.array.dtype, dims)
    return build.pointwise("select", build.broadcast(inside, (axis,), dims), x, zero)


RULES: dict[str, Rule] = {"reshape": reshape, "dynamic-reshape": dynamic_reshape}
