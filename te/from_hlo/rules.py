"""The table of what an element of each injective operation is, by opcode."""

from __future__ import annotations

from ...ir.elementwise import TABLE
from ...ir.hlo.nodes import Instruction
from ...ir.loop.nodes import Expr
from . import indexed, injective
from .emitter import Emitter, Index, Rule
from .scalars import CONVERSIONS, SAME, elementwise


def _pointwise(e: Emitter, x: Instruction, at: Index) -> Expr:
    """Operands at the same place; scalar ones (of clamp, select) at no place."""
    args = [e.element(o, at) if o.array.rank == len(at) else e.scalar(o) for o in x.operands]
    return elementwise(x, args)


RULES: dict[str, Rule] = {
    **dict.fromkeys([*TABLE, *CONVERSIONS, *SAME], _pointwise),
    **injective.RULES,
    **indexed.RULES,
}
