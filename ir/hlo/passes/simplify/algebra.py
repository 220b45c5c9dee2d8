"""Algebraic simplification of element-wise arithmetic.

Rules are exact, up to the sign of zero, the payload of NaN and one rounding where a power becomes
products. Rules that hold only for finite numbers (``x * 0``, ``x - x``) do not apply to floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....dtypes import f32, f64
from ....elementwise import TABLE
from ....formats import FORMATS
from ...interp.evaluate import evaluate_computation
from ...nodes import HloModule, Instruction, Shape
from ...patterns import build
from ...patterns.match import is_integral, is_pointwise, is_splat, splat
from ...patterns.ranges import decide
from ...rewrite import assemble, make, map_computations, rebuild, with_operands
from .shapes import is_extreme

Rule = Callable[[Instruction], Instruction | None]


def simplify_algebra(module: HloModule) -> HloModule:
    """Drop neutral operands, fold splats, decide comparisons: ``x * 1``  ->  ``x``."""
    return map_computations(module, lambda c: rebuild(c, simplify))


def simplify(i: Instruction) -> Instruction | None:
    """Return a simpler form of one element-wise instruction, None if there is none."""
    if not is_pointwise(i):
        return None
    if (folded := _fold_splats(i) or _lift_broadcast(i)) is not None:
        return folded
    rule = RULES.get(i.opcode)
    return None if rule is None else rule(i)


def _fold_splats(i: Instruction) -> Instruction | None:
    """op(splat, splat)  ->  splat, computed by the interpreter"""
    values = [splat(o) for o in i.operands]
    if any(v is None for v in values):
        return None
    operands = tuple(
        build.scalar(v, o.array.dtype) for v, o in zip(values, i.operands, strict=True)
    )
    one = make(i.opcode, Shape(i.array.dtype), operands, **i.attrs)
    result: Any = evaluate_computation(assemble("fold", (), one), ())
    return build.full(result, i.array.dtype, i.array.dims)


def _lift_broadcast(i: Instruction) -> Instruction | None:
    """op(broadcast(x), broadcast(y), splat)  ->  broadcast(op(x, y, splat))"""
    if i.array.rank == 0:
        return None
    wide = [o for o in i.operands if splat(o) is None]
    if not wide or any(o.opcode != "broadcast" for o in wide):
        return None
    mapped, dims = wide[0].attrs.get("dimensions", ()), wide[0].operands[0].array.dims
    if any(o.attrs.get("dimensions", ()) != mapped for o in wide):
        return None
    small = tuple(
        o.operands[0] if (v := splat(o)) is None else build.full(v, o.array.dtype, dims)
        for o in i.operands
    )
    one = make(i.opcode, Shape(i.array.dtype, dims), small, metadata=i.metadata, **i.attrs)
    return build.broadcast(one, mapped, i.array.dims)


def _add(i: Instruction) -> Instruction | None:
    return _neutral(i, 0) if i.array.dtype.kind != "pred" else _neutral(i, 0) or _absorbing(i, 1)


def _multiply(i: Instruction) -> Instruction | None:
    if (simpler := _neutral(i, 1)) is not None:
        return simpler
    if is_integral(i) and (zero := _absorbing(i, 0)) is not None:
        return zero
    a, b = i.operands
    if is_splat(b, -1):
        return build.pointwise("negate", a)
    return None


def _neutral(i: Instruction, value: float) -> Instruction | None:
    a, b = i.operands
    if is_splat(b, value):
        return a
    if is_splat(a, value):
        return b
    # With constants always on the right, other rules have one case to match.
    return with_operands(i, (b, a)) if splat(a) is not None and splat(b) is None else None


def _absorbing(i: Instruction, value: float) -> Instruction | None:
    return next((o for o in i.operands if is_splat(o, value)), None)


def _subtract(i: Instruction) -> Instruction | None:
    a, b = i.operands
    if is_splat(b, 0):
        return a
    if a is b and is_integral(i):
        return build.full(0, i.array.dtype, i.array.dims)
    return build.pointwise("negate", b) if is_splat(a, 0) and is_integral(i) else None


def _divide(i: Instruction) -> Instruction | None:
    a, b = i.operands
    if is_splat(b, 1):
        return a
    dtype, value = i.array.dtype, splat(b)
    if not dtype.is_float:
        return None
    if value is not None and _is_power_of_two(value) and dtype.bits >= 16:
        inverse = 1.0 / float(value)
        if 2.0**-14 <= abs(inverse) <= 2.0**14:
            return build.pointwise("multiply", a, build.full(inverse, dtype, i.array.dims))
    if is_splat(a, 1) and b.opcode == "sqrt":
        return build.pointwise("rsqrt", b.operands[0])
    return None


def _is_power_of_two(value: np.ndarray[Any, Any]) -> bool:
    x = float(value)
    return math.isfinite(x) and x != 0 and abs(math.frexp(x)[0]) == 0.5


def _power(i: Instruction) -> Instruction | None:
    """Rewrite ``x ** n`` for a few constant ``n``; at -0 and -inf, 0.5 is not exact."""
    x, exponent = i.operands
    dtype, n = i.array.dtype, splat(exponent)
    if n is None or dtype.kind == "complex":
        return None
    one = build.full(1, dtype, i.array.dims)
    if not dtype.is_float and not 0 <= int(n) <= 3:
        return None
    match float(n):
        case 0.0:
            return one
        case 1.0:
            return x
        case 2.0:
            return build.pointwise("multiply", x, x)
        case 3.0:
            return build.pointwise("multiply", build.pointwise("multiply", x, x), x)
        case 0.5:
            return build.pointwise("sqrt", x)
        case -0.5:
            return build.pointwise("rsqrt", x)
        case -1.0:
            return build.pointwise("divide", one, x)
        case _:
            return None


def _maximum(i: Instruction) -> Instruction | None:
    return _extreme(i, low=True)


def _minimum(i: Instruction) -> Instruction | None:
    return _extreme(i, low=False)


def _extreme(i: Instruction, *, low: bool) -> Instruction | None:
    """max(x, -inf)  ->  x;  max(x, x)  ->  x"""
    a, b = i.operands
    if a is b or is_extreme(b, low=low):
        return a
    if is_extreme(a, low=low):
        return b
    return with_operands(i, (b, a)) if splat(a) is not None else None


def _clamp(i: Instruction) -> Instruction | None:
    low, x, high = i.operands
    if is_extreme(low, low=True):
        return build.pointwise("minimum", x, high)
    if is_extreme(high, low=False):
        return build.pointwise("maximum", x, low)
    return None


def _negate(i: Instruction) -> Instruction | None:
    x = i.operands[0]
    if x.opcode == "negate":
        return x.operands[0]
    if x.opcode == "subtract" and is_integral(i):
        return build.pointwise("subtract", x.operands[1], x.operands[0])
    return None


def _not(i: Instruction) -> Instruction | None:
    x = i.operands[0]
    if x.opcode == "not":
        return x.operands[0]
    opposite = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}
    if x.opcode == "compare" and x.operands[0].array.dtype.kind != "complex":
        direction = x.attrs["direction"]
        if is_integral(x.operands[0]) or direction in ("EQ", "NE"):
            attrs = {**x.attrs, "direction": opposite[direction]}
            return make("compare", x.shape, x.operands, **attrs)
    return None


def _and(i: Instruction) -> Instruction | None:
    ones = 1 if i.array.dtype.kind == "pred" else -1
    a, b = i.operands
    known = i.array.dtype.kind in ("pred", "signed")
    return (a if a is b else None) or (known and _neutral(i, ones)) or _absorbing(i, 0)


def _or(i: Instruction) -> Instruction | None:
    a, b = i.operands
    if a is b:
        return a
    return _neutral(i, 0) or (_absorbing(i, 1) if i.array.dtype.kind == "pred" else None)


def _compare(i: Instruction) -> Instruction | None:
    answer = decide(i)
    if answer is not None:
        return build.full(answer, i.array.dtype, i.array.dims)
    a, b = i.operands
    if a.array.dtype.kind != "pred" or i.attrs["direction"] not in ("EQ", "NE"):
        return None
    equal = i.attrs["direction"] == "EQ"
    for x, y in ((a, b), (b, a)):
        if (value := splat(y)) is not None:
            return x if bool(value) is equal else build.pointwise("not", x)
    return None


def _select(i: Instruction) -> Instruction | None:
    condition, yes, no = i.operands
    if yes is no:
        return yes
    value = splat(condition)
    if value is not None:
        return yes if bool(value) else no
    if condition.opcode == "not":
        return with_operands(i, (condition.operands[0], no, yes))
    if i.array.dtype.kind == "pred" and is_splat(yes, 1) and is_splat(no, 0):
        return condition
    return None


def _convert(i: Instruction) -> Instruction | None:
    x = i.operands[0]
    if x.array.dtype == i.array.dtype:
        return x
    if x.opcode != "convert":
        return None
    source = x.operands[0]
    if not _widens(source, x):
        return None
    return build.convert(source, i.array.dtype)


def _widens(small: Instruction, wide: Instruction) -> bool:
    """True if every value of the first element type is exact in the second, of the same kind."""
    a, b = small.array.dtype, wide.array.dtype
    if a.is_float:
        return b.is_float and a.bits in (16, 32) and a.bits < b.bits
    return a.kind == b.kind and a.is_int and a.bits < b.bits


def _reduce_precision(i: Instruction) -> Instruction | None:
    """Drop rounding to a type's own precision or more, in f32 and f64.

    In narrower floats, which may be kept in excess precision, it forces the rounding, which is
    what JAX uses it for.
    """
    own = FORMATS[i.array.dtype]
    wide = i.attrs["exponent_bits"] >= own.exponent and i.attrs["mantissa_bits"] >= own.mantissa
    return i.operands[0] if wide and i.array.dtype in (f32, f64) else None


RULES: dict[str, Rule] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "power": _power,
    "maximum": _maximum,
    "minimum": _minimum,
    "clamp": _clamp,
    "negate": _negate,
    "not": _not,
    "and": _and,
    "or": _or,
    "compare": _compare,
    "select": _select,
    "convert": _convert,
    "reduce-precision": _reduce_precision,
}
assert set(RULES) <= set(TABLE) | {"compare", "convert", "reduce-precision"}
