"""Element-wise HLO on scalar expressions: one instruction, or a whole scalar computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeAlias

import numpy as np

from ...ir.dtypes import BY_NAME, DType, pred
from ...ir.elementwise import DIRECTIONS, TABLE
from ...ir.findings import Finding
from ...ir.formats import FORMATS
from ...ir.hlo.analysis.support import refusal
from ...ir.hlo.nodes import Computation, Instruction, Shape
from ...ir.hlo.signatures import Attrs
from ...ir.hlo.sources import source
from ...ir.loop.build import FALSE, TRUE, cast, const, op, select
from ...ir.loop.nodes import Cast, Const, Expr, Op

SAME = frozenset({"copy", "opt-barrier"})  # values handed on as they are
CONVERSIONS = frozenset({"convert", "bitcast-convert", "compare", "reduce-precision"})
SMALL_CONSTANT = 8  # elements of a constant that may become a chain of selections


def is_elementwise(instruction: Instruction) -> bool:
    """True if each element of the result needs the operands' elements at that place only."""
    opcode = instruction.opcode
    if opcode == "bitcast-convert":
        return instruction.array.dims == instruction.operands[0].array.dims
    return opcode in TABLE or opcode in CONVERSIONS or opcode in SAME


def refuse(
    instruction: Instruction, computation: Computation, why: str, *more: Instruction, hint: str = ""
) -> NoReturn:
    """Raise ``UnsupportedError`` that names the instructions and where their source was."""
    found = [
        Finding(x.opcode, x.name, computation.name, why, hint, source(x))
        for x in (instruction, *more)
    ]
    raise refusal(found, f"computation {computation.name}")


def elementwise(instruction: Instruction, args: Sequence[Expr]) -> Expr:
    """Return the element that an element-wise instruction computes from its operands' elements."""
    dtype = instruction.array.dtype
    match instruction.opcode:
        case "compare":
            return compare(instruction.attrs, *args)
        case "convert":
            return cast(args[0], dtype)
        case "bitcast-convert":
            return reinterpret(args[0], dtype)
        case "reduce-precision":
            return reduce_precision(
                args[0], instruction.attrs["exponent_bits"], instruction.attrs["mantissa_bits"]
            )
        case opcode if opcode in SAME:
            return args[0]
        case "select":
            return select(*args)
        case opcode:
            return Op(opcode, tuple(args), dtype)


def reinterpret(value: Expr, dtype: DType) -> Expr:
    """Return the bits of ``value`` as another element type of the same width."""
    return value if value.dtype == dtype else Cast(value, dtype, bits=True)


def compare(attrs: Attrs, a: Expr, b: Expr) -> Expr:
    """HLO ``compare``. ``type=TOTALORDER`` orders floats by their bits (IEEE 754, 5.10)."""
    if attrs.get("type") == "TOTALORDER" and a.dtype.is_float:
        a, b = total_order(a), total_order(b)
    return Op(DIRECTIONS[attrs["direction"]], (a, b), pred)


def total_order(x: Expr) -> Expr:
    """Return an integer that orders floats totally: -NaN < -inf < ... < -0 < 0 < ... < NaN."""
    integer = BY_NAME[f"s{x.dtype.bits}"]
    bits = reinterpret(x, integer)
    sign = op("shift-right-arithmetic", bits, const(x.dtype.bits - 1, integer))
    magnitude = const((1 << (x.dtype.bits - 1)) - 1, integer)
    return op("xor", bits, op("and", sign, magnitude))


def reduce_precision(x: Expr, exponent_bits: int, mantissa_bits: int) -> Expr:
    """Return ``x`` rounded to a float of fewer bits, to nearest even, without denormals."""
    width, own = x.dtype.bits, FORMATS[x.dtype]
    unsigned = BY_NAME[f"u{width}"]

    def c(value: int) -> Const:
        return const(value, unsigned)

    bits: Expr = reinterpret(x, unsigned)
    if (drop := own.mantissa - mantissa_bits) > 0:
        last = op("and", op("shift-right-logical", bits, c(drop)), c(1))
        rounded = op("add", bits, op("add", last, c((1 << (drop - 1)) - 1)))
        bits = op("and", rounded, c((1 << width) - (1 << drop)))
    if exponent_bits < own.exponent:
        reduced = (1 << (exponent_bits - 1)) - 1
        field = op("and", bits, c(own.infinity))
        sign = op("and", bits, c(own.sign))
        too_big = op("gt", field, c((own.bias + reduced) << own.mantissa))
        too_small = op("le", field, c((own.bias - reduced) << own.mantissa))
        bits = select(too_big, op("or", sign, c(own.infinity)), bits)
        bits = select(too_small, sign, bits)
    return select(op("ne", x, x), x, reinterpret(bits, x.dtype))


