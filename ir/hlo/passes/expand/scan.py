"""``scan`` as a loop over the indices of one dimension.

``scan(inputs.., inits..)`` calls ``to_apply(slices.., carries..) -> (outputs.., carries..)`` for
every index of a dimension, which the slices lack. Its results are the outputs, joined along that
dimension, and the last carries.
"""

from __future__ import annotations

from ....dtypes import s64
from ...nodes import Computation, HloModule, Instruction, Shape, TupleShape
from ...patterns import build
from ...patterns.counted import Values, counted_loop
from ...rewrite import make, map_computations, rebuild


def expand_scan(module: HloModule) -> HloModule:
    """``scan(x, init)``  ->  ``while`` over the index, the carries and the outputs so far"""
    return map_computations(module, lambda c: rebuild(c, _expand))


def _expand(i: Instruction) -> Instruction | None:
    return expansion(i) if i.opcode == "scan" else None


def expansion(i: Instruction) -> Instruction:
    """Return a ``while`` loop that computes a ``scan``."""
    carries = i.attrs.get("num_carries", 1)
    inputs, inits = i.operands[: len(i.operands) - carries], i.operands[len(i.operands) - carries :]
    shapes = i.shape.elements if isinstance(i.shape, TupleShape) else (i.shape,)
    arrays = [s for s in shapes if isinstance(s, Shape)]
    outputs = arrays[: len(arrays) - carries]
    (dim,) = i.attrs["dimensions"]
    extent = [*(x.array.dims[dim] for x in inputs), *(s.dims[dim] for s in outputs), 0][0]
    blank = [build.full(0, s.dtype, s.dims) for s in outputs]

    def iteration(number: Instruction, carried: Values, fixed: Values) -> Values:
        at = number
        if i.attrs.get("is_reverse"):
            at = build.pointwise("subtract", build.scalar(extent - 1, s64), number)
        slices = [_slice(x, at, dim) for x in fixed]
        old, last = carried[: len(outputs)], carried[len(outputs) :]
        made = _results(i.attrs["to_apply"], (*slices, *last))
        new = [_put(o, m, at, dim) for o, m in zip(old, made[: len(outputs)], strict=True)]
        return [*new, *made[len(outputs) :]]

    found = counted_loop(i, extent, [*blank, *inits], inputs, iteration)
    return build.tuple_of(found) if isinstance(i.shape, TupleShape) else found[0]


def _results(called: Computation, values: Values) -> list[Instruction]:
    """Inline a computation on these arguments and return its results as separate instructions."""
    new: dict[Instruction, Instruction] = {}
    for x in called.instructions:
        if x.opcode == "parameter":
            new[x] = values[x.attrs["number"]]
        else:
            new[x] = make(
                x.opcode,
                x.shape,
                [new[o] for o in x.operands],
                name=x.name,
                metadata=x.metadata,
                **x.attrs,
            )
    root = new[called.root]
    if not isinstance(root.shape, TupleShape):
        return [root]
    return [build.element(root, n) for n in range(len(root.shape.elements))]


def _slice(x: Instruction, at: Instruction, dim: int) -> Instruction:
    cut = build.rows(x, at, 1, dim)
    return build.reshape(cut, cut.array.dims[:dim] + cut.array.dims[dim + 1 :])


def _put(x: Instruction, value: Instruction, at: Instruction, dim: int) -> Instruction:
    dims = value.array.dims
    return build.put_rows(x, build.reshape(value, (*dims[:dim], 1, *dims[dim:])), at, dim)
