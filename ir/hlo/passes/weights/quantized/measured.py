"""Recognition of arrays dequantized by computed numbers: ``(q - zero) * scale``, of rows or of all.

Such scales and zero points are those of dynamic quantization, which follow from the array itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from .....dtypes import f32, s8, u8
from ....nodes import Instruction
from ....patterns import build
from ....patterns.ranges import interval

LARGEST = 255
"""Zero points up to which sums of codes stay in 32 bits."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The f32 matrix ``(codes - zero) * scale``, of ``[rows, columns]``.

    ``zero``, integers of any type, and ``scale``, f32, have no dimension or that of the rows; a
    zero point of None is 0.
    """

    codes: Instruction
    zero: Instruction | None
    scale: Instruction


def measured(x: Instruction) -> Measured | None:
    """Return a matrix of f32 as codes, zero points and scales; None if it is something else."""
    rows, columns = x.array.dims
    inner = x
    while inner.opcode == "reshape":
        inner = inner.operands[0]
    if inner.opcode != "multiply" or inner.array.dims[-1:] != (columns,):
        return None
    for codes, factor in (inner.operands, inner.operands[::-1]):
        scale, found = _of_rows(factor, rows), _shifted(codes, rows)
        if scale is not None and found is not None:
            return Measured(build.reshape(found[0], (rows, columns)), found[1], scale)
    return None


def _shifted(x: Instruction, rows: int) -> tuple[Instruction, Instruction | None] | None:
    """Return codes of 8 bits and what is subtracted of them as floats."""
    zero: Instruction | None = None
    if x.opcode == "subtract":
        found = _of_rows(x.operands[1], rows)
        if found is None or (zero := _whole(found)) is None:
            return None
        x = x.operands[0]
    if x.opcode != "convert" or x.array.dtype != f32 or x.operands[0].array.dtype not in (s8, u8):
        return None
    return x.operands[0], zero


def _whole(x: Instruction) -> Instruction | None:
    """Return the integers that floats are converted from, if they cannot be large."""
    moved: list[tuple[int, ...]] = []
    while x.opcode == "reshape":
        moved.append(x.array.dims)
        x = x.operands[0]
    if x.opcode != "convert" or not x.operands[0].array.dtype.is_int:
        return None
    ends = interval(x.operands[0])
    if ends is None or max(map(abs, ends)) > LARGEST:
        return None
    return build.reshape(x.operands[0], moved[0]) if moved else x.operands[0]


def _of_rows(x: Instruction, rows: int) -> Instruction | None:
    """Return the numbers of which an array has one for each row, or one for all."""
    if x.opcode != "broadcast":
        return None
    source, mapped = x.operands[0], x.attrs.get("dimensions", ())
    if source.array.rank == 0:
        return source
    *outer, _ = x.array.dims
    if len(outer) in mapped or any(d not in mapped and n > 1 for d, n in enumerate(outer)):
        return None
    if source.array.size != rows or list(mapped) != sorted(mapped):
        return None
    return build.reshape(source, (rows,))