def literal(value: np.generic | float, dtype: DType) -> Const:
    """Return a number, of NumPy or Python, as a literal."""
    match dtype.kind:
        case "pred":
            return TRUE if value else FALSE
        case "signed" | "unsigned":
            return const(int(value), dtype)
        case "float":
            return const(float(value), dtype)
        case "complex":
            return const(complex(value), dtype)


def splat(instruction: Instruction) -> Const | None:
    """Return the one value of a constant whose elements are all the same bits; None for others."""
    array = np.asarray(instruction.attrs["literal"])
    dtype = instruction.array.dtype
    if array.size == 0:
        return literal(0, dtype)
    first = array.reshape(-1)[:1]
    if array.size > 1 and first.tobytes() * array.size != array.tobytes():
        return None
    return literal(first[0], dtype)


Scalars: TypeAlias = Expr | tuple["Scalars", ...]


def apply(computation: Computation, args: Sequence[Scalars]) -> tuple[Expr, ...]:
    """Return the results of a scalar computation (reducer, comparator) on scalar arguments."""
    found = _applied(computation, args)
    parts = found if isinstance(found, tuple) else (found,)
    return tuple(_scalar(p) for p in parts)


def _scalar(x: Scalars) -> Expr:
    assert not isinstance(x, tuple)
    return x


def _applied(computation: Computation, args: Sequence[Scalars]) -> Scalars:
    values: dict[Instruction, Scalars] = {}
    for x in computation.instructions:
        if x.opcode == "parameter":
            given = args[x.attrs["number"]]
            values[x] = given if isinstance(given, tuple) else cast(given, x.array.dtype)
        else:
            values[x] = _evaluated(x, computation, [values[o] for o in x.operands])
    return values[computation.root]


def _evaluated(x: Instruction, computation: Computation, operands: Sequence[Scalars]) -> Scalars:
    """Return the value of an instruction of a scalar computation."""
    match x.opcode:
        case "tuple":
            return tuple(operands)
        case "get-tuple-element":
            (whole,) = operands
            assert isinstance(whole, tuple)
            number: int = x.attrs["index"]
            return whole[number]
        case "call" | "map" | "fusion":
            callee = x.attrs["calls" if "calls" in x.attrs else "to_apply"]
            return _applied(callee, operands)
        case "conditional":
            return _branches(x, operands)
        case opcode if opcode in SAME:
            return operands[0]
        case _:
            return _arithmetic(x, computation, operands)


def _arithmetic(x: Instruction, computation: Computation, operands: Sequence[Scalars]) -> Expr:
    """Return the value of an instruction whose operands and result are single numbers."""
    if not isinstance(x.shape, Shape) or x.array.size != 1:
        refuse(x, computation, "the computation does not work on scalars")
    if x.opcode == "constant":
        return literal(np.asarray(x.attrs["literal"]).reshape(-1)[0], x.array.dtype)
    scalars = [_scalar(o) for o in operands]
    if x.opcode in ("broadcast", "reshape"):
        return reinterpret(scalars[0], x.array.dtype)
    if not is_elementwise(x):
        refuse(x, computation, "it is not an operation on scalars")
    return elementwise(x, scalars)


def _branches(x: Instruction, operands: Sequence[Scalars]) -> Scalars:
    """Compute all branches and select one: scalar operations have no effects and do not trap."""
    index, *given = operands
    choice = _scalar(index)
    if "branch_computations" in x.attrs:
        branches: Sequence[Computation] = x.attrs["branch_computations"]
    else:
        branches = x.attrs["true_computation"], x.attrs["false_computation"]
    results = [_applied(c, [a]) for c, a in zip(branches, given, strict=True)]
    chosen = results[-1]
    for n, result in reversed(list(enumerate(results[:-1]))):
        taken = choice if choice.dtype == pred else op("eq", choice, const(n, choice.dtype))
        chosen = _select(taken, result, chosen)
    return chosen


def _select(condition: Expr, yes: Scalars, no: Scalars) -> Scalars:
    if isinstance(yes, tuple):
        assert isinstance(no, tuple)
        return tuple(_select(condition, a, b) for a, b in zip(yes, no, strict=True))
    return select(condition, yes, _scalar(no))


def simple_combiner(computation: Computation) -> str | None:
    """Return the operation of a reducer that is one commutative operation on its two parameters.

    None for any other reducer. The operation may be in a wider type of the same kind, in which it
    gives the same result or a more exact one.
    """
    root, parameters = computation.root, computation.parameters
    if root.opcode == "convert" and _widens(root.operands[0].array.dtype, root.array.dtype):
        root = root.operands[0]
    if len(parameters) != 2 or root.opcode not in TABLE or not TABLE[root.opcode].commutative:
        return None
    leaves = []
    for operand in root.operands:
        if operand.opcode == "convert" and _widens(
            operand.array.dtype, computation.root.array.dtype
        ):
            operand = operand.operands[0]
        leaves.append(operand)
    return root.opcode if {*leaves} == {*parameters} else None


def _widens(wide: DType, narrow: DType) -> bool:
    return wide.kind == narrow.kind and wide.bits >= narrow.bits
