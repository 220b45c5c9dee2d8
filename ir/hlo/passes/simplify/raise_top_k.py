"""Raising of sorted rows of which only the first elements are read to ``topk``.

TensorFlow lowers ``tf.math.top_k`` to a sort of all elements and of their places, and slices:

    sort(x, iota)[.., 0:k]  ->  topk(x, k)[.., 0:k]

Elements have to be in the order of ``topk``: integers, or floats in total order; of equal ones the
lower place is first, as a stable sort has it, and any other sort may have it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dtypes import s32
from ...meaning.sort import sort_key
from ...nodes import Computation, HloModule, Instruction, Shape, SliceDim, TupleShape
from ...patterns import build
from ...patterns.match import is_static
from ...rewrite import make, map_computations, rebuild, users, with_operands
from .split_argmax import counts

SHARE = 8
"""Rows are sorted whole where more than one element in so many is kept."""

LONG = 512
"""Shorter rows are sorted as fast as their first elements are found."""


def raise_top_k(module: HloModule) -> HloModule:
    """``sort(x, iota)[.., 0:k]``  ->  ``topk(x, k)[.., 0:k]``"""
    return map_computations(module, _raised)


def _raised(computation: Computation) -> Computation:
    sorts = [i for i in computation.instructions if i.opcode == "sort" and _orders_rows(i)]
    if not sorts:
        return computation
    used = users(computation)
    kept = {i.name: _kept(i, computation, used) for i in sorts}
    made: dict[Instruction, Instruction] = {}

    def rule(i: Instruction) -> Instruction | None:
        if i.opcode != "slice":
            return None
        taken, whole = i.operands[0], i.operands[0]
        if taken.opcode == "get-tuple-element":
            whole = taken.operands[0]
        count = kept.get(whole.name) if whole.opcode == "sort" else None
        if count is None:
            return None
        found = made.setdefault(whole, _top(whole, count))
        element = build.element(found, int(taken.attrs["index"]) if taken is not whole else 0)
        return with_operands(i, (build.convert(element, taken.array.dtype),))

    return rebuild(computation, rule)


def _orders_rows(sort: Instruction) -> bool:
    """True if a sort orders rows by their elements, with nothing beside them but their places."""
    (dim,) = sort.attrs["dimensions"]
    x, *others = sort.operands
    dtype, found = x.array.dtype, sort_key(sort.attrs["to_apply"])
    if dim != x.array.rank - 1 or not is_static(x) or len(others) > 1 or found is None:
        return False
    number, of, _ = found
    if number or of.root.opcode != "parameter" or not all(counts(o, dim) for o in others):
        return False
    total = sort.attrs["to_apply"].root.attrs.get("type") == "TOTALORDER"
    return (dtype.is_int and dtype.bits >= 8) or (dtype.is_float and dtype.bits >= 16 and total)


def _kept(
    sort: Instruction, computation: Computation, used: dict[Instruction, tuple[Instruction, ...]]
) -> int | None:
    """Return how many of the first elements of each row are read; None for too many."""
    parts = used[sort] if isinstance(sort.shape, TupleShape) else (sort,)
    if computation.root in (sort, *parts):
        return None
    slices = [s for p in parts for s in used[p]]
    elements = (p is sort or p.opcode == "get-tuple-element" for p in parts)
    if not slices or not all(elements) or any(s.opcode != "slice" for s in slices):
        return None
    count = max(_last(s.attrs["slice"]) for s in slices)
    length = sort.operands[0].array.dims[-1]
    return count if length >= LONG and SHARE * count <= length else None


def _last(dims: Sequence[SliceDim]) -> int:
    return dims[-1].limit


def _top(sort: Instruction, count: int) -> Instruction:
    x = sort.operands[0]
    found = sort_key(sort.attrs["to_apply"])
    assert found is not None
    dims = (*x.array.dims[:-1], count)
    shape = TupleShape((Shape(x.array.dtype, dims), Shape(s32, dims)))
    return make("topk", shape, (x,), metadata=sort.metadata, k=count, largest=found[2])
