"""Element-wise operations on integers, signed and unsigned, as LLVM code.

Cases that LLVM leaves undefined behave as ``ir.elementwise`` defines them: division by zero, the
overflow of INT_MIN / -1, and shifts by the width or more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ....ir.dtypes import f32, f64, s64, u64
from .builder import IRBuilder
from .convert import int_range
from .core import IRValue


def signed(x: IRValue) -> bool:
    """True if the element type is a signed integer."""
    return x.dtype.kind == "signed"


def order(b: IRBuilder, name: str, x: IRValue, y: IRValue) -> IRValue:
    """Return ``x name y`` for lt, le, gt, ge in the order of the element type."""
    return b.compare(f"{'s' if signed(x) else 'u'}{name}", x, y)


def _compare(name: str) -> Callable[..., IRValue]:
    return lambda b, x, y: order(b, name, x, y)


def _binary(name: str) -> Callable[..., IRValue]:
    return lambda b, x, y: b.binary(name, x, y)


def _extreme(name: str) -> Callable[..., IRValue]:
    return lambda b, x, y: b.select(order(b, name, x, y), x, y)


def _clamp(b: IRBuilder, low: IRValue, x: IRValue, high: IRValue) -> IRValue:
    raised = b.select(order(b, "lt", x, low), low, x)
    return b.select(order(b, "gt", raised, high), high, raised)


def _safe_divisor(b: IRBuilder, y: IRValue) -> tuple[IRValue, IRValue]:
    """Return a divisor that cannot trap, and the predicate "``y`` is zero"."""
    zero = b.compare("eq", y, b.like(0, y))
    if not signed(y):
        return b.select(zero, b.like(1, y), y), zero
    bad = b.binary("or", zero, b.compare("eq", y, b.like(-1, y)))
    return b.select(bad, b.like(1, y), y), zero


def _divides_as_float(b: IRBuilder, x: IRValue) -> bool:
    """True if a quotient by a value should be a float's: x86 divides integers one by one."""
    return b.libm and b.processor.machine == "x86_64" and bool(x.lanes) and x.dtype.bits <= 32


