"""The interpreter's values, and what computes them: the signature of an operation's meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...elementwise import TABLE
from ..nodes import Computation, Instruction

Array: TypeAlias = np.ndarray[Any, Any]
Value: TypeAlias = Any
"""An array or a tuple of values; NumPy's functions take what the verifier let through."""


class Run(Protocol):
    """Runs called computations."""

    def __call__(self, computation: Computation, args: Sequence[Value], /) -> Value:
        """The result of one run."""

    def lifted(self, computation: Computation) -> Callable[..., Value]:
        """A computation of scalars as a function of arrays of one shape, element by element."""


Handler: TypeAlias = Callable[[Instruction, list[Value], Run], Value]
"""Computes one instruction from the values of its operands."""


def first(i: Instruction, args: list[Value], run: Run) -> Value:
    """The first operand as it is."""
    return args[0]


def simple_op(c: Computation) -> str | None:
    """``add`` if a reducer is ``add(p0, p1)`` in either order, likewise other operations."""
    root = c.root
    commutes = root.opcode in TABLE and TABLE[root.opcode].commutative
    if commutes and len(c.parameters) == 2 and set(root.operands) == set(c.parameters):
        return root.opcode
    return None
