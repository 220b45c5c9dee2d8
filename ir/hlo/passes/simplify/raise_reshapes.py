"""Reshapes of cheap arithmetic on parameters are reshapes of the parameters, which are no work.

A reduction or an element-wise loop reads ``x - mean`` in its own shape, and ``x`` from memory in
order. With the reshape after the difference each index would be a quotient and a remainder. What
has one operand, such as a conversion, other passes move or match as it is. The pass runs after
``sink_reshapes``, which moves the other way, and may repeat the arithmetic.
"""

from __future__ import annotations

from ...nodes import HloModule, Instruction, Shape
from ...ops.registry import definition
from ...patterns import build
from ...patterns.match import is_pointwise, splat
from ...rewrite import make, map_computations, rebuild

CHEAP = 4.0
"""Additions that an element's arithmetic may take each time that it is repeated."""

_DEPTH = 4


def raise_reshapes(module: HloModule) -> HloModule:
    """``reshape(op(parameter, broadcast))``  ->  ``op(reshape(parameter), broadcast)``"""
    return map_computations(module, lambda c: rebuild(c, _raised))


def _raised(i: Instruction) -> Instruction | None:
    if i.opcode != "reshape" or not is_pointwise(i.operands[0]):
        return None
    dims = i.array.dims
    read = _leaves(i.operands[0], _DEPTH)
    if len(read) < 2 or not any(x.opcode == "parameter" for x in read):
        return None
    if not all(x.opcode == "parameter" or _is_spread(x, dims) for x in read):
        return None
    return _reshaped(i.operands[0], dims)


def _leaves(x: Instruction, depth: int) -> list[Instruction]:
    """Return what cheap arithmetic in ``x`` is on, and what it is in that is not cheap."""
    if not depth or not is_pointwise(x) or definition(x.opcode).in_place(x) > CHEAP:
        return [x]
    return [leaf for o in x.operands for leaf in _leaves(o, depth - 1)]


def _is_spread(x: Instruction, dims: tuple[int, ...]) -> bool:
    """True if ``x`` is a splat, or a row for each of the rows that ``dims`` end in."""
    if x.opcode != "broadcast":
        return splat(x) is not None
    row = x.operands[0].array.dims
    at = tuple(range(x.array.rank - len(row), x.array.rank))
    return not row or (x.attrs["dimensions"] == at and dims[-len(row) :] == row)


def _reshaped(x: Instruction, dims: tuple[int, ...]) -> Instruction:
    if not is_pointwise(x):
        return build.reshape(x, dims)
    parts = tuple(_reshaped(o, dims) for o in x.operands)
    return make(x.opcode, Shape(x.array.dtype, dims), parts, metadata=x.metadata, **x.attrs)
