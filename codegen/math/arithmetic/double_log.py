"""The natural logarithm as a double word, for powers: the same steps in f32 and in f64."""

from __future__ import annotations

from dataclasses import dataclass

from .arith_value import ArithValue, horner
from .double_word import DoubleWord, constant, fast_two_sum, two_prod, two_sum


@dataclass(frozen=True, slots=True)
class DoubleLog:
    """The constants of a float type's logarithm.

    ``place`` is that of the exponent in its bits, ``root_half_bits`` are the bits of sqrt(1/2).
    Numbers below ``least_normal`` are scaled by ``2**shift``. ``ln2`` and ``thirds`` are ln 2 and
    2/3 in two parts; ``series`` are the coefficients 2/5, 2/7, ... of the rest of the series.
    """

    place: int
    root_half_bits: int
    least_normal: float
    shift: int
    ln2: tuple[float, float]
    thirds: tuple[float, float]
    series: tuple[float, ...]

    def split(self, x: ArithValue) -> tuple[ArithValue, ArithValue]:
        """Split ``x > 0`` into its exponent, as a float, and its significand, near 1."""
        tiny = x < self.least_normal
        bits = tiny.where(x * 2.0**self.shift, x).bits()
        exponent = (bits - self.root_half_bits) >> self.place
        rest = (bits - (exponent << self.place)).floats()
        return exponent.as_float() - tiny.where(x.lift(float(self.shift)), 0.0), rest

    def log(self, x: ArithValue) -> DoubleWord:
        """Return the natural logarithm of ``x > 0``: to 34 bits in f32, to 64 in f64.

        That of the significand m is ``2 s + s z (2/3 + 2/5 z + ...)`` with ``z = s s`` and
        ``s = (m - 1) / (m + 1)``.
        """
        e, m = self.split(x)
        f, below = m - 1.0, two_sum(m, 1.0)
        quotient = f.over(below.high)
        rest = (-quotient).fma(below.high, f) - quotient * below.low
        s = DoubleWord(quotient, rest.over(below.high))
        z = s * s
        tail = DoubleWord(z.high * horner(z.high, *self.series), x.lift(0.0))
        total = s * (constant(x, 2.0, 0.0) + z * (constant(x, *self.thirds) + tail))
        whole = two_prod(e, self.ln2[0])
        return fast_two_sum(whole.high, e.fma(self.ln2[1], whole.low)) + total

    def power_exponent(self, a: ArithValue, y: ArithValue) -> DoubleWord:
        """Return ``y log(a)`` for ``a > 0``, of which ``a**y`` is the exponential."""
        logarithm = self.log(a)
        product = two_prod(logarithm.high, y)
        return DoubleWord(product.high, logarithm.low.fma(y, product.low))
