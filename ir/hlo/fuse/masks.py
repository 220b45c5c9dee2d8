"""FuseOps, at the end: masks and positions that arrive as constants are computed in their group.

A causal mask may be a constant ``pred[s, t]`` (``jnp.tril`` of ones that was folded, or a buffer of
the model), or a comparison with constant positions. Computed by ``iota`` it costs no memory, and
the schedule sees which keys it hides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...dtypes import pred, s32
from ..nodes import Computation, Instruction, Shape
from ..rewrite import assemble, constant, make, with_attrs, with_operands
from .groups import Fusion, Group

Array = np.ndarray[Any, Any]
LARGEST = 1 << 26  # elements of a constant that is looked at


def compute_masks(fusion: Fusion, kind: str) -> Fusion:
    """Return the fusion with the constant masks and positions in groups of a kind computed."""
    groups = tuple(_computed(g) if g.kind == kind else g for g in fusion.groups)
    if all(a is b for a, b in zip(groups, fusion.groups, strict=True)):
        return fusion
    return replace(fusion, groups=groups)


def _computed(group: Group) -> Group:
    found = {n: f for n, i in enumerate(group.inputs) if (f := _formula(i)) is not None}
    if not found:
        return group
    kept = [n for n in range(len(group.inputs)) if n not in found]
    by = {group.computation.parameters[n]: f for n, f in found.items()}
    return replace(
        group,
        inputs=tuple(group.inputs[n] for n in kept),
        computation=_without(group.computation, kept, by),
    )


def _without(c: Computation, kept: list[int], by: dict[Instruction, Instruction]) -> Computation:
    """Return a computation with some parameters kept, renumbered, and the others computed."""
    new = dict(by)
    for number, old in enumerate(kept):
        new[c.parameters[old]] = with_attrs(c.parameters[old], number=number)
    for i in c.instructions:
        if i not in new:
            new[i] = with_operands(i, tuple(new[o] for o in i.operands)) if i.operands else i
    return assemble(c.name, (new[c.parameters[n]] for n in kept), new[c.root])


def _formula(i: Instruction) -> Instruction | None:
    """Return a computation of a constant from ``iota``; None if it has no simple one."""
    if i.opcode != "constant" or not isinstance(i.shape, Shape):
        return None
    value = np.asarray(i.attrs["literal"])
    if not 1 < value.size <= LARGEST:
        return None
    if value.dtype == np.bool_:
        return _triangle(value, i.shape)
    return _progression(value, i.shape) if i.array.dtype == s32 else None


def _progression(value: Array, shape: Shape) -> Instruction | None:
    """Return ``start + sum of step * iota`` if the elements are that."""
    start = int(value.flat[0])
    steps = [
        int(value[(*[0] * d, 1, *[0] * (value.ndim - d - 1))]) - start if n > 1 else 0
        for d, n in enumerate(value.shape)
    ]
    expected = np.full(value.shape, start, np.int64)
    for d, (n, step) in enumerate(zip(value.shape, steps, strict=True)):
        expected += (np.arange(n) * step).reshape([-1 if k == d else 1 for k in range(value.ndim)])
    if not np.array_equal(expected, value):
        return None
    total = _number(start, shape) if start else None
    for d, step in enumerate(steps):
        if step:
            along = make("iota", shape, iota_dimension=d)
            if step != 1:
                along = make("multiply", shape, (along, _number(step, shape)))
            total = along if total is None else make("add", shape, (along, total))
    return total


def _triangle(value: Array, shape: Shape) -> Instruction | None:
    """Return ``column < row + offset``, or its negation, if the elements are that."""
    if value.ndim < 2 or value.size != value.shape[-1] * value.shape[-2]:
        return None
    flat = value.reshape(value.shape[-2:])
    rows, columns = flat.shape
    for shown, direction in ((flat, "LT"), (~flat, "GE")):
        counts = shown.sum(axis=1)
        inner = np.flatnonzero((counts > 0) & (counts < columns))
        if not len(inner):
            continue
        offset = int(counts[inner[0]] - inner[0])
        expected = np.arange(columns) < np.arange(rows)[:, None] + offset
        if np.array_equal(expected, shown):
            at = Shape(s32, shape.dims)
            row = make("iota", at, iota_dimension=shape.rank - 2)
            column = make("iota", at, iota_dimension=shape.rank - 1)
            end = make("add", at, (row, _number(offset, at))) if offset else row
            return make("compare", Shape(pred, shape.dims), (column, end), direction=direction)
    return None


def _number(value: int, shape: Shape) -> Instruction:
    scalar = constant(np.array(value, np.int32))
    return make("broadcast", shape, (scalar,), dimensions=())
