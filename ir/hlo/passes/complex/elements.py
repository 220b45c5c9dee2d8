"""Element-wise operations on complex arrays as operations on their parts, by opcode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...nodes import Instruction
from ...patterns import build
from ...patterns.numbers import Num
from ...rewrite import make
from . import arithmetic, circular, exponential, inverse
from .arithmetic import Complex
from .values import Parts, PartsRule, Value, has_complex, join, part_shape


def join_or_split(i: Instruction, operands: list[Value]) -> Value:
    """Rewrite ``complex``, ``real`` and ``imag``; a real array is its own real part."""
    if i.opcode == "complex":
        re, im = map(join, operands)
        return Parts(re, im)
    match operands[0], i.opcode:
        case Parts(re=re), "real":
            return re
        case Parts(im=im), _:
            return im
        case x, "real":
            return join(x)
        case _:
            return build.full(0, i.array.dtype, i.array.dims)


def _numbers(operands: list[Value]) -> list[Complex]:
    return [Complex(Num(v.re), Num(v.im)) for v in operands if isinstance(v, Parts)]


def _formula(f: Callable[..., Complex]) -> PartsRule:
    def rule(i: Instruction, operands: list[Value]) -> Value:
        z = f(*_numbers(operands))
        return Parts(_with_metadata(i, z.re.node), _with_metadata(i, z.im.node))

    return rule


def _real_formula(f: Callable[..., Num]) -> PartsRule:
    def rule(i: Instruction, operands: list[Value]) -> Value:
        return _with_metadata(i, f(*_numbers(operands)).node)

    return rule


def _with_metadata(i: Instruction, new: Instruction) -> Instruction:
    """Give ``i``'s metadata to ``new``, the last step of its formula."""
    if i.metadata is None or new.metadata is not None or new.opcode == "parameter":
        return new
    return replace(new, metadata=i.metadata)


def _compare(i: Instruction, operands: list[Value]) -> Value:
    a, b = _numbers(operands)
    found = arithmetic.equal(a, b) if i.attrs["direction"] == "EQ" else arithmetic.differ(a, b)
    return _with_metadata(i, found.node)


def _select(i: Instruction, operands: list[Value]) -> Value:
    condition, a, b = operands
    assert isinstance(a, Parts) and isinstance(b, Parts)
    which, shape = join(condition), part_shape(i.array)
    return Parts(
        make("select", shape, (which, a.re, b.re), metadata=i.metadata),
        make("select", shape, (which, a.im, b.im), metadata=i.metadata),
    )


def _convert(i: Instruction, operands: list[Value]) -> Value:
    """Convert between complex types; real arrays get, or complex ones lose, the imaginary part."""
    (x,) = operands
    dtype = part_shape(i.array).dtype
    match x:
        case Parts(re=re) if not has_complex(i.shape):
            return build.convert(re, dtype)
        case Parts(re=re, im=im):
            return Parts(build.convert(re, dtype), build.convert(im, dtype))
        case _:
            return Parts(build.convert(join(x), dtype), build.full(0, dtype, i.array.dims))


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
"""The formula of each operation on complex arrays."""

RULES: dict[str, PartsRule] = {
    **{opcode: _formula(f) for opcode, f in FORMULAS.items()},
    "abs": _real_formula(arithmetic.magnitude),
    "compare": _compare,
    "select": _select,
    "convert": _convert,
}
