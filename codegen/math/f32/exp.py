"""Exponentials: exp, expm1, logistic, tanh; and exp in f64 for results in f32.

``exp(x) = 2**n * exp(r)`` with ``n = rint(x / ln 2)`` and ``|r| <= ln(2) / 2``. ``n * ln 2`` is
subtracted in two parts, the first exactly. ``exp(r) - 1 - r`` is ``r**2`` times a polynomial that
interpolates at the Chebyshev nodes of that range. ``tanh`` has a minimax polynomial close to 0.
Coefficients were computed with 50 digits or more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....ir.dtypes import f64
from ...emit.llvm.builder import SIGNED
from ..arithmetic.arith_value import ArithValue, clamp, horner, in_pairs

_SINGLE = (
    0.49999994039535522,
    0.1666652113199234,
    0.04166838899254799,
    0.00836874544620514,
    0.001381453825160861,
)
_ONE_MINUS = (
    0.4999998211860657,
    0.1666652113199234,
    0.04167104884982109,
    0.008368835784494877,
    0.0013670864282175899,
)
"""Of the same, with the least error relative to ``1 - e**x`` for ``x <= 0``."""
_DOUBLE = (
    0.5,
    0.1666666666666667,
    0.04166666666666667,
    0.008333333333326136,
    0.0013888888888883748,
    0.00019841269874820627,
    2.4801587325547743e-05,
    2.7557255400206422e-06,
    2.75572736431103e-07,
    2.5105217004720745e-08,
    2.0914686968086876e-09,
)
_DOUBLE_FOR_SINGLE = (
    0.499999999997064499,
    0.166666666666467806,
    0.0416666669860885878,
    0.00833333335497190123,
    0.00138887950522081981,
    0.000198412062747853621,
    2.49036661734631749e-5,
    2.76264660449350003e-6,
    -9.43137557885868945e-8,
)
_LOG2E = 1.44269504088896340736
_LN2 = 0.693147180559945286
_MAGIC_DOUBLE, _MAGIC_DOUBLE_BITS = 6755399441055744.0, 0x4338000000000000  # 1.5 * 2**52


@dataclass(frozen=True, slots=True)
class Exponential:
    """The constants that e**x needs in one float type.

    ``series`` are the coefficients of ``(exp(r) - 1 - r) / r**2``; ``tanh`` those of ``(tanh(x) / x
    - 1) / x**2`` in ``x**2``, for ``x < 0.55``. A number plus ``magic`` has the nearest integer in
    its low bits, above ``magic_bits``. ``place`` and ``bias`` are those of the type's exponent.
    Below ``least`` e**x is 0; above ``full`` 1 + e**-x is 1. The sum in ``logistic`` is scaled by
    ``2**-shift``.
    """

    series: tuple[float, ...]
    tanh: tuple[float, ...]
    ln2_high: float
    ln2_low: float
    magic: float
    magic_bits: int
    place: int
    bias: int
    least: float
    most: float
    full: float
    shift: int

    @property
    def alternating(self) -> tuple[float, ...]:
        """The coefficients of ``(exp(-r) - 1 + r) / r**2``."""
        return tuple(-c if k % 2 else c for k, c in enumerate(self.series))

    def reduce(self, x: ArithValue) -> tuple[ArithValue, ArithValue, ArithValue]:
        """Return ``n`` as a float and as an integer, and ``r``."""
        shifted = x.fma(_LOG2E, self.magic)
        n = shifted - self.magic
        r = n.fma(-self.ln2_low, n.fma(-self.ln2_high, x))
        return n, shifted.bits() - self.magic_bits, r

    def reduce_double_word(
        self, x: ArithValue, low: ArithValue
    ) -> tuple[ArithValue, ArithValue, ArithValue, ArithValue]:
        """Reduce ``x + low`` likewise, and return the rounding error of ``r`` as well."""
        n, number, _ = self.reduce(x)
        most, least = n.fma(-self.ln2_high, x), n.fma(-self.ln2_low, low)
        r = most + least
        return n, number, r, least - (r - most)

    def beyond(self, r: ArithValue) -> ArithValue:
        """Return ``(exp(r) - 1 - r) / r**2``."""
        return horner(r, *self.series)

    def minus_one(self, r: ArithValue) -> ArithValue:
        """Return ``exp(r) - 1``."""
        return (r * r).fma(self.beyond(r), r)

    def product(
        self, factor: ArithValue, rest: ArithValue, x: ArithValue, low: ArithValue
    ) -> tuple[ArithValue, ArithValue, ArithValue]:
        """Return ``(factor + rest) * e**(x + low)`` as a factor and an exponent of two (float,
        integer).
        """
        n, number, r, lost = self.reduce_double_word(clamp(x, self.least, self.most), low)
        beyond = (r * r).fma(self.beyond(r), lost)
        small = factor.fma(beyond, rest.fma(r, rest))
        return factor.fma(r, small) + factor, n, number  # the largest part is added last

    def power_of_two(self, n: ArithValue) -> ArithValue:
        """Return ``2**n`` for integers whose power is a normal number."""
        return ((n + self.bias) << self.place).floats()


SINGLE = Exponential(
    series=_SINGLE,
    tanh=(
        -0.33333316445350647,
        0.13332541286945343,
        -0.0538469664752483368,
        0.0210473589508907123,
        -0.00623690853336573681,
    ),
    ln2_high=0.693145751953125,  # 16 bits
    ln2_low=1.42860682030941723212e-6,
    magic=12582912.0,
    magic_bits=0x4B400000,
    place=23,
    bias=127,
    least=-104.0,
    most=89.0,
    full=20.0,
    shift=48,
)
_LN2_TOP = math.ldexp(math.floor(math.ldexp(_LN2, 32)), -32)
DOUBLE = Exponential(
    series=_DOUBLE,
    tanh=(
        -0.3333333333333333,
        0.13333333333333056,
        -0.053968253968035576,
        0.02186948852752892,
        -0.008863235329945617,
        0.003592125079428993,
        -0.0014558051309193298,
        0.000589828951685769,
        -0.00023819876829374675,
        9.393090121515482e-05,
        -3.291672911113663e-05,
        7.419788413527752e-06,
    ),
    ln2_high=_LN2_TOP,
    ln2_low=(_LN2 - _LN2_TOP) + 2.31904681384629956e-17,
    magic=_MAGIC_DOUBLE,
    magic_bits=_MAGIC_DOUBLE_BITS,
    place=52,
    bias=1023,
    least=-746.0,
    most=710.0,
    full=40.0,
    shift=128,
)


def _has_scaling(x: ArithValue) -> bool:
    """True if the machine has an instruction for ``x * 2**n`` on vectors of these lanes."""
    wanted = {512: "avx512f", 256: "avx512vl", 128: "avx512vl"}.get(x.v.lanes * x.dtype.bits)
    return wanted in x.b.target.features


def _scaled(x: ArithValue, n: ArithValue, kept: ArithValue | None) -> ArithValue:
    """Return ``x * 2**n`` by that instruction; 0 where not ``kept``."""
    b, v = x.b, x.v
    bits, width = max(v.lanes, 8), v.lanes * x.dtype.bits
    name = f"llvm.x86.avx512.mask.scalef.{'pd' if x.dtype == f64 else 'ps'}.{width}"
    rounding = ("i32",) if width == 512 else ()
    b.declare(name, v.type, [v.type, v.type, v.type, f"i{bits}", *rounding])
    depth, mask = max(v.depth, n.v.depth), f"i{bits} -1"
    if kept is not None:
        lanes = b.shuffle(kept.v, [*range(v.lanes)] + [0] * (bits - v.lanes))
        depth = max(depth, lanes.depth)
        mask = str(b.pure(f"bitcast {lanes} to i{bits}", SIGNED[bits], 0, lanes.depth))
    operands = f"{v}, {n.v}, {v.type} zeroinitializer, {mask}"
    nearest = ", i32 4" if rounding else ""
    return ArithValue(
        b, b.pure(f"call {v.type} @{name}({operands}{nearest})", x.dtype, v.lanes, depth)
    )


def _kind(x: ArithValue) -> Exponential:
    return DOUBLE if x.dtype == f64 else SINGLE


def scale(
    x: ArithValue, n: ArithValue, number: ArithValue, kept: ArithValue | None = None
) -> ArithValue:
    """Return ``x * 2**n``, where the result may be infinite or denormal; 0 where not ``kept``."""
    if _has_scaling(x):
        return _scaled(x, n, kept)
    half, kind = number >> 1, _kind(x)
    scaled = x * kind.power_of_two(half) * kind.power_of_two(number - half)
    return scaled if kept is None else kept.where(scaled, 0.0)


def _one_and_more(r: ArithValue) -> ArithValue:
    """Return ``exp(r)``, in f64 with a smaller error before the last rounding."""
    kind = _kind(r)
    return kind.minus_one(r) + 1.0 if kind is DOUBLE else horner(r, 1.0, 1.0, *kind.series)


def exp(x: ArithValue) -> ArithValue:
    """Return e**x.

    Where the result underflows to 0 no denormals are computed on the way: they are slow.
    """
    kind = _kind(x)
    kept = (x < kind.least) ^ True
    if not _has_scaling(x):
        x = kept.where(x, 0.0)
    n, number, r = kind.reduce((x > kind.most).where(x.lift(kind.most), x))
    return scale(_one_and_more(r), n, number, kept)


def exp2(x: ArithValue) -> ArithValue:
    """Return 2**x."""
    kind = _kind(x)
    x = clamp(x, kind.least / _LN2, kind.most / _LN2)
    shifted = x + kind.magic
    n = shifted - kind.magic
    return scale(_one_and_more((x - n) * _LN2), n, shifted.bits() - kind.magic_bits)


def scaled_exp(
    factor: ArithValue, rest: ArithValue, x: ArithValue, low: ArithValue, kept: ArithValue
) -> ArithValue:
    """Return ``(factor + rest) * e**(x + low)``, f32, for x <= 0, or 0 where not ``kept``.

    ``rest`` and ``low`` are below last places, and ``rest`` is taken once, not times ``e**x``.
    """
    if not _has_scaling(x):
        x = kept.where(x, 0.0)
    n, number, _ = SINGLE.reduce(x)
    r = n.fma(-SINGLE.ln2_high, x) + n.fma(-SINGLE.ln2_low, low)
    small = factor.fma(r * r * SINGLE.beyond(r), rest)
    return scale(factor.fma(r, small) + factor, n, number, kept)


def exp_double_word(high: ArithValue, low: ArithValue) -> ArithValue:
    """Return e**(high + low), f32, where ``low`` is below the last place of ``high``."""
    return times_exp(high.lift(1.0), high.lift(0.0), high, low)


def times_exp(
    factor: ArithValue, rest: ArithValue, high: ArithValue, low: ArithValue
) -> ArithValue:
    """Return ``(factor + rest) * e**(high + low)``, f32; ``rest`` and ``low`` are below last
    places.
    """
    value, n, number = SINGLE.product(factor, rest, high, (high.abs() < 150.0).where(low, 0.0))
    return scale(value, n, number)


def one_minus_exp(x: ArithValue, slope: float, rest: float, curve: ArithValue) -> ArithValue:
    """Return ``1 - e**(x (slope + rest + curve x))``, f32, for exponents from -87 to 0.

    The product of ``x`` and ``slope``, which is nearly all of a small result, is added without
    rounding and after all that is less.
    """
    power = x.fma(curve, slope)
    shifted = (x * _LOG2E).fma(power, SINGLE.magic)
    n = shifted - SINGLE.magic
    steps = n * -_LN2
    part = x * x.fma(curve, rest)
    r = x.fma(slope, n.fma(-_LN2, part))
    low = (r * r).fma(in_pairs(r, *_ONE_MINUS), part)
    scale = SINGLE.power_of_two(shifted.bits() - SINGLE.magic_bits)
    return (-scale).fma(x.fma(slope, low) + steps, 1.0 - scale)


def expm1(x: ArithValue) -> ArithValue:
    """Return e**x - 1: twice ``2**(n-1) * (exp(r) - 1) + (2**(n-1) - 1/2)``, without overflow.

    The rounding errors of ``r``, of the second term and of their sum are added to the rest.
    """
    kind = _kind(x)
    inside = clamp(x, -kind.full, kind.most)
    n, number, r = kind.reduce(inside)
    most = n.fma(-kind.ln2_high, inside)
    rest = (r * r).fma(kind.beyond(r), n.fma(-kind.ln2_low, most - r))
    half = kind.power_of_two(number - 1)
    less = half - 0.5
    total = half.fma(r, less)
    lost = half.fma(r, less - total) + ((half - less) - 0.5)
    result = (total + half.fma(rest, lost)) * 2.0
    return (x.abs() < 2.0 ** -(kind.place + 2)).where(x, result)


def _one_over(total: ArithValue, low: ArithValue) -> ArithValue:
    """Return ``1 / (total + low)``, where ``low`` is below the last place of ``total``.

    The quotient is corrected by ``low`` and by the error of the division.
    """
    v = total.lift(1.0).over(total)
    return v.fma(low.fma(-v, (-v).fma(total, 1.0)), v)


def logistic(x: ArithValue) -> ArithValue:
    """Return 1 / (1 + e**-x), its sum scaled down so that it cannot overflow.

    As in ``exp``, no denormals are computed where the result underflows to 0. What the rounding of
    ``1 + s + s p`` loses is exact where it is half an ulp or more.
    """
    kind = _kind(x)
    kept = (x < kind.least) ^ True
    inside = (x > kind.full).where(x.lift(kind.full), x)
    shifted = inside.fma(-_LOG2E, kind.magic)
    n = shifted - kind.magic
    q = n.fma(kind.ln2_low, n.fma(kind.ln2_high, inside))  # that of -x, negated
    p = (q * q).fma(in_pairs(q, *kind.alternating), -q)
    one = x.lift(2.0**-kind.shift)
    s = kind.power_of_two(shifted.bits() - (kind.magic_bits + kind.shift))
    total = s.fma(p, s + one)
    low = s.fma(p, (s - total) + one)
    return kept.where(_one_over(total, low) * 2.0**-kind.shift, 0.0)


def tanh(x: ArithValue) -> ArithValue:
    """Return the hyperbolic tangent: ``1 - 2 / (1 + e**(2 |x|))``; a polynomial near 0."""
    kind = _kind(x)
    a, z = x.abs(), x * x
    _, number, r = kind.reduce((a > kind.full / 2).where(x.lift(kind.full / 2), a) * 2.0)
    s = kind.power_of_two(number)
    c, p = s + 1.0, kind.minus_one(r)
    total = s.fma(p, c)
    far = _one_over(total, s.fma(p, c - total)).fma(-2.0, 1.0)
    return (a < 0.55).where((a * z).fma(horner(z, *kind.tanh), a), far).copysign(x)


def _power_and_rest_f64(x: ArithValue) -> tuple[ArithValue, ArithValue]:
    """Return ``2**n`` and ``exp(r) - 1`` in f64, the latter to 2**-40."""
    shifted = x.fma(_LOG2E, _MAGIC_DOUBLE)
    n = shifted - _MAGIC_DOUBLE
    r = n.fma(-2.319046813846299558e-17, n.fma(-_LN2, x))
    power = ((shifted.bits() - (_MAGIC_DOUBLE_BITS - 1023)) << 52).floats()
    return power, (r * r).fma(horner(r, *_DOUBLE_FOR_SINGLE), r)


def exp_double(x: ArithValue) -> ArithValue:
    """Return e**x in f64, -700 <= x <= 700, to a relative error of 2**-40, enough for f32."""
    power, rest = _power_and_rest_f64(x)
    return (rest + 1.0) * power


def expm1_double(x: ArithValue) -> ArithValue:
    """Return e**x - 1 in f64, -700 <= x <= 700, to a relative error of about 2**-38."""
    power, rest = _power_and_rest_f64(x)
    return power.fma(rest, power - 1.0)
