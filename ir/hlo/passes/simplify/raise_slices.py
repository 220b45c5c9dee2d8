"""Raising of scatters at the places of a slice to updates of that slice.

PyTorch's exporter to ONNX writes ``x[:, 1:, 1:] = y`` as a scatter of single elements, whose places
are ranges along the dimensions of ``y``, spread and side by side:

    scatter(x, concatenate(broadcast(range), broadcast(range), ..), y)  ->  dynamic-update-slice
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....dtypes import s32
from ...meaning.values import simple_op
from ...nodes import HloModule, Instruction, Shape, SliceDim
from ...patterns import build
from ...patterns.match import all_static, nonunit
from ...patterns.ranges import interval, limits
from ...rewrite import make, map_computations, rebuild

LARGEST = 1 << 22
"""Most elements of a literal that are looked through."""


class PlaceRange(NamedTuple):
    """Places from ``start`` on: one each along dimension ``dim``, the same along the others.

    They are all ``start`` where ``dim`` is None.
    """

    start: int
    dim: int | None


def raise_slices(module: HloModule) -> HloModule:
    """``scatter(x, places of a slice, y)``  ->  ``dynamic-update-slice(x, y, starts)``"""
    return map_computations(module, lambda c: rebuild(c, _raised))


def _raised(i: Instruction) -> Instruction | None:
    if i.opcode != "scatter" or len(i.operands) != 3 or not all_static(i):
        return None
    if i.attrs.get("input_batching_dims") or 0 in i.operands[2].array.dims:
        return None
    combine = i.attrs["to_apply"]
    operand, indices, updates = i.operands
    assigns = combine.root is combine.parameters[1]
    if not assigns and simple_op(combine) is None:
        return None
    box = _box(i, indices)
    if box is None:
        return None
    starts, source = box
    sizes = tuple(1 if d is None else updates.array.dims[d] for d in source)
    if any(s < 0 or s + n > m for s, n, m in zip(starts, sizes, operand.array.dims, strict=True)):
        return None
    used = [d for d in source if d is not None]
    rest = [d for d in range(updates.array.rank) if d not in used]
    if len(set(used)) < len(used) or any(updates.array.dims[d] != 1 for d in rest):
        return None
    new = build.reshape(build.transpose(updates, (*rest, *used)), sizes)
    if not assigns:
        part = tuple(SliceDim(s, s + n, 1) for s, n in zip(starts, sizes, strict=True))
        old = make("slice", Shape(operand.array.dtype, sizes), (operand,), slice=part)
        new = build.pointwise(combine.root.opcode, old, new)
    if sizes == operand.array.dims:
        return new
    at = [build.scalar(s, s32) for s in starts]
    return make(
        "dynamic-update-slice",
        Shape(operand.array.dtype, operand.array.dims),
        (operand, new, *at),
        name=i.name,
        metadata=i.metadata,
    )


def _box(i: Instruction, indices: Instruction) -> tuple[list[int], list[int | None]] | None:
    """Return where the slice that a scatter writes starts, and its dimensions in the updates.

    None for a dimension of one place. None in all if what it writes is no slice.
    """
    attrs, rank = i.attrs, i.operands[0].array.rank
    window: tuple[int, ...] = attrs["update_window_dims"]
    vector: int = attrs["index_vector_dim"]
    outer = [d for d in range(i.operands[2].array.rank) if d not in window]
    kept = [d for d in range(rank) if d not in attrs["inserted_window_dims"]]
    starts = [0] * rank
    source: list[int | None] = [None] * rank
    for d, w in zip(kept, window, strict=True):
        source[d] = w
    for k, d in enumerate(attrs["scatter_dims_to_operand_dims"]):
        found = _range(indices, vector if vector < indices.array.rank else None, k)
        if found is None or (d in kept and found.dim is not None):
            return None
        starts[d] = found.start
        if found.dim is not None:
            source[d] = outer[found.dim - (found.dim > vector)]
    return starts, source


def _range(x: Instruction, vector: int | None, k: int) -> PlaceRange | None:
    """Return the places that are element ``k`` along dimension ``vector``, all without one."""
    match x.opcode:
        case "constant":
            literal = np.asarray(x.attrs["literal"])
            return _literal_range(literal, vector, k) if literal.size <= LARGEST else None
        case "iota":
            dim = x.attrs["iota_dimension"]
            if x.array.dims[dim] - 1 > limits(x.array.dtype)[1]:
                return None  # it wraps around
            return PlaceRange(k, None) if dim == vector else PlaceRange(0, dim)
        case "concatenate" if vector is not None and x.attrs["dimensions"] == (vector,):
            for part in x.operands:
                if k < part.array.dims[vector]:
                    return _range(part, vector, k)
                k -= part.array.dims[vector]
            return None
        case "broadcast":
            mapped = x.attrs.get("dimensions", ())
            return _moved(_range(x.operands[0], _position(mapped, vector), k), mapped)
        case "reshape" if nonunit(x.array.dims) == nonunit(x.operands[0].array.dims):
            return _reshaped(x, vector, k)
        case "convert" if _keeps_places(x):
            return _range(x.operands[0], vector, k)
        case _:
            return None


def _keeps_places(x: Instruction) -> bool:
    """True if a conversion takes integers, and its type has all of them."""
    least, most = limits(x.array.dtype)
    found = interval(x.operands[0])
    return found is not None and least <= found[0] and found[1] <= most


def _position(mapped: tuple[int, ...], d: int | None) -> int | None:
    return mapped.index(d) if d in mapped else None


def _moved(found: PlaceRange | None, mapped: tuple[int, ...]) -> PlaceRange | None:
    """Return a range along the dimension that its own becomes."""
    if found is None or found.dim is None:
        return found
    return PlaceRange(found.start, mapped[found.dim])


def _reshaped(x: Instruction, vector: int | None, k: int) -> PlaceRange | None:
    """Look through dimensions of size 1 that come or go."""
    inner = x.operands[0]
    before = [d for d, n in enumerate(inner.array.dims) if n != 1]
    after = [d for d, n in enumerate(x.array.dims) if n != 1]
    to = dict(zip(before, after, strict=True))
    back = dict(zip(after, before, strict=True))
    if vector is not None and vector not in back:
        vector = None  # one element along it
    found = _range(inner, None if vector is None else back[vector], k)
    if found is None or found.dim is None:
        return found
    return (
        PlaceRange(found.start, to[found.dim]) if found.dim in to else PlaceRange(found.start, None)
    )


def _literal_range(literal: np.ndarray[Any, Any], vector: int | None, k: int) -> PlaceRange | None:
    if vector is not None:
        literal = np.take(literal, [k], vector)
    start = int(literal.flat[0])
    if start > np.iinfo(np.int64).max - literal.size:
        return None  # of u64, beyond every array
    long = [d for d, n in enumerate(literal.shape) if n > 1]
    if (literal == start).all():
        return PlaceRange(start, None)
    for d in long:
        along = [-1 if e == d else 1 for e in range(literal.ndim)]
        if (literal == start + np.arange(literal.shape[d]).reshape(along)).all():
            return PlaceRange(start, d)
    return None
