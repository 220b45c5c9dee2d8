"""Single instructions in FuseOps: their pattern kind, cost and place in a group."""

from __future__ import annotations

import math

from ...arrays import ALIGNMENT
from ..nodes import Instruction, Shape, TupleShape
from ..ops.definition import Pattern
from ..ops.registry import definition
from ..patterns.match import nonunit
from ..patterns.nibbles import nibbles_of
from ..patterns.parts import parts_of

_OUTSIDE = (Pattern.ALIAS, Pattern.CONTROL, Pattern.LIBRARY)


def pattern(i: Instruction) -> Pattern:
    """Return the pattern kind of an instruction. What is not known is opaque."""
    op = definition(i.opcode)
    if op.pattern is not Pattern.ELEMENTWISE:
        return op.pattern
    same = all(isinstance(o.shape, Shape) and o.shape.dims == i.array.dims for o in i.operands)
    return Pattern.ELEMENTWISE if same else op.reshaping_pattern


def is_work(i: Instruction) -> bool:
    """True if an instruction must be computed by a group. A reshape may turn out to be a view."""
    return pattern(i) not in _OUTSIDE


def is_free(i: Instruction) -> bool:
    """True if every group that uses ``i`` makes its own: scalars and splats of constants, iotas."""
    if i.opcode == "constant":
        return isinstance(i.shape, Shape) and i.shape.size == 1
    if pattern(i) is Pattern.BROADCAST or is_view(i):
        return not i.operands or is_free(i.operands[0])
    return False


def is_inlinable(i: Instruction) -> bool:
    """True if one element of ``i`` can be computed alone, where a consumer needs it."""
    return pattern(i) in (Pattern.ELEMENTWISE, Pattern.BROADCAST, Pattern.INJECTIVE)


def is_decoding(i: Instruction) -> bool:
    """True if ``i`` widens a constant, which is read in its narrow form where it is used.

    The narrow form may be in two constants, or two codes of 4 bits in a byte.
    """
    if (parts := parts_of(i)) is not None:
        return all(p.opcode == "constant" for p in parts)
    if (codes := nibbles_of(i)) is not None:
        return codes.opcode == "constant"
    op = definition(i.opcode)
    if not (op.view and op.pattern is Pattern.ELEMENTWISE and i.operands[0].opcode == "constant"):
        return False
    return i.array.dtype.is_float and i.operands[0].array.dtype.bits < i.array.dtype.bits


def dims(i: Instruction) -> tuple[int, ...]:
    """Return the dimensions of an array; of the first element, for a tuple."""
    shape = i.shape
    while isinstance(shape, TupleShape) and shape.elements:
        shape = shape.elements[0]
    return shape.dims if isinstance(shape, Shape) else ()


def is_view(i: Instruction) -> bool:
    """True if ``i`` is its operand's whole buffer under another shape."""
    op = definition(i.opcode)
    return op.alias and op.pattern is Pattern.INJECTIVE


def is_unit_view(i: Instruction) -> bool:
    """True if ``i`` is a reshape that adds and drops dimensions of size 1 and does nothing else."""
    return is_view(i) and nonunit(dims(i)) == nonunit(dims(i.operands[0]))


def is_part(i: Instruction) -> bool:
    """True if ``i`` is a piece of its operand's buffer, from a place where a value may begin."""
    cuts = i.attrs.get("slice")
    if cuts is None or any(i.operands[0].array.dynamic) or not i.array.size:
        return False
    whole, own = i.operands[0].array.dims, i.array.dims
    cut = [d for d, (a, b) in enumerate(zip(whole, own, strict=True)) if a != b]
    plain = all(c.stride == 1 for c in cuts)
    return plain and math.prod(own[: max(cut, default=0)]) == 1 and part_start(i) % ALIGNMENT == 0


def part_start(i: Instruction) -> int:
    """Return the bytes before the first element of a slice in its operand's buffer."""
    place = 0
    for extent, cut in zip(i.operands[0].array.dims, i.attrs["slice"], strict=True):
        place = place * extent + int(cut.start)
    return place * i.array.dtype.bytes


def start_of_piece(i: Instruction) -> Instruction | None:
    """Return the start of a dynamic slice that is a piece of its operand's buffer, else None.

    It is cut along one dimension, before which there are none, and may begin wherever a value may.
    """
    if "dynamic_slice_sizes" not in i.attrs or any(i.operands[0].array.dynamic) or not i.array.size:
        return None
    whole, own = i.operands[0].array.dims, i.array.dims
    cut = [d for d, (a, b) in enumerate(zip(whole, own, strict=True)) if a != b]
    if len(cut) != 1 or math.prod(whole[: cut[0]]) != 1 or piece_steps(i)[1] % ALIGNMENT:
        return None
    start = i.operands[1 + cut[0]]
    return None if is_free(start) else start


def piece_steps(i: Instruction) -> tuple[int, int]:
    """Return the last place at which a piece of a buffer may begin, and their distance in bytes."""
    whole, own = i.operands[0].array.dims, i.array.dims
    (d,) = (d for d, (a, b) in enumerate(zip(whole, own, strict=True)) if a != b)
    return whole[d] - own[d], math.prod(whole[d + 1 :]) * i.array.dtype.bytes


def flops(i: Instruction) -> float:
    """Work for one element of an inlinable instruction, in additions; moving data is free."""
    return definition(i.opcode).in_place(i)


def size(i: Instruction) -> int:
    """Return the elements of an array; 0 for tuples and tokens."""
    return i.shape.size if isinstance(i.shape, Shape) else 0


def nbytes(i: Instruction) -> int:
    """Return the bytes of an array; 0 for tuples and tokens."""
    return i.shape.bytes if isinstance(i.shape, Shape) else 0
