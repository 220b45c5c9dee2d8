"""Exponentials in f32: exp, expm1, logistic, tanh; and exp in f64 for other files.

``exp(x) = 2**n * exp(r)`` with ``n = rint(x / ln 2)`` and ``|r| <= ln(2) / 2``. ``n * ln 2`` is
taken off in two parts. ``exp(r) - 1 - r`` is ``r**2`` times a polynomial that interpolates at the
Chebyshev nodes of that range, computed with 60 digits.
"""

from __future__ import annotations

from .vector_math_num import Num, between, horner

_SINGLE = (
    0.500000001428622342, 0.166666666825343561, 0.041666456809677876,
    0.00833331002422529243, 0.00139345419282702645, 0.000198919813139776902,
)  # fmt: skip
_DOUBLE = (
    0.499999999997064499, 0.166666666666467806, 0.0416666669860885878, 0.00833333335497190123,
    0.00138887950522081981, 0.000198412062747853621, 2.49036661734631749e-5,
    2.76264660449350003e-6, -9.43137557885868945e-8,
)  # fmt: skip
_TANH = (
    -0.33333316445350647, 0.13332541286945343, -0.0538469664752483368,
    0.0210473589508907123, -0.00623690853336573681,
)  # fmt: skip
_LOG2E = 1.44269504088896340736
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6  # the first has 16 bits
_MAGIC, _MAGIC_BITS = 12582912.0, 0x4B400000  # 1.5 * 2**23: a sum ends in an integer's bits
_MAGIC_DOUBLE, _MAGIC_DOUBLE_BITS = 6755399441055744.0, 0x4338000000000000  # 1.5 * 2**52


def _reduced(x: Num, low: Num | None = None) -> tuple[Num, Num, Num]:
    """``n`` as f32 and as an integer, and ``r``, of ``x`` or of ``x + low``."""
    shifted = x.fma(_LOG2E, _MAGIC)
    n = shifted - _MAGIC
    most = n.fma(-_LN2_HIGH, x)
    r = n.fma(-_LN2_LOW, most) if low is None else most + n.fma(-_LN2_LOW, low)
    return n, shifted.bits() - _MAGIC_BITS, r


def _minus_one(r: Num) -> Num:
    """``exp(r) - 1`` for a reduced f32."""
    return (r * r).fma(horner(r, *_SINGLE), r)


def _power_of_two(n: Num) -> Num:
    """``2**n`` in f32 for integers -126 <= n <= 127."""
    return ((n + 127) << 23).floats()


def _scaled(x: Num, n: Num, number: Num) -> Num:
    """``x * 2**n``, where the result may be infinite or denormal."""
    b, type_ = x.b, x.v.type
    if "avx512f" in b.target.features and x.v.lanes == 16:
        name = "llvm.x86.avx512.mask.scalef.ps.512"
        b.declare(name, type_, [type_, type_, type_, "i16", "i32"])
        text = f"call {type_} @{name}({x.v}, {n.v}, {type_} zeroinitializer, i16 -1, i32 4)"
        return Num(b, b.pure(text, x.dtype, 16, max(x.v.depth, n.v.depth)))
    half = number >> 1
    return x * _power_of_two(half) * _power_of_two(number - half)


def exp(x: Num) -> Num:
    """e**x, f32. What becomes 0 does so without the denormals on the way, which are slow."""
    lost = x < -104.0
    x = lost.where(x.lift(0.0), x)
    n, number, r = _reduced((x > 89.0).where(x.lift(89.0), x))
    return lost.where(x.lift(0.0), _scaled(_minus_one(r) + 1.0, n, number))


def exp_of_pair(high: Num, low: Num) -> Num:
    """e**(high + low), f32, where ``low`` is below the last place of ``high``."""
    return times_exp(high.lift(1.0), high.lift(0.0), high, low)


