"""Sorting by any comparator, and the k largest or smallest elements of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...arrays import Array
from ...conversion import is_float, is_narrow_int
from ..nodes import Computation, Instruction
from ..rewrite import post_order
from .pointwise import total_order
from .values import CallEvaluator, Value


def sort(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Sort arrays together along one dimension by a comparator; always stable."""
    axis = i.attrs["dimensions"][0]
    moved = [np.moveaxis(a, axis, 0) for a in args]
    order = _order(i.attrs["to_apply"], moved, run)
    out = tuple(np.moveaxis(np.take_along_axis(m, order, 0), 0, axis) for m in moved)
    return out[0] if len(out) == 1 else out


def _order(c: Computation, arrays: list[Array], run: CallEvaluator) -> Array:
    """Return indices along dimension 0 that sort each column, equal elements in their old order."""
    if (found := sort_key(c)) is not None:
        number, of, descending = found
        key = np.asarray(run.lifted(of)(*[arrays[number]] * len(c.parameters)))
        total = c.root.attrs.get("type") == "TOTALORDER"
        if is_narrow_int(key.dtype):
            key = key.astype(np.int8)
        elif is_float(key.dtype):
            key = total_order(key) if total else _comparable(key)
        if key.dtype.kind != "f" or not np.isnan(key).any():
            return _argsort(key, descending)
    before = run.lifted(c)

    def less(left: Array, right: Array) -> Array:
        pairs = [np.take_along_axis(a, at, 0) for a in arrays for at in (left, right)]
        return np.asarray(before(*pairs))

    return merge_order(arrays[0].shape, less)


def _comparable(key: Array) -> Array:
    """Convert a float key to a type that NumPy sorts."""
    return key if key.dtype in (np.float32, np.float64) else key.astype(np.float32)


def _argsort(key: Array, descending: bool) -> Array:
    if not descending:
        return np.argsort(key, axis=0, kind="stable")
    return (len(key) - 1 - np.argsort(key[::-1], axis=0, kind="stable"))[::-1]


def sort_key(c: Computation) -> tuple[int, Computation, bool] | None:
    """Return the sort key of a comparator ``f(a) < f(b)`` of one operand; None for any other.

    The key is the operand's number, ``f`` as a computation of all the comparator's parameters, and
    True for descending order.
    """
    root = c.root
    if root.opcode != "compare" or root.attrs["direction"] not in ("LT", "GT"):
        return None
    left, right = root.operands
    pairs: dict[Instruction, Instruction] = {}
    if not _mirrored(left, right, pairs):
        return None
    numbers = [i.attrs["number"] for i in pairs if i.opcode == "parameter"]
    if len(numbers) != 1:
        return None
    key = Computation("key", c.parameters, tuple(post_order([*c.parameters, left])), left)
    swapped = numbers[0] % 2 == 1
    return numbers[0] // 2, key, (root.attrs["direction"] == "GT") != swapped


def _mirrored(a: Instruction, b: Instruction, pairs: dict[Instruction, Instruction]) -> bool:
    """True if ``b`` is ``a`` with the parameters of the two compared elements exchanged."""
    if a in pairs:
        return pairs[a] is b
    pairs[a] = b
    if a.opcode == "parameter" and b.opcode == "parameter":
        return int(a.attrs["number"]) ^ 1 == int(b.attrs["number"])
    if a is b:
        return all(_mirrored(x, x, pairs) for x in a.operands)
    if a.opcode != b.opcode or a.opcode == "constant" or a.shape != b.shape:
        return False
    if len(a.operands) != len(b.operands) or dict(a.attrs) != dict(b.attrs):
        return False
    return all(_mirrored(x, y, pairs) for x, y in zip(a.operands, b.operands, strict=True))


def merge_order(shape: tuple[int, ...], less: Callable[[Array, Array], Array]) -> Array:
    """Return indices along dimension 0 that sort every column, by a stable merge sort.

    ``less(i, j)`` takes index arrays of the shape and is true where elements i go before elements
    j; where that is no strict weak order, each index still appears once in its column. All columns
    are sorted at once; sorted runs of width w are merged by a binary search for each element's rank
    in the neighboring run.
    """
    n = shape[0]
    tail = (1,) * (len(shape) - 1)
    spots = np.arange(n).reshape(n, *tail)
    order = np.broadcast_to(spots, shape).copy()
    width = 1
    while width < n:
        mine = spots // width  # the run that each place belongs to
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
        # two with one target, where ``less`` is no order (of NaN, say), stay beside each other
        order = np.take_along_axis(order, np.argsort(target, axis=0, kind="stable"), 0)
        width *= 2
    return order


def topk(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return the ``k`` largest (or smallest) elements of each row and their indices, as s32."""
    return top_k(args[0], i.attrs["k"], i.attrs.get("largest", True))


def top_k(a: Array, k: int, largest: bool = True) -> tuple[Array, Array]:
    """Return the ``k`` largest (or smallest) elements of each row in order, and their indices.

    Floats are in total order, so NaN is the largest. Of equal elements the lower index comes first.
    """
    key = total_order(a) if is_float(a.dtype) else a
    order = np.moveaxis(_argsort(np.moveaxis(key, -1, 0), largest), 0, -1)
    at = order[..., :k]
    return np.take_along_axis(a, at, -1), at.astype(np.int32)
