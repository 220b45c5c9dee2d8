"""The interpreter's values, and the signature of the functions that compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from ...elementwise import TABLE
from ..nodes import Computation, Instruction, TupleShape

Value: TypeAlias = Any
"""An array or a tuple of values; untyped, since the verifier has checked the module."""


class CallEvaluator(Protocol):
    """Evaluates called computations."""

    def __call__(self, computation: Computation, args: Sequence[Value], /) -> Value:
        """Return the result of a computation on these arguments."""

    def lifted(self, computation: Computation) -> Callable[..., Value]:
        """Return a scalar computation as an element-wise function of arrays of one shape."""


Handler: TypeAlias = Callable[[Instruction, list[Value], CallEvaluator], Value]
"""Computes one instruction from the values of its operands."""


def first(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return the first operand unchanged."""
    return args[0]


def shaped(i: Instruction, values: Sequence[Value]) -> Value:
    """Return one value or a tuple of them, as an instruction's shape requires."""
    return tuple(values) if isinstance(i.shape, TupleShape) else values[0]


def simple_op(c: Computation) -> str | None:
    """Return the opcode of a reducer that is one commutative operation on its two parameters.

    None for any other reducer.
    """
    root = c.root
    commutes = root.opcode in TABLE and TABLE[root.opcode].commutative
    if commutes and len(c.parameters) == 2 and set(root.operands) == set(c.parameters):
        return root.opcode
    return None