def times_exp(factor: Num, rest: Num, high: Num, low: Num) -> Num:
    """``(factor + rest) * e**(high + low)``, f32; ``rest`` and ``low`` are below last places."""
    low = (high.abs() < 150.0).where(low, 0.0)
    n, number, r = _reduced(between(high, -104.0, 89.0), low)
    beyond = r * r * horner(r, *_SINGLE)  # the largest part is added last
    return _scaled(factor.fma(r, factor.fma(beyond, rest)) + factor, n, number)


def _over_sum(one: float, s: Num, p: Num, c: Num, lost: Num | None = None) -> Num:
    """``one / (c + lost + s p)``, ``c`` the largest; ``one`` is a power of two.

    The quotient by the rounded sum is improved by what that sum and the division left.
    """
    total = s.fma(p, c)
    low = s.fma(p, c - total)
    low = low if lost is None else low + lost
    v = total.lift(one).over(total)
    return v.fma(low.fma(-v, (-v).fma(total, one)) * (1 / one), v)


def one_minus_exp(x: Num, y: Num) -> Num:
    """``1 - e**(x y)``, f32, for -87 <= x y <= 0, without the rounding of the product."""
    shifted = (x * y).fma(_LOG2E, _MAGIC)
    n = shifted - _MAGIC
    r = n.fma(-_LN2_LOW, x.fma(y, n * -_LN2_HIGH))
    scale = _power_of_two(shifted.bits() - _MAGIC_BITS)
    return (-scale).fma(_minus_one(r), 1.0 - scale)


def expm1(x: Num) -> Num:
    """e**x - 1, f32: twice ``2**(n-1) * (exp(r) - 1) + (2**(n-1) - 1/2)``: no overflow.

    What rounding takes from ``r``, from the second term and from their sum is added to the rest.
    """
    inside = between(x, -18.0, 89.0)
    n, number, r = _reduced(inside)
    most = n.fma(-_LN2_HIGH, inside)
    rest = (r * r).fma(horner(r, *_SINGLE), n.fma(-_LN2_LOW, most - r))
    half = _power_of_two(number - 1)
    less = half - 0.5
    total = half.fma(r, less)
    lost = half.fma(r, less - total) + ((half - less) - 0.5)
    result = (total + half.fma(rest, lost)) * 2.0
    return (x.abs() < 2.0**-25).where(x, result)


def logistic(x: Num) -> Num:
    """1 / (1 + e**-x), f32: 2**-48 over as much of the sum, which cannot overflow so.

    As in ``exp``, what becomes 0 does so without denormals on the way.
    """
    vanished = x < -104.0
    inside = vanished.where(x.lift(0.0), x)
    _, number, r = _reduced(-(inside > 20.0).where(x.lift(20.0), inside))
    s, one = _power_of_two(number - 48), x.lift(2.0**-48)
    grows = s > one
    large, small = grows.where(s, one), grows.where(one, s)
    c = s + one
    result = _over_sum(2.0**-48, s, _minus_one(r), c, small - (c - large))
    return vanished.where(x.lift(0.0), result)


def tanh(x: Num) -> Num:
    """Hyperbolic tangent, f32: ``1 - 2 / (1 + e**(2 |x|))``; a polynomial near 0."""
    a, z = x.abs(), x * x
    _, number, r = _reduced((a > 10.0).where(x.lift(10.0), a) * 2.0)
    s = _power_of_two(number)
    far = _over_sum(1.0, s, _minus_one(r), s + 1.0).fma(-2.0, 1.0)
    return (a < 0.55).where((a * z).fma(horner(z, *_TANH), a), far).copysign(x)


def exp_double(x: Num) -> Num:
    """e**x in f64, -700 <= x <= 700, to a relative error of 2**-40: enough for results in f32."""
    shifted = x.fma(_LOG2E, _MAGIC_DOUBLE)
    n = shifted - _MAGIC_DOUBLE
    r = n.fma(-2.319046813846299558e-17, n.fma(-0.693147180559945286, x))
    e = (r * r).fma(horner(r, *_DOUBLE), r) + 1.0
    return e * (((shifted.bits() - (_MAGIC_DOUBLE_BITS - 1023)) << 52).floats())
