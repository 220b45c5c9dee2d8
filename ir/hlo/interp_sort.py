"""Sorting by any comparator, and the largest elements of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .interp_lift import lifted
from .interp_pointwise import is_float, total_order
from .interp_values import Array, Handler, Run, Value
from .nodes import Computation, Instruction


def _sort(i: Instruction, args: list[Value], run: Run) -> Value:
    axis = i.attrs["dimensions"][0]
    moved = [np.moveaxis(a, axis, 0) for a in args]
    order = _order(i.attrs["to_apply"], moved, run)
    out = tuple(np.moveaxis(np.take_along_axis(m, order, 0), 0, axis) for m in moved)
    return out[0] if len(out) == 1 else out


def _order(c: Computation, arrays: list[Array], run: Run) -> Array:
    """Indices along dimension 0 that sort each column, equal elements in their old order."""
    if (plain := _plain_key(c)) is not None:
        k, descending, total = plain
        a = arrays[k]
        a = total_order(a) if total and is_float(a.dtype) else a
        if a.dtype.kind in "biuf":
            if not descending:
                return np.argsort(a, axis=0, kind="stable")
            backwards = np.argsort(a[::-1], axis=0, kind="stable")
            return (len(a) - 1 - backwards)[::-1]
    before = lifted(c, run)

    def less(left: Array, right: Array) -> Array:
        pairs = [np.take_along_axis(a, at, 0) for a in arrays for at in (left, right)]
        return np.asarray(before(*pairs))

    return merge_order(arrays[0].shape, less)


def _plain_key(c: Computation) -> tuple[int, bool, bool] | None:
    """(operand, descending, total order) if the comparator compares one operand's two elements."""
    root = c.root
    if root.opcode != "compare" or root.attrs["direction"] not in ("LT", "GT"):
        return None
    a, b = root.operands
    if a.opcode != "parameter" or b.opcode != "parameter":
        return None
    first, second = a.attrs["number"], b.attrs["number"]
    total = root.attrs.get("type") == "TOTALORDER"
    descending = root.attrs["direction"] == "GT"
    if first % 2 == 0 and second == first + 1:
        return first // 2, descending, total
    if second % 2 == 0 and first == second + 1:
        return second // 2, not descending, total
    return None


def merge_order(shape: tuple[int, ...], less: Callable[[Array, Array], Array]) -> Array:
    """A stable merge sort of every column at once.

    ``less(i, j)`` tells, for index arrays of the shape, whether elements i go before elements j.
    Runs of width w are merged by searching each element's rank in its neighbour run.
    """
    n = shape[0]
    tail = (1,) * (len(shape) - 1)
    spots = np.arange(n).reshape(n, *tail)
    order = np.broadcast_to(spots, shape).copy()
    width = 1
    while width < n:
        mine = spots // width  # number of the run that each place lies in
        left = mine % 2 == 0
        start = np.minimum(np.where(left, mine + 1, mine - 1) * width, n)
        stop = np.minimum(start + width, n)
        low = np.broadcast_to(start, shape).copy()
        high = np.broadcast_to(stop, shape).copy()
        while (open_ := low < high).any():
            middle = np.where(open_, (low + high) // 2, 0)
            other = np.take_along_axis(order, middle, 0)
            # an element of the right run goes after equal ones of the left run
            after = np.where(left, less(other, order), ~less(order, other))
            low = np.where(open_ & after, middle + 1, low)
            high = np.where(open_ & ~after, middle, high)
        base = (mine // 2) * (2 * width)
        target = base + (spots - mine * width) + (low - start)
        merged = np.empty_like(order)
        np.put_along_axis(merged, target, order, 0)
        order, width = merged, width * 2
    return order


def _topk(i: Instruction, args: list[Value], run: Run) -> Value:
    return top_k(args[0], i.attrs["k"], i.attrs.get("largest", True))


def top_k(a: Array, k: int, largest: bool = True) -> tuple[Array, Array]:
    """The first ``k`` of each row and where they are; among equal ones the first comes first.

    Floats are in total order, so NaN is the largest.
    """
    key = total_order(a) if is_float(a.dtype) else a
    if largest:
        backwards = np.argsort(key[..., ::-1], axis=-1, kind="stable")
        order = (a.shape[-1] - 1 - backwards)[..., ::-1]
    else:
        order = np.argsort(key, axis=-1, kind="stable")
    at = order[..., :k]
    return np.take_along_axis(a, at, -1), at.astype(np.int32)


def _custom_call(i: Instruction, args: list[Value], run: Run) -> Value:
    return CUSTOM_CALLS[i.attrs["custom_call_target"]](i, args, run)


def _custom_topk(i: Instruction, args: list[Value], run: Run) -> Value:
    shape = getattr(i.shape, "elements", (i.shape,))[0]
    return top_k(args[0], shape.dims[-1])


CUSTOM_CALLS: dict[str, Handler] = {"TopK": _custom_topk}
"""Custom calls whose meaning is known, by target."""

HANDLERS: dict[str, Handler] = {"sort": _sort, "topk": _topk, "custom-call": _custom_call}
