"""The one table: ATen's overloads, each the function of terms that writes it."""

from __future__ import annotations

from .operators import (
    control,
    factorizations,
    fourier,
    indexing,
    linear,
    logic,
    order,
    padding,
    pointwise,
    quantized,
    reductions,
    selection,
    shaping,
    special,
)
from .operators.call import Operator
from .operators.layers import (
    activations,
    attention,
    bags,
    convolution,
    normalization,
    pooling,
    recurrent,
    resampling,
    transformer,
)
from .refusals import REFUSED

_FAMILIES = (
    activations,
    attention,
    bags,
    control,
    convolution,
    factorizations,
    fourier,
    indexing,
    linear,
    logic,
    normalization,
    order,
    padding,
    pointwise,
    pooling,
    quantized,
    recurrent,
    reductions,
    resampling,
    selection,
    shaping,
    special,
    transformer,
)

ROWS: dict[str, Operator] = {name: row for family in _FAMILIES for name, row in family.ROWS.items()}


def row(target: str) -> Operator | None:
    """Return the function that writes an operator, such as ``aten.add.Tensor``."""
    return ROWS.get(target)


def why_not(target: str) -> str:
    """Return why an operator without a row is not compiled."""
    return named_reason(target) or "there is no row for it in the table"


def named_reason(target: str) -> str:
    """Return why an operator is refused by name; nothing if it is not."""
    packet = ".".join(target.split(".")[:2])
    return REFUSED.get(target) or REFUSED.get(packet) or ""
