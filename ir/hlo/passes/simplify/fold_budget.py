"""How much folding a module is worth: bytes that are made on the way, bytes kept, and work.

Budgets grow with the constants that a module brings, so that weights are folded whatever their
size, and text of a few lines makes no more than a few tens of megabytes. Work is counted in
elements and multiply-adds, never in seconds: what is folded does not depend on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...nodes import HloModule, Instruction, Shape
from ...ops.registry import definition
from ...text.content import literal_bytes

TEMPORARY = 1 << 26
"""Bytes of operands and result of one operation, whatever its constants hold."""

KEPT = 1 << 24
"""Bytes of all results, beside those that the module's constants pay for."""

WORK = 1 << 28
"""Elements and multiply-adds, beside those that the module's constants pay for."""

EACH_CONSTANT = 4
"""How many times over a module's constants may be made anew."""

EACH_ELEMENT = 64
"""Work that each byte of the constants pays for."""


@dataclass
class Budget:
    """What is left of a pass over one module."""

    kept: int
    work: int

    def pays(self, i: Instruction) -> bool:
        """Take what folding ``i`` costs, if it is left and not too much at once."""
        spread = sum(o.array.bytes for o in i.operands if o.opcode != "constant")
        given = sum(o.array.bytes for o in i.operands if o.opcode == "constant")
        cost = work(i)
        if spread + i.array.bytes > max(TEMPORARY, EACH_CONSTANT * given):
            return False
        if i.array.bytes > self.kept or cost > self.work:
            return False
        self.kept -= i.array.bytes
        self.work -= cost
        return True


def budget(module: HloModule) -> Budget:
    """The budget of one pass over a module."""
    given = literal_bytes(module)
    return Budget(KEPT + EACH_CONSTANT * given, WORK + EACH_ELEMENT * given)


def work(i: Instruction) -> int:
    """Elements that computing ``i`` reads and writes; multiply-adds of products and windows."""
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
