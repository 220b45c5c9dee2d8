"""The table of all HLO operations by opcode, and queries of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ..nodes import AnyShape, Computation, Instruction
from ..signatures import Attrs, Shapes, refuse
from . import (
    collectives,
    control,
    elementwise,
    indexing,
    linear,
    random,
    reductions,
    refused,
    shaping,
    windows,
)
from .definition import NO_CODE, OpDef, Work

_FAMILIES = (
    elementwise,
    shaping,
    indexing,
    windows,
    reductions,
    linear,
    control,
    collectives,
    random,
    refused,
)

OPS: dict[str, OpDef] = {d.name: d for family in _FAMILIES for d in family.DEFINITIONS}


def definition(opcode: str) -> OpDef:
    """Return the definition of an operation; unknown ones, as ``x-start`` may be, are refused."""
    return OPS.get(opcode) or OpDef(opcode, refused=NO_CODE)


@cache
def may_have(opcode: str, attribute: str) -> bool:
    """True if text of an operation may have an attribute."""
    return definition(opcode).may_have(attribute)


def is_known(opcode: str) -> bool:
    """True if text may have this opcode: one of ``OPS``, or one with ``-start``, ``-update`` or
    ``-done`` appended."""
    if opcode in OPS:
        return True
    base, _, stage = opcode.rpartition("-")
    return stage in ("start", "update", "done") and base in OPS


def opcodes(holds: Callable[[OpDef], object]) -> frozenset[str]:
    """Return the opcodes of all operations for which a predicate holds."""
    return frozenset(name for name, d in OPS.items() if holds(d))


def infer(opcode: str, operand_shapes: Shapes, attrs: Attrs) -> AnyShape:
    """Return the shape of an operation's result, without a layout.

    ``VerifyError`` if the operands do not fit, or if the result does not follow from them.
    """
    rule = definition(opcode).shape
    if rule is None:
        refuse(f"the shape of `{opcode}` does not follow from its operands")
    return rule(operand_shapes, attrs)


def work(computation: Computation) -> Work:
    """Return the arithmetic of one run of a computation: one iteration of loops, all branches."""
    return _work(computation, {})


def work_of(i: Instruction) -> Work:
    """Return the arithmetic of one run of an instruction."""
    known: dict[Computation, Work] = {}
    return definition(i.opcode).work(i, lambda c: _work(c, known))


def _work(computation: Computation, known: dict[Computation, Work]) -> Work:
    if computation not in known:
        total = Work()
        for i in computation.instructions:
            total += definition(i.opcode).work(i, lambda c: _work(c, known))
        known[computation] = total
    return known[computation]
