"""Operations across devices, from the operands of all devices of a group to all their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...arrays import Array
from ...conversion import convert
from ...reducers import UFUNCS, in_order
from ..device_groups import Groups
from ..nodes import Computation, Instruction, TupleShape
from .values import CallEvaluator, Value, shaped


def exchanged(
    i: Instruction, given: Mapping[int, Sequence[Array]], pairs: Groups, run: CallEvaluator
) -> dict[int, Value]:
    """Return the result on each device of a group, by its number.

    ``given`` has the operands by device, in the order of the group; ``pairs`` are those of a
    permutation, by device. Reductions combine in the order of the group.
    """
    columns = [[values[k] for values in given.values()] for k in range(len(i.operands))]
    count = len(given)
    match i.opcode:
        case "all-reduce":
            rows = [[_reduced(i, c, run) for c in columns]] * count
        case "all-gather":
            rows = [[np.concatenate(c, i.attrs["dimensions"][0]) for c in columns]] * count
        case "reduce-scatter":
            d = i.attrs["dimensions"][0]
            cut = [np.split(_reduced(i, c, run), count, d) for c in columns]
            rows = [[pieces[n] for pieces in cut] for n in range(count)]
        case "all-to-all" if isinstance(i.shape, TupleShape):
            rows = [[values[n] for values in given.values()] for n in range(count)]
        case "all-to-all":
            d = i.attrs["dimensions"][0]
            cut = [np.split(a, count, d) for a in columns[0]]
            rows = [[np.concatenate([pieces[n] for pieces in cut], d)] for n in range(count)]
        case "collective-broadcast":
            rows = [[c[0] for c in columns]] * count
        case _:
            source = {to: of for of, to in pairs}
            rows = [
                list(given[source[n]]) if n in source else zeros(values)
                for n, values in given.items()
            ]
    return {n: shaped(i, r) for n, r in zip(given, rows, strict=True)}


def zeros(values: Sequence[Array]) -> list[Array]:
    """Return arrays of zeros, the results of a permutation on a device that nobody sends to."""
    return [np.zeros_like(v) for v in values]


def _reduced(i: Instruction, values: Sequence[Array], run: CallEvaluator) -> Array:
    reducer = i.attrs["to_apply"]
    if op := reducer_op(reducer):
        return in_order(op, values)
    combine = run.lifted(reducer)
    total = values[0]
    for value in values[1:]:
        total = convert(np.asarray(combine(total, value)), values[0].dtype)
    return total


def reducer_op(c: Computation) -> str:
    """Return the operation that a reducer is, if NumPy has it; else an empty text.

    Also that of one which computes in a wider type and rounds: ``in_order`` rounds once.
    """
    root = _unconverted(c.root)
    operands = [_unconverted(o) for o in root.operands]
    if root.opcode not in UFUNCS or set(operands) != set(c.parameters) or len(operands) != 2:
        return ""
    widest = max(p.array.dtype.bits for p in c.parameters)
    return root.opcode if root.array.dtype.bits >= widest else ""


def _unconverted(i: Instruction) -> Instruction:
    """Return the operand of a conversion between two types of one kind."""
    if i.opcode != "convert" or i.operands[0].array.dtype.kind != i.array.dtype.kind:
        return i
    return i.operands[0]
