"""What FuseOps knows about single instructions: their pattern kind, cost and place in a group."""

from __future__ import annotations

from enum import Enum

from ..elementwise import TABLE
from .library import OPCODES
from .nodes import Instruction, Shape, TupleShape
from .opcodes import ELEMENTWISE


class Pattern(Enum):
    """How results depend on operands, from the easiest to fuse to the hardest."""

    ALIAS = "alias"  # no work: a name, a view or a part of a buffer
    CONTROL = "control flow"
    LIBRARY = "library call"  # a function of the host computes it
    BROADCAST = "broadcast"  # an element of the result needs one of the operand, or none
    ELEMENTWISE = "elementwise"
    INJECTIVE = "injective"
    REDUCTION = "reduction"
    OUT_FUSABLE = "out-fusable"  # takes element-wise work on its result, none on its operands
    WINDOW = "window"  # a reduction over overlapping windows
    OPAQUE = "opaque"


_BY_OPCODE: dict[str, Pattern] = {
    name: pattern
    for pattern, names in {
        Pattern.ALIAS: "parameter constant tuple get-tuple-element after-all get-dimension-size "
        "set-dimension-size add-dependency",
        Pattern.CONTROL: "while conditional call",
        Pattern.LIBRARY: " ".join(OPCODES),
        Pattern.BROADCAST: "broadcast iota",
        Pattern.INJECTIVE: "reshape transpose slice concatenate pad reverse dynamic-slice gather "
        "real imag",
        Pattern.REDUCTION: "reduce",
        Pattern.WINDOW: "reduce-window",
        Pattern.OUT_FUSABLE: "dot convolution",
    }.items()
    for name in names.split()
}
_POINTWISE = ELEMENTWISE | {"compare", "convert", "reduce-precision", "complex"}


_OUTSIDE = (Pattern.ALIAS, Pattern.CONTROL, Pattern.LIBRARY)


def pattern(i: Instruction) -> Pattern:
    """The pattern kind of an instruction. What is not known is opaque."""
    if i.opcode in _POINTWISE:
        same = all(isinstance(o.shape, Shape) and o.shape.dims == i.array.dims for o in i.operands)
        return Pattern.ELEMENTWISE if same else Pattern.OPAQUE
    if i.opcode == "bitcast-convert":
        same = i.operands[0].array.dims == i.array.dims
        return Pattern.ELEMENTWISE if same else Pattern.INJECTIVE
    return _BY_OPCODE.get(i.opcode, Pattern.OPAQUE)


def is_work(i: Instruction) -> bool:
    """Whether an instruction must be computed by a group. A reshape may turn out to be a view."""
    return pattern(i) not in _OUTSIDE


def is_free(i: Instruction) -> bool:
    """Whether every group that uses ``i`` makes its own: scalars and splats of constants, iotas."""
    if i.opcode == "constant":
        return isinstance(i.shape, Shape) and i.shape.size == 1
    if i.opcode in ("broadcast", "reshape"):
        return is_free(i.operands[0])
    return i.opcode == "iota"


def is_inlinable(i: Instruction) -> bool:
    """Whether one element of ``i`` can be computed alone, where a consumer needs it."""
    return pattern(i) in (Pattern.ELEMENTWISE, Pattern.BROADCAST, Pattern.INJECTIVE)


def dims(i: Instruction) -> tuple[int, ...]:
    """The dimensions of an array; of the first element, for a tuple."""
    shape = i.shape
    while isinstance(shape, TupleShape) and shape.elements:
        shape = shape.elements[0]
    return shape.dims if isinstance(shape, Shape) else ()


def nonunit(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions other than 1."""
    return tuple(d for d in shape if d != 1)


def is_unit_view(i: Instruction) -> bool:
    """Whether ``i`` is a reshape that adds and drops dimensions of size 1 and does nothing else."""
    return i.opcode == "reshape" and nonunit(dims(i)) == nonunit(dims(i.operands[0]))


def flops(i: Instruction) -> float:
    """Work for one element of an inlinable instruction, in additions; moving data is free."""
    if i.opcode in TABLE:
        return TABLE[i.opcode].flops
    match i.opcode:
        case "broadcast" | "reshape" | "transpose" | "slice" | "reverse" | "iota" | "constant":
            return 0.0
        case "real" | "imag" | "complex":
            return 0.0
        case "gather" | "dynamic-slice" | "pad":
            return 2.0
        case "concatenate":
            return float(len(i.operands))
        case _:
            return 1.0


def size(i: Instruction) -> int:
    """Elements of an array; 0 for tuples and tokens."""
    return i.shape.size if isinstance(i.shape, Shape) else 0


def nbytes(i: Instruction) -> int:
    """Bytes of an array; 0 for tuples and tokens."""
    return i.shape.bytes if isinstance(i.shape, Shape) else 0
