"""Shape inference: what an operation returns for operands of given shapes.

Inferred shapes carry no layout. What depends on more than the operands (``reshape``, ``iota``,
``convert``, ...) cannot be inferred: ``verify`` checks those.
"""

from __future__ import annotations

from . import shapes_indexing, shapes_window
from .nodes import AnyShape
from .opcodes import ELEMENTWISE
from .shapes_basic import RULES as BASIC_RULES
from .shapes_basic import Attrs, Rule, Shapes, elementwise, refuse

RULES: dict[str, Rule] = {**BASIC_RULES, **shapes_window.RULES, **shapes_indexing.RULES}

FREE_RESULT: frozenset[str] = frozenset(
    {
        "parameter", "constant", "iota", "convert", "bitcast-convert", "stochastic-convert",
        "reshape", "broadcast",
        "bitcast", "custom-call", "dynamic-reshape", "rng", "rng-bit-generator", "scan",
        "replica-id", "partition-id", "all-gather",
        "all-to-all", "reduce-scatter", "collective-broadcast", "collective-permute",
    }
)  # fmt: skip
"""Operations whose result shape is given by the text, not by the operands."""


def infer(opcode: str, operand_shapes: Shapes, attrs: Attrs) -> AnyShape:
    """The shape of ``opcode``'s result. ``VerifyError`` if the operands do not fit it.

    Also a ``VerifyError``: an operation in ``FREE_RESULT``, and one that has no rule.
    """
    if opcode in ELEMENTWISE:
        return elementwise(opcode, operand_shapes)
    rule = RULES.get(opcode)
    if rule is None:
        refuse(f"the shape of `{opcode}` does not follow from its operands")
    return rule(operand_shapes, attrs)
