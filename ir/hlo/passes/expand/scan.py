"""``scan`` as a loop over the indices of one dimension.

``scan(inputs.., inits..)`` calls ``to_apply(slices.., carries..) -> (outputs.., carries..)`` for
every index of a dimension, which the slices lack. Its results are the outputs, joined along that
dimension, and the last carries.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dtypes import pred, s64
from ...nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from ...patterns import build
from ...rewrite import assemble, make, map_computations, parameter, rebuild

Values = list[Instruction]


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
    state = build.tuple_of([build.scalar(0, s64), *blank, *inits, *inputs])
    loop = make(
        "while",
        state.shape,
        (state,),
        name=i.name,
        metadata=i.metadata,
        condition=_condition(state.shape, extent),
        body=_body(i, state.shape, len(outputs), carries, extent),
    )
    found = [build.element(loop, n + 1) for n in range(len(arrays))]
    return build.tuple_of(found) if isinstance(i.shape, TupleShape) else found[0]


def _condition(shape: AnyShape, extent: int) -> Computation:
    state = parameter(0, shape, "state")
    test = (build.element(state, 0), build.scalar(extent, s64))
    return assemble("scan_more", (state,), make("compare", Shape(pred), test, direction="LT"))


def _body(i: Instruction, shape: AnyShape, outputs: int, carries: int, extent: int) -> Computation:
    """Return the loop's body: slice the inputs, run the computation, store its outputs."""
    state = parameter(0, shape, "state")
    step, *values = (build.element(state, n) for n in range(1 + outputs + len(i.operands)))
    old, carried, inputs = values[:outputs], values[outputs:][:carries], values[outputs + carries :]
    (dim,) = i.attrs["dimensions"]
    at = step
    if i.attrs.get("is_reverse"):
        at = build.pointwise("subtract", build.scalar(extent - 1, s64), step)
    slices = [_slice(x, at, dim) for x in inputs]
    made = _results(i.attrs["to_apply"], (*slices, *carried))
    new = [_put(o, m, at, dim) for o, m in zip(old, made[:outputs], strict=True)]
    following = build.pointwise("add", step, build.scalar(1, s64))
    root = build.tuple_of([following, *new, *made[outputs:], *inputs])
    return assemble("scan_turn", (state,), root)


def _results(called: Computation, values: Sequence[Instruction]) -> Values:
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
