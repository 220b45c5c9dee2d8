"""Every operation of HLO by its opcode: the one table that the compiler asks."""

from __future__ import annotations

from collections.abc import Callable

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

OPS: dict[str, OpDef] = {
    d.name: d
    for family in (
        elementwise, shaping, indexing, windows, reductions, linear, control, collectives, random,
        refused,
    )
    for d in family.DEFINITIONS
}  # fmt: skip


def definition(opcode: str) -> OpDef:
    """What is known of an operation; halves of operations that XLA does not name are refused."""
    return OPS.get(opcode) or OpDef(opcode, refused=NO_CODE)


def is_known(opcode: str) -> bool:
    """True if text may name this operation; ``x-start``, ``-update``, ``-done`` wrap any other."""
    if opcode in OPS:
        return True
    base, _, stage = opcode.rpartition("-")
    return stage in ("start", "update", "done") and base in OPS


def opcodes(holds: Callable[[OpDef], object]) -> frozenset[str]:
    """The opcodes of all operations for which a predicate holds."""
    return frozenset(name for name, d in OPS.items() if holds(d))


def infer(opcode: str, operand_shapes: Shapes, attrs: Attrs) -> AnyShape:
    """The shape of an operation's result, without a layout.

    ``VerifyError`` if the operands do not fit it, and for an operation whose result does not
    follow from its operands.
    """
    rule = definition(opcode).shape
    if rule is None:
        refuse(f"the shape of `{opcode}` does not follow from its operands")
    return rule(operand_shapes, attrs)


def work(computation: Computation) -> Work:
    """The arithmetic of one run of a computation; loops count one turn, branches all."""
    return _work(computation, {})


def work_of(i: Instruction) -> Work:
    """The arithmetic of one run of an instruction."""
    known: dict[Computation, Work] = {}
    return definition(i.opcode).work(i, lambda c: _work(c, known))


def _work(computation: Computation, known: dict[Computation, Work]) -> Work:
    if computation not in known:
        total = Work()
        for i in computation.instructions:
            total += definition(i.opcode).work(i, lambda c: _work(c, known))
        known[computation] = total
    return known[computation]
