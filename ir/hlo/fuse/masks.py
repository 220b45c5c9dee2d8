"""FuseOps, at the end: masks and positions that arrive as constants are computed in their group.

A causal mask or a window may be a constant ``pred[s, t]`` (``jnp.tril`` of ones that was folded, or
a buffer of the model), a constant that is added to the scores, or a comparison with constant
positions. Computed by ``iota`` it costs no memory, and the schedule sees which keys it hides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...arrays import Array
from ...dtypes import f32, pred, s32
from ..nodes import Computation, Instruction, Shape
from ..patterns import build
from ..patterns.match import is_splat, splat
from ..rewrite import assemble, constant, make, rebuild, with_attrs, with_operands
from .groups import Fusion, Group

LARGEST = 1 << 26  # elements of a constant that is looked at
LOW = -1e38  # any number above -1e30 added to such a number is lost in it


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
        return _band(value, i.shape)
    if i.array.dtype.is_float:
        return _added(value, i.shape)
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


def _band(value: Array, shape: Shape) -> Instruction | None:
    """Return ``row + first <= column < row + end``, a half of it, or its negation, if it is so."""
    if value.ndim < 2 or value.size != value.shape[-1] * value.shape[-2]:
        return None
    flat = value.reshape(value.shape[-2:])
    for shown, negated in ((flat, False), (~flat, True)):
        sides = _sides(shown)
        if sides is None:
            continue
        found = [_side(shape, *side, flipped=negated and len(sides) == 1) for side in sides]
        if len(found) == 1:
            return found[0]
        both = make("and", found[0].array, found)
        return make("not", both.array, (both,)) if negated else both
    return None


def _sides(shown: Array) -> list[tuple[str, int]] | None:
    """Return comparisons of the column with the row and a number, all of which hold where shown."""
    rows, columns = shown.shape
    some = np.flatnonzero(shown.any(axis=1))
    first = shown.argmax(axis=1)[some]
    end = columns - shown[:, ::-1].argmax(axis=1)[some]
    row, column = np.arange(rows)[:, None], np.arange(columns)
    expected, sides = np.ones(shown.shape, np.bool_), list[tuple[str, int]]()
    for how, ends, inner in (("GE", first, first > 0), ("LT", end, end < columns)):
        at = np.flatnonzero(inner)
        if len(at):
            by = int(ends[at[0]] - some[at[0]])
            expected &= column >= row + by if how == "GE" else column < row + by
            sides.append((how, by))
    return sides if sides and np.array_equal(expected, shown) else None


def _side(shape: Shape, how: str, by: int, *, flipped: bool) -> Instruction:
    at = Shape(s32, shape.dims)
    row = make("iota", at, iota_dimension=shape.rank - 2)
    column = make("iota", at, iota_dimension=shape.rank - 1)
    end = make("add", at, (row, _number(by, at))) if by else row
    direction = {"GE": "LT", "LT": "GE"}[how] if flipped else how
    return make("compare", Shape(pred, shape.dims), (column, end), direction=direction)


def _added(value: Array, shape: Shape) -> Instruction | None:
    """Return ``select(mask, 0, low)`` of a mask with a formula, if a constant is that."""
    shown = value == 0
    hidden = value[~shown]
    if not hidden.size or (hidden != hidden.flat[0]).any() or not hidden.flat[0] < 0:
        return None
    mask = _band(shown, shape)
    if mask is None:
        return None
    zero, low = (build.full(x, shape.dtype, shape.dims) for x in (0, hidden.flat[0]))
    return make("select", shape, (mask, zero, low))


def select_by_masks(fusion: Fusion, kind: str) -> Fusion:
    """Return the fusion with masks that are added in groups of a kind as selections.

        x + select(mask, 0, low)  ->  select(mask, x, low)

    Where ``low`` is -inf or so low that a sum with it is rounded to it. What such a mask hides is
    taken to be finite, and below 1e30: -inf and infinity make NaN.
    """
    groups = tuple(_selecting(g) if g.kind == kind else g for g in fusion.groups)
    if all(a is b for a, b in zip(groups, fusion.groups, strict=True)):
        return fusion
    return replace(fusion, groups=groups)


def _selecting(group: Group) -> Group:
    c = rebuild(group.computation, _select)
    return group if c is group.computation else replace(group, computation=c)


def _select(i: Instruction) -> Instruction | None:
    if i.opcode != "add" or i.array.dtype != f32:
        return None
    for x, mask in (i.operands, i.operands[::-1]):
        if (found := _chosen(mask)) is not None:
            shown, low = found
            return make("select", i.array, (shown, x, build.full(low, f32, i.array.dims)))
    return None


def _chosen(i: Instruction) -> tuple[Instruction, float] | None:
    """Return where ``i`` is 0 and what it is elsewhere, if that is very low; None if it is not."""
    match i.opcode:
        case "broadcast" | "reshape" | "convert" if i.operands[0].array.rank:
            if (found := _chosen(i.operands[0])) is None:
                return None
            mask, low = found
            if i.opcode == "broadcast":
                mask = build.broadcast(mask, i.attrs["dimensions"], i.array.dims)
            return build.reshape(mask, i.array.dims), low
        case "select" if i.operands[0].array.dims == i.array.dims:
            mask, a, b = i.operands
            if is_splat(b, 0):
                mask, a, b = make("not", mask.array, (mask,)), b, a
            value = splat(b)
            if value is None or not is_splat(a, 0) or not float(value) < LOW:
                return None
            return mask, float(value)
        case _:
            return None


def _number(value: int, shape: Shape) -> Instruction:
    scalar = constant(np.array(value, np.int32))
    return make("broadcast", shape, (scalar,), dimensions=())