def _quotient(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """Return the truncated quotient by a divisor that does not trap.

    Of ``n`` bits, a quotient that is not whole is more than ``2**-(n + 2)`` of it below the next
    whole number. So rounded to f32, or to f64 above 16 bits, it truncates to the same.
    """
    if not _divides_as_float(b, x):
        return b.binary("sdiv" if signed(x) else "udiv", x, y)
    to, back = ("sitofp", "fptosi") if signed(x) else ("uitofp", "fptoui")
    wide = f64 if x.dtype.bits > 16 else f32
    return b.cast(back, b.binary("fdiv", b.cast(to, x, wide), b.cast(to, y, wide)), x.dtype)


def _divide(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    if isinstance(y.literal, int) and y.literal not in (0, -1):
        return b.binary("sdiv" if signed(x) else "udiv", x, y)
    x, y = b.match_lanes(x, y)
    safe, zero = _safe_divisor(b, y)
    quotient = _quotient(b, x, safe)
    if signed(x):
        negated = b.compare("eq", y, b.like(-1, y))
        quotient = b.select(negated, b.binary("sub", b.like(0, x), x), quotient)
    return b.select(zero, b.like(-1 if signed(x) else int_range(x.dtype)[1], x), quotient)


def _remainder(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    if isinstance(y.literal, int) and y.literal not in (0, -1):
        return b.binary("srem" if signed(x) else "urem", x, y)
    x, y = b.match_lanes(x, y)
    safe, zero = _safe_divisor(b, y)
    if _divides_as_float(b, x):
        rest = b.binary("sub", x, b.binary("mul", _quotient(b, x, safe), safe))
    else:
        rest = b.binary("srem" if signed(x) else "urem", x, safe)
    return b.select(zero, x, rest)


def _power_of_two(y: IRValue) -> int | None:
    if isinstance(y.literal, int) and y.literal > 0 and y.literal & (y.literal - 1) == 0:
        return y.literal.bit_length() - 1
    return None


def _positive(b: IRBuilder, y: IRValue) -> IRValue:
    """Return a divisor that does not trap: in an inactive lane it may be 0."""
    if isinstance(y.literal, int):
        return y
    return b.select(b.compare("eq", y, b.like(0, y)), b.like(1, y), y)


def floordiv(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """Return ``x // y`` rounded down, ``y`` positive."""
    shift = _power_of_two(y)
    if shift is not None:
        return b.binary("ashr" if signed(x) else "lshr", x, b.like(shift, x)) if shift else x
    y = _positive(b, y)
    if not signed(x):
        return b.binary("udiv", x, y)
    quotient = b.binary("sdiv", x, y)
    rest = b.binary("sub", x, b.binary("mul", quotient, y))
    below = b.compare("slt", rest, b.like(0, x))
    return b.binary("add", quotient, b.cast("sext", below, x.dtype))


def floormod(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """Return ``x % y``, non-negative, ``y`` positive."""
    shift = _power_of_two(y)
    if shift is not None:
        return b.binary("and", x, b.like((1 << shift) - 1, x))
    y = _positive(b, y)
    if not signed(x):
        return b.binary("urem", x, y)
    rest = b.binary("srem", x, y)
    below = b.compare("slt", rest, b.like(0, x))
    return b.select(below, b.binary("add", rest, y), rest)


def _mulhi(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    bits = x.dtype.bits
    if bits < 64:
        wide = s64 if signed(x) else u64
        extend = "sext" if signed(x) else "zext"
        product = b.binary("mul", b.cast(extend, x, wide), b.cast(extend, y, wide))
        return b.cast("trunc", b.binary("lshr", product, b.like(bits, product)), x.dtype)
    return _mulhi64(b, x, y)


def _mulhi64(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """Multiply by 32-bit halves (Warren, Hacker's Delight, 8-2), unsigned, then correct
    for signs.
    """
    half, low = b.like(32, x), b.like(0xFFFFFFFF, x)

    def split(v: IRValue) -> tuple[IRValue, IRValue]:
        return b.binary("and", v, low), b.binary("lshr", v, half)

    (x0, x1), (y0, y1) = split(x), split(y)
    carry = b.binary("lshr", b.binary("mul", x0, y0), half)
    t0, t1 = split(b.binary("add", b.binary("mul", x1, y0), carry))
    u1 = b.binary("lshr", b.binary("add", b.binary("mul", x0, y1), t0), half)
    high = b.binary("add", b.binary("add", b.binary("mul", x1, y1), t1), u1)
    if not signed(x):
        return high
    top = b.like(63, x)
    high = b.binary("sub", high, b.binary("and", b.binary("ashr", x, top), y))
    return b.binary("sub", high, b.binary("and", b.binary("ashr", y, top), x))


def _shift(name: str) -> Callable[..., IRValue]:
    def emit(b: IRBuilder, x: IRValue, n: IRValue) -> IRValue:
        bits = x.dtype.bits
        if isinstance(n.literal, int) and 0 <= n.literal < bits:
            return b.binary(name, x, n)
        fits = b.compare("ult", n, b.like(bits, n))
        if name == "ashr":
            return b.binary(name, x, b.select(fits, n, b.like(bits - 1, n)))
        shifted = b.binary(name, x, b.select(fits, n, b.like(0, n)))
        return b.select(fits, shifted, b.like(0, x))

    return emit


def _abs(b: IRBuilder, x: IRValue) -> IRValue:
    if not signed(x):
        return x
    return b.select(b.compare("slt", x, b.like(0, x)), b.binary("sub", b.like(0, x), x), x)


def _sign(b: IRBuilder, x: IRValue) -> IRValue:
    above = b.cast("zext", b.compare("sgt" if signed(x) else "ne", x, b.like(0, x)), x.dtype)
    if not signed(x):
        return above
    below = b.cast("sext", b.compare("slt", x, b.like(0, x)), x.dtype)
    return b.binary("or", above, below)


def _power(b: IRBuilder, x: IRValue, n: IRValue) -> IRValue:
    """Raise by squaring; a negative exponent leaves 1, -1 or 0."""
    if isinstance(n.literal, int) and n.literal >= 0:
        return _small_power(b, x, n.literal)
    zero, one = b.like(0, x), b.like(1, x)
    negative = b.compare("slt", n, zero) if signed(n) else b.compare("ne", n, n)
    result, square, rest = one, x, b.select(negative, zero, n)
    for _ in range(x.dtype.bits):
        odd = b.compare("ne", b.binary("and", rest, one), zero)
        result = b.select(odd, b.binary("mul", result, square), result)
        square, rest = b.binary("mul", square, square), b.binary("lshr", rest, one)
    if not signed(n):
        return result
    minus = b.like(-1, x)
    odd = b.compare("ne", b.binary("and", n, one), zero)
    of_minus = b.select(odd, minus, one)
    inverse = b.select(b.compare("eq", x, minus), of_minus, zero)
    inverse = b.select(b.compare("eq", x, one), one, inverse)
    return b.select(negative, inverse, result)


def _small_power(b: IRBuilder, x: IRValue, n: int) -> IRValue:
    result: IRValue = b.like(1, x)
    for bit in bin(n)[2:]:
        result = b.binary("mul", result, result)
        result = b.binary("mul", result, x) if bit == "1" else result
    return result


INTEGER: Mapping[str, Callable[..., IRValue]] = MappingProxyType(
    {
        "add": _binary("add"),
        "subtract": _binary("sub"),
        "multiply": _binary("mul"),
        "divide": _divide,
        "remainder": _remainder,
        "maximum": _extreme("gt"),
        "minimum": _extreme("lt"),
        "power": _power,
        "floordiv": floordiv,
        "floormod": floormod,
        "mulhi": _mulhi,
        "and": _binary("and"),
        "or": _binary("or"),
        "xor": _binary("xor"),
        "not": lambda b, x: b.binary("xor", x, b.like(-1, x)),
        "shift-left": _shift("shl"),
        "shift-right-logical": _shift("lshr"),
        "shift-right-arithmetic": _shift("ashr"),
        "popcnt": lambda b, x: b.intrinsic("llvm.ctpop", x),
        "count-leading-zeros": lambda b, x: b.intrinsic("llvm.ctlz", x, extra="i1 false"),
        "eq": lambda b, x, y: b.compare("eq", x, y),
        "ne": lambda b, x, y: b.compare("ne", x, y),
        "lt": _compare("lt"),
        "le": _compare("le"),
        "gt": _compare("gt"),
        "ge": _compare("ge"),
        "clamp": _clamp,
        "abs": _abs,
        "negate": lambda b, x: b.binary("sub", b.like(0, x), x),
        "sign": _sign,
    }
)
