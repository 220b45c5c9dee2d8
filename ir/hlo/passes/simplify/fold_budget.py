"""Budgets of constant folding: temporary bytes, bytes kept, and work.

Budgets grow with a module's constants, so that weights of any size are folded while a text of a few
lines makes no more than a few tens of megabytes. Work is counted in elements and multiply-adds,
never in seconds, so that the result does not depend on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...nodes import HloModule, Instruction, Shape
from ...ops.registry import definition
from ...text.content import literal_bytes

TEMPORARY = 1 << 26
"""Bytes of operands of one operation, other than constants, that are always allowed."""

KEPT = 1 << 24
"""Bytes of all results, in addition to ``EACH_CONSTANT`` per byte of the module's constants."""

WORK = 1 << 28
"""Elements and multiply-adds, in addition to ``EACH_ELEMENT`` per byte of the constants."""

EACH_CONSTANT = 4
"""Bytes of results allowed for each byte of the module's constants, and of operands that are made
of them for one operation."""

EACH_ELEMENT = 64
"""Work allowed for each byte of the module's constants."""


@dataclass
class FoldBudget:
    """The budget that is left in one pass over a module: bytes ``kept`` and ``work``."""

    kept: int
    work: int

    def spend(self, i: Instruction, given: int) -> bool:
        """Deduct the cost of folding ``i`` of ``given`` bytes of constants and return True; False
        if it exceeds the budget.
        """
        spread = sum(o.array.bytes for o in i.operands if o.opcode != "constant")
        cost = work(i)
        if spread > max(TEMPORARY, EACH_CONSTANT * given):
            return False
        if i.array.bytes > self.kept or cost > self.work:
            return False
        self.kept -= i.array.bytes
        self.work -= cost
        return True


def budget(module: HloModule) -> FoldBudget:
    """Return the budget of one pass over a module."""
    given = literal_bytes(module)
    return FoldBudget(KEPT + EACH_CONSTANT * given, WORK + EACH_ELEMENT * given)


def work(i: Instruction) -> int:
    """Return the work of computing ``i``: elements read and written, times the multiply-adds of
    products and windows, the steps of a sort or the instructions of a reducer."""
    size = _size(i)
    read = sum(map(_size, i.operands))
    match i.opcode:
        case "sort":
            return read * max(1, read.bit_length())
        case "reduce":
            return size + read * len(i.attrs["to_apply"].instructions)
        case _:
            return size * definition(i.opcode).terms(i) + read


def _size(i: Instruction) -> int:
    return i.shape.size if isinstance(i.shape, Shape) else 0
