"""Element-wise operations on complex arrays, as operations on their parts, by opcode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ...nodes import Instruction
from ...patterns import build
from ...patterns.numbers import Num
from ...rewrite import make
from . import arithmetic as arithmetic
from . import circular as circular
from . import exponential as exponential
from . import inverse as inverse
from .arithmetic import Complex
from .values import Pair, Value, has_complex, join, part_shape

Rule: TypeAlias = Callable[[Instruction, list[Value]], Value]


def form(i: Instruction, operands: list[Value]) -> Value:
    """``complex``, ``real`` and ``imag``; a real array is its own real part."""
    if i.opcode == "complex":
        re, im = map(join, operands)
        return Pair(re, im)
    match operands[0], i.opcode:
        case Pair(re=re), "real":
            return re
        case Pair(im=im), _:
            return im
        case x, "real":
            return join(x)
        case _:
            return build.full(0, i.array.dtype, i.array.dims)


def _numbers(operands: list[Value]) -> list[Complex]:
    return [Complex(Num(v.re), Num(v.im)) for v in operands if isinstance(v, Pair)]


def _formula(f: Callable[..., Complex]) -> Rule:
    def rule(i: Instruction, operands: list[Value]) -> Value:
        z = f(*_numbers(operands))
        return Pair(_noted(i, z.re.node), _noted(i, z.im.node))

    return rule


def _real_formula(f: Callable[..., Num]) -> Rule:
    def rule(i: Instruction, operands: list[Value]) -> Value:
        return _noted(i, f(*_numbers(operands)).node)

    return rule


def _noted(i: Instruction, new: Instruction) -> Instruction:
    """What the source said of ``i``, kept with the last step of its formula."""
    if i.metadata is None or new.metadata is not None or new.opcode == "parameter":
        return new
    return replace(new, metadata=i.metadata)


def _compare(i: Instruction, operands: list[Value]) -> Value:
    a, b = _numbers(operands)
    found = arithmetic.equal(a, b) if i.attrs["direction"] == "EQ" else arithmetic.differ(a, b)
    return _noted(i, found.node)


def _select(i: Instruction, operands: list[Value]) -> Value:
    condition, a, b = operands
    assert isinstance(a, Pair) and isinstance(b, Pair)
    which, shape = join(condition), part_shape(i.array)
    return Pair(
        make("select", shape, (which, a.re, b.re), metadata=i.metadata),
        make("select", shape, (which, a.im, b.im), metadata=i.metadata),
    )


def _convert(i: Instruction, operands: list[Value]) -> Value:
    """Between complex types; from real ones with an imaginary part of 0; to them without it."""
    (x,) = operands
    dtype = part_shape(i.array).dtype
    match x:
        case Pair(re=re) if not has_complex(i.shape):
            return build.convert(re, dtype)
        case Pair(re=re, im=im):
            return Pair(build.convert(re, dtype), build.convert(im, dtype))
        case _:
            return Pair(build.convert(join(x), dtype), build.full(0, dtype, i.array.dims))


FORMULAS: dict[str, Callable[..., Complex]] = {
    "add": arithmetic.add,
    "subtract": arithmetic.subtract,
    "multiply": arithmetic.multiply,
    "divide": arithmetic.divide,
    "negate": arithmetic.negate,
    "sign": arithmetic.sign,
    "sqrt": arithmetic.sqrt,
    "rsqrt": arithmetic.rsqrt,
    "cbrt": exponential.cbrt,
    "exponential": exponential.exp,
    "exponential-minus-one": exponential.expm1,
    "log": exponential.log,
    "log-plus-one": exponential.log1p,
    "power": exponential.power,
    "atan2": exponential.atan2,
    "logistic": circular.logistic,
    "sine": circular.sin,
    "cosine": circular.cos,
    "tan": circular.tan,
    "sinh": circular.sinh,
    "cosh": circular.cosh,
    "tanh": circular.tanh,
    "asin": inverse.asin,
    "acos": inverse.acos,
    "atan": inverse.atan,
    "asinh": inverse.asinh,
    "acosh": inverse.acosh,
    "atanh": inverse.atanh,
}
"""What each operation makes of complex numbers."""

RULES: dict[str, Rule] = {
    **{opcode: _formula(f) for opcode, f in FORMULAS.items()},
    "abs": _real_formula(arithmetic.magnitude),
    "compare": _compare,
    "select": _select,
    "convert": _convert,
}
