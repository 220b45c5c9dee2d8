"""The LLVM code of each element-wise operation of ``ir.elementwise.TABLE``.

One table per kind of element. Floats of fewer than 32 bits are computed in f32 or wider; where a
second rounding could differ, the f32 result is rounded to odd. Sums and products of floats carry
``contract``, so that a product and a sum may become one fma; no other fast-math flag is set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...ir.dtypes import DType, f32, f64, pred
from ...ir.errors import UnsupportedError
from ...ir.formats import is_narrow
from ..math import functions as vector_math
from ..math.arithmetic.constant_divisors import reciprocal
from .llvm.builder import IRBuilder
from .llvm.convert import narrow, widen
from .llvm.core import IRValue, round_f32
from .llvm.int import INTEGER
from .llvm.remainder import remainder

Emit = Callable[..., IRValue]


def apply(b: IRBuilder, name: str, args: tuple[IRValue, ...]) -> IRValue:
    """Emit the operation ``name`` on operands of one kind; scalars are broadcast to the vectors."""
    dtype = args[-1].dtype
    if name == "select":
        return b.select(*args)
    table = PRED if dtype == pred else FLOAT if dtype.is_float else INTEGER
    emit = table.get(name)
    if emit is None or (dtype.is_int and is_narrow(dtype)):
        raise UnsupportedError(f"operation {name} on {dtype}", "the code generator has none for it")
    if name == "divide" and dtype in _SCALES and (words := _reciprocal_words(b, *args)):
        return _by_words(b, args[0], *words)
    if name == "divide" and dtype in _SCALES and _same_divisor(b, *args):
        return _quotient(b, *args)
    if name == "divide" and dtype == f32 and b.estimates and args[0].literal == 1:
        return _inverse(b, args[1])
    args = b.match_lanes(*args)
    if not dtype.is_float:
        return emit(b, *args)
    b.final_dtype = dtype if dtype.bits < 32 else None
    result = emit(b, *(widen(b, a) for a in args))
    b.final_dtype = None
    return result if result.dtype == pred else narrow(b, result, dtype)


def _binary(name: str) -> Emit:
    return lambda b, x, y: b.binary(name, x, y)


def _fusible(name: str) -> Emit:
    return lambda b, x, y: b.binary(f"{name} contract" if b.contracts else name, x, y)


def _compare(name: str) -> Emit:
    return lambda b, x, y: b.compare(name, x, y)


def _intrinsic(name: str) -> Emit:
    return lambda b, x: b.intrinsic(name, x)


def _number(x: IRValue) -> bool:
    return isinstance(x.literal, int | float) and not math.isnan(x.literal)


def _extreme(name: str, above: str) -> Emit:
    """Return the emitter of a maximum or minimum; NaN if either is, and -0 below +0 (IEEE 754-2019,
    9.6).

    The two operand orders of the machine's own instruction differ only in zeros and NaNs: the OR of
    their bits is the minimum in all cases, the AND the maximum in all but NaN. AVX-512 has an
    instruction that orders zeros. A literal needs no check for NaN, and wins a tie if its zero is
    the right one.
    """
    greatest = name == "maximum"

    def emit(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
        if b.nvidia and x.dtype == f32:
            return b.intrinsic(f"llvm.{name}", *b.match_lanes(x, y))
        if _number(x):
            x, y = y, x
        if _number(y):
            ties = y.literal == 0 and (math.copysign(1, _real(y)) > 0) == greatest
            return b.select(b.compare(above.replace("t", "e") if ties else above, y, x), y, x)
        x, y = b.match_lanes(x, y)
        if greatest and _has_range(b, x):
            return b.select(b.compare("uno", x, y), b.like(math.nan, x), _larger_number(b, x, y))
        one = b.bits(b.select(b.compare(above, x, y), x, y))
        other = b.bits(b.select(b.compare(above, y, x), y, x))
        if not greatest:
            return b.from_bits(b.binary("or", one, other))
        shared = b.from_bits(b.binary("and", one, other))
        return b.select(b.compare("uno", x, y), b.like(math.nan, x), shared)

    return emit


def _has_range(b: IRBuilder, x: IRValue) -> bool:
    """True if the machine has ``vrange`` for these vectors."""
    bits = x.lanes * x.dtype.bits
    wanted = {"avx512dq"} if bits == 512 else {"avx512dq", "avx512vl"}
    return bits in (128, 256, 512) and wanted <= b.processor.features


def _larger_number(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """Emit the larger of two numbers, -0 below +0; of a NaN and a number, the number."""
    bits, mask = x.lanes * x.dtype.bits, f"i{max(x.lanes, 8)}"
    name = f"llvm.x86.avx512.mask.range.p{'s' if x.dtype == f32 else 'd'}.{bits}"
    rounding = ("i32",) if bits == 512 else ()
    b.declare(name, x.type, [x.type, x.type, "i32", x.type, mask, *rounding])
    rest = f"i32 5, {x.type} zeroinitializer, {mask} -1{', i32 4' if rounding else ''}"
    text = f"call {x.type} @{name}({x}, {y}, {rest})"
    return b.pure(text, x.dtype, x.lanes, max(x.depth, y.depth))


def _real(x: IRValue) -> float:
    assert isinstance(x.literal, int | float)
    return float(x.literal)


maximum, minimum = _extreme("maximum", "ogt"), _extreme("minimum", "olt")


def _clamp(b: IRBuilder, low: IRValue, x: IRValue, high: IRValue) -> IRValue:
    return minimum(b, maximum(b, x, low), high)


def _is_finite(b: IRBuilder, x: IRValue) -> IRValue:
    return b.compare("olt", b.intrinsic("llvm.fabs", x), b.like(math.inf, x))


_SCALES = {f32: 2.0**64, f64: 2.0**512}
"""Powers of two that keep reciprocals normal, by float type."""


_DIGITS = {f32: 24, f64: 53}
"""Binary digits of a significand, by float type."""


def _reciprocal_words(b: IRBuilder, x: IRValue, y: IRValue) -> tuple[float, float] | None:
    """Return the reciprocal of a constant as two numbers, if a division by them rounds alike."""
    if y.literal is None or x.literal is not None or not b.has_fma:
        return None
    number, most = _real(y), _SCALES[y.dtype]
    number = round_f32(number) if y.dtype == f32 else number
    return reciprocal(number, _DIGITS[y.dtype]) if 1 / most < abs(number) < most else None


def _by_words(b: IRBuilder, x: IRValue, high: float, low: float) -> IRValue:
    return b.fma(x, b.like(high, x), b.binary("fmul", x, b.like(low, x)))


def _same_divisor(b: IRBuilder, x: IRValue, y: IRValue) -> bool:
    """True if all lanes are divided by one number, on a machine where that can be made cheap."""
    if b.estimates and y.literal is not None:
        return y.dtype == f32 and x.literal is None and 2.0**-99 < abs(_real(y)) < 2.0**99
    return bool(x.lanes) and not y.lanes and y.literal is None and b.has_fma


def _moderate(b: IRBuilder, size: IRValue) -> IRValue:
    """Return a power of two whose product with a size is neither large nor small, if not 0 or
    infinite.
    """
    top = _SCALES[size.dtype]
    low, high, one = (b.like(t, size) for t in (1 / top, top, 1.0))
    scale = b.select(b.compare("ogt", size, high), low, one)
    return b.select(b.compare("olt", size, low), high, scale)


def _reciprocal(b: IRBuilder, y: IRValue) -> IRValue:
    """Emit ``1 / y`` for a ``y`` of moderate size, 0, infinite or NaN.

    On a GPU the residual of an estimate is exact, so the result is the nearest number but for few.
    """
    one = b.like(1.0, y)
    if not b.estimates or y.dtype != f32:
        return b.binary("fdiv", one, y)
    near = b.estimate("reciprocal", y)
    better = b.fma(near, b.fma(b.unary("fneg", y), near, one), near)
    return b.select(b.compare("uno", better, better), near, better)  # at 0 and infinity


def _inverse(b: IRBuilder, y: IRValue) -> IRValue:
    """Emit ``1 / y`` without a branch; a subnormal one may be off by a whole unit."""
    scale = _moderate(b, b.intrinsic("llvm.fabs", y))
    return b.binary("fmul", _reciprocal(b, b.binary("fmul", y, scale)), scale)


def _quotient(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """Emit ``x / y`` by the reciprocal of ``y``, and its residual, which is exact: to the nearest
    (P. Markstein, IBM Journal of Research and Development 34, 1990).

    Both are scaled so that the reciprocal is normal and positive: then a residual of 0 keeps the
    sign of a quotient of 0. Infinite quotients, and those by infinity, have no finite residual.
    Where ``x`` is so small that the residual is denormal, the error may be a whole unit.
    """
    if y.literal is not None:
        number = abs(round_f32(_real(y)))
        size, reciprocal = b.like(number, y), b.like(1 / number, y)
        x = x if _real(y) > 0 else b.unary("fneg", x)
    else:
        size = b.intrinsic("llvm.fabs", y)
        scale = _moderate(b, size)
        size = b.binary("fmul", size, scale)
        reciprocal = _reciprocal(b, size)
        x = b.binary("fmul", x, b.intrinsic("llvm.copysign", scale, y))
    near = b.binary("fmul", x, reciprocal)
    beyond = b.fma(near, size, b.unary("fneg", x))
    better = b.fma(b.unary("fneg", beyond), reciprocal, near)
    return b.select(_is_finite(b, beyond), better, near)


def _sign(b: IRBuilder, x: IRValue) -> IRValue:
    one = b.intrinsic("llvm.copysign", b.like(1.0, x), x)
    return b.select(b.compare("one", x, b.like(0.0, x)), one, x)


def _round_away(b: IRBuilder, x: IRValue) -> IRValue:
    whole = b.intrinsic("llvm.trunc", x)
    rest = b.intrinsic("llvm.fabs", b.binary("fsub", x, whole))
    away = b.binary("fadd", whole, b.intrinsic("llvm.copysign", b.like(1.0, x), x))
    return b.select(b.compare("oge", rest, b.like(0.5, x)), away, whole)


def _rsqrt(b: IRBuilder, x: IRValue) -> IRValue:
    if b.estimates and x.dtype == f32:
        near = b.estimate("rsqrt", x)
    else:
        near = b.binary("fdiv", b.like(1.0, x), b.intrinsic("llvm.sqrt", x))
    return vector_math.improved_rsqrt(b, x, near) if b.has_fma else near


def _remainder(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    if b.libm and b.has_fma and x.dtype in (f32, f64):
        return vector_math.remainder(b, x, y)
    return b.binary("frem", x, y) if b.libm else remainder(b, x, y)


def _math(name: str) -> Emit:
    return lambda b, *args: vector_math.call(b, name, *args)


FLOAT: Mapping[str, Emit] = MappingProxyType(
    {
        "add": _fusible("fadd"),
        "subtract": _fusible("fsub"),
        "multiply": _fusible("fmul"),
        "divide": _binary("fdiv"),
        "remainder": _remainder,
        "maximum": maximum,
        "minimum": minimum,
        "fma": lambda b, x, y, z: b.fma(x, y, z),
        "eq": _compare("oeq"),
        "ne": _compare("une"),
        "lt": _compare("olt"),
        "le": _compare("ole"),
        "gt": _compare("ogt"),
        "ge": _compare("oge"),
        "is-finite": _is_finite,
        "clamp": _clamp,
        "abs": _intrinsic("llvm.fabs"),
        "negate": lambda b, x: b.unary("fneg", x),
        "sign": _sign,
        "floor": _intrinsic("llvm.floor"),
        "ceil": _intrinsic("llvm.ceil"),
        "round-nearest-even": _intrinsic("llvm.rint"),
        "round-nearest-afz": _round_away,
        "sqrt": _intrinsic("llvm.sqrt"),
        "rsqrt": _rsqrt,
        **{name: _math(name) for name in vector_math.FUNCTIONS},
    }
)

_OR, _AND = _binary("or"), _binary("and")

PRED: Mapping[str, Emit] = MappingProxyType(
    {
        "add": _OR,
        "multiply": _AND,
        "maximum": _OR,
        "minimum": _AND,
        "and": _AND,
        "or": _OR,
        "xor": _binary("xor"),
        "not": lambda b, x: b.negate_pred(x),
        "eq": _compare("eq"),
        "ne": _compare("ne"),
        "lt": _compare("ult"),
        "le": _compare("ule"),
        "gt": _compare("ugt"),
        "ge": _compare("uge"),
        "clamp": lambda b, low, x, high: b.binary("and", b.binary("or", x, low), high),
    }
)


def combines(name: str, dtype: DType) -> bool:
    """True if lanes may be combined by ``name`` in any order."""
    table = PRED if dtype == pred else FLOAT if dtype.is_float else INTEGER
    return name in table and name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
