"""Results by place: scatter, select-and-scatter, sort and topk on values with errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import DType, to_numpy
from ..interp.evaluate import evaluate_computation
from ..interp.lift import Runner
from ..meaning import indexing as interp_indexing
from ..meaning import sort as interp_sort
from ..meaning import window as interp_window
from ..meaning.values import Value, simple_op
from ..nodes import Computation, Instruction, Shape, TupleShape
from ..rewrite import needs, post_order
from . import sums
from .bounded import Bounded, MachineRounding, moved, moved_all, narrow, unknown, wide
from .elementwise import select
from .sums import in_f64

Known: TypeAlias = "Bounded | tuple[Known, ...]"
PlaceRule: TypeAlias = Callable[[MachineRounding, Instruction, list[Bounded]], Known]


def _refused(c: Computation, args: Sequence[Value]) -> Value:
    raise NotImplementedError(c.name)


no_calls = Runner(_refused)
"""Stands for running a computation where an operation calls none."""


def given(found: Value, shape: object, sure: bool) -> Known:
    """Values as results of a shape, free of error if they are ``sure``, else of unknown error."""
    if isinstance(shape, TupleShape):
        return tuple(given(v, s, sure) for v, s in zip(found, shape.elements, strict=True))
    assert isinstance(shape, Shape)
    value = wide(found, shape.dtype)
    return Bounded(value) if sure else unknown(value)


def lost(shape: object) -> Known:
    """Results of a shape of which nothing is known."""
    if isinstance(shape, TupleShape):
        return tuple(lost(s) for s in shape.elements)
    assert isinstance(shape, Shape)
    return unknown(wide(np.zeros(shape.dims, to_numpy(shape.dtype)), shape.dtype))


run_scalars = Runner(evaluate_computation)
"""Runs a computation as the interpreter does."""


def only_chooses(c: Computation) -> bool:
    """True if a computation hands on its arguments, and computes with none of them."""
    chooses = {"parameter", "select", "compare", "tuple", "maximum", "minimum", "and", "or", "not"}
    return all(
        i.opcode in chooses or (isinstance(i.shape, Shape) and i.shape.dtype.kind != "float")
        for i in c.instructions
    )


def _scatter(rounding: MachineRounding, i: Instruction, args: list[Bounded]) -> Known:
    n, c = len(args) // 2, i.attrs["to_apply"]
    dtype, handler = i.operands[0].array.dtype, interp_indexing.scatter
    places, op = args[n], simple_op(c)
    flat = [narrow(a, o.array.dtype) for a, o in zip(args, i.operands, strict=True)]
    sure = all(a.certain for a in args)
    whole = all(o.array.dtype.kind not in ("float", "complex") for o in i.operands)
    if n > 1 or not places.certain or (whole and sure) or not dtype.is_float:
        found = handler(i, flat, run_scalars)
        return given(found, i.shape, sure and (whole or only_chooses(c)))
    x, updates = args[0], args[2]

    def put(into: Array, new: Array) -> Array:
        return np.asarray(handler(in_f64(i), [into, places.value, new], no_calls))

    if c.root is c.parameters[-1]:
        return moved_all([x, updates], lambda arrays: put(arrays[0] * 1.0, arrays[1]))
    if op in ("maximum", "minimum") and sure:
        return Bounded(put(x.value, updates.value))
    if op == "multiply":
        count = np.log2(put(np.ones(x.value.shape), np.full(updates.value.shape, 2.0)))

        def times(a: Array) -> Array:
            return put(np.ones(x.value.shape), a)

        found = sums.product(updates, x, times, count, dtype, dtype, rounding)
        return select(Bounded(count > 0), found, x)
    if op != "add":
        return given(handler(i, flat, run_scalars), i.shape, sure=False)
    return _added(rounding, x, updates, put, dtype)


def _added(
    rounding: MachineRounding,
    x: Bounded,
    updates: Bounded,
    put: Callable[[Array, Array], Array],
    dtype: DType,
) -> Bounded:
    """Updates added to their places one after the other, each sum in the element type."""
    count = put(np.zeros(x.value.shape), np.ones(updates.value.shape))
    value = put(x.value, updates.value)
    squares = put(x.value * x.value, updates.value * updates.value)
    error = put(x.errors, updates.errors)
    plain = sums.plain(x.value) and sums.plain(updates.value)
    step = sums.grid(np.append(x.value.reshape(-1), updates.value.reshape(-1))) if plain else None
    found = sums.total(value, squares, error, count + 1, step, dtype, dtype, rounding)
    return Bounded(value, np.where(count == 0, x.errors, found.errors))


def _select_and_scatter(rounding: MachineRounding, i: Instruction, args: list[Bounded]) -> Known:
    a, source, init = args
    handler, dtype = interp_window.select_and_scatter, i.array.dtype
    if not a.certain or simple_op(i.attrs["scatter"]) != "add" or not dtype.is_float:
        flat = [narrow(x, o.array.dtype) for x, o in zip(args, i.operands, strict=True)]
        found = handler(i, flat, run_scalars)
        exactly = dtype.kind not in ("float", "complex") or only_chooses(i.attrs["scatter"])
        return given(found, i.shape, exactly and all(x.certain for x in args))
    zero = np.float64(0)

    def put(start: Array, new: Array) -> Array:
        return np.asarray(handler(in_f64(i), [a.value, new, zero], run_scalars)) + start

    start = moved(init, lambda v: np.full(a.value.shape, v))
    return _added(rounding, start, source, put, dtype)


def _sort(rounding: MachineRounding, i: Instruction, args: list[Bounded]) -> Known:
    axis, c = i.attrs["dimensions"][0], i.attrs["to_apply"]
    flat = [narrow(a, o.array.dtype) for a, o in zip(args, i.operands, strict=True)]
    rows = [np.moveaxis(a, axis, 0) for a in flat]
    order = np.moveaxis(interp_sort._order(c, rows, run_scalars), 0, axis)

    def move(a: Array) -> Array:
        return np.take_along_axis(a, order, axis)

    found = [moved(a, move) for a in args]
    compared = [n for n, a in enumerate(args) if _reads(c, n)]
    if not all(args[n].certain for n in compared):
        found = [_near(f, n in compared, len(compared), axis) for n, f in enumerate(found)]
    return tuple(found) if isinstance(i.shape, TupleShape) else found[0]


def _reads(c: Computation, number: int) -> bool:
    used = set(post_order([c.root], needs))
    return any(c.parameters[2 * number + k] in used for k in range(2))


def _near(x: Bounded, key: bool, keys: int, axis: int) -> Bounded:
    """A sorted operand whose order is not certain: a lone key moves no further than its error."""
    if key and keys == 1 and x.value.dtype.kind == "f":
        most = np.max(x.errors, axis=axis, keepdims=True, initial=0.0)
        return Bounded(x.value, np.broadcast_to(most, x.value.shape))
    return unknown(x.value)


def _topk(rounding: MachineRounding, i: Instruction, args: list[Bounded]) -> Known:
    x, dtype = args[0], i.operands[0].array.dtype
    found, at = interp_sort.topk(i, [narrow(x, dtype)], no_calls)
    if x.certain:
        return Bounded(wide(found, dtype)), Bounded(at)
    most = np.max(x.errors, axis=-1, keepdims=True, initial=0.0)
    value = np.take_along_axis(x.value, at.astype(np.int64), -1)
    return Bounded(value, np.broadcast_to(most, value.shape)), unknown(at)


RULES: dict[str, PlaceRule] = {
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "sort": _sort,
    "topk": _topk,
}
