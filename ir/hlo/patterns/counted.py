"""A ``while`` that counts its iterations, built of what one iteration does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...dtypes import pred, s64
from ..nodes import Computation, Instruction, Shape, TupleShape
from ..rewrite import assemble, make, parameter
from . import build

Values: TypeAlias = Sequence[Instruction]
Iteration: TypeAlias = Callable[[Instruction, Values, Values], Values]
"""``iteration(number, carried, fixed)`` returns what is carried on; the number is a scalar s64."""


def counted_loop(
    origin: Instruction,
    count: Instruction | int,
    inits: Values,
    fixed: Values,
    iteration: Iteration,
) -> list[Instruction]:
    """Return the values carried after ``count`` iterations, the first of which has the number 0.

    ``inits`` are carried from each to the next, and ``fixed`` are the same in all of them. A count
    that is computed is a scalar s64. The loop has the name and the metadata of ``origin``.
    """
    number = build.scalar(0, s64)
    limit = [] if isinstance(count, int) else [count]
    state = build.tuple_of([number, *inits, *fixed, *limit])
    assert isinstance(state.shape, TupleShape)
    name = origin.opcode.replace("-", "_")
    loop = make(
        "while",
        state.shape,
        (state,),
        name=origin.name,
        metadata=origin.metadata,
        condition=_condition(f"{name}_more", state.shape, count),
        body=_body(f"{name}_body", state.shape, len(inits), len(fixed), iteration),
    )
    return [build.element(loop, 1 + n) for n in range(len(inits))]


def _condition(name: str, shape: TupleShape, count: Instruction | int) -> Computation:
    """Return the test of the number against the count, which is a constant or the last element."""
    state = parameter(0, shape, "state")
    last = len(shape.elements) - 1
    limit = build.scalar(count, s64) if isinstance(count, int) else build.element(state, last)
    test = make("compare", Shape(pred), (build.element(state, 0), limit), direction="LT")
    return assemble(name, (state,), test)


def _body(
    name: str, shape: TupleShape, carried: int, fixed: int, iteration: Iteration
) -> Computation:
    """Return one iteration, which hands on what is fixed."""
    state = parameter(0, shape, "state")
    number, *values = (build.element(state, n) for n in range(len(shape.elements)))
    new = iteration(number, values[:carried], values[carried:][:fixed])
    following = build.pointwise("add", number, build.scalar(1, s64))
    return assemble(name, (state,), build.tuple_of([following, *new, *values[carried:]]))
