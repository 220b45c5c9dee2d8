"""``tanh`` and ``erf`` in f32 by a polynomial for each interval; registers hold the coefficients.

Close to 0 the result is ``x + x R(|x|)``, and elsewhere ``1 + R(|x|)`` with the sign of ``x``. As
``|R|`` is about 1/4 at most, its rounding errors are an eighth of the result's last place each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType

from ..arithmetic.arith_value import ArithValue, horner
from ..arithmetic.interpolation import DIGITS, interpolated
from .exp import SINGLE
from .special import ERF_LARGEST

_TWO_BY_ROOT_PI = Decimal("1.1283791670955125738961589031215451716881")


@dataclass(frozen=True)
class Intervals:
    """An odd function that rises to 1, by ``entries`` polynomials of one ``degree``.

    That of number ``k`` is for the interval of ``length`` around ``k * length``. ``near`` of them
    are close to 0. The function is 1 in f32 from ``largest`` on; ``quotient`` is the function of
    ``x``, over ``x``.
    """

    quotient: Callable[[Decimal], Decimal]
    largest: float
    entries: int
    length: float
    degree: int
    near: int

    def __call__(self, x: ArithValue) -> ArithValue:
        """Return the function of ``x``, f32."""
        a = x.abs()
        a = (a > self.largest).where(a.lift(self.largest), a)
        shifted = a.fma(1 / self.length, SINGLE.magic)
        distance = (shifted - SINGLE.magic).fma(-self.length, a)
        number = shifted.bits()
        rest = horner(distance, *(number.look_up(table) for table in self.tables))
        unit = (shifted < SINGLE.magic + self.near).where(x, x.lift(1.0).copysign(x))
        return unit.fma(rest, unit)

    @cached_property
    def tables(self) -> tuple[tuple[float, ...], ...]:
        """The coefficients of each power of the distance from the center, by interval."""
        rows = [
            interpolated(
                self._rest_near if k < self.near else self._rest_far,
                k * self.length,
                self.length,
                self.degree,
            )
            for k in range(self.entries)
        ]
        return tuple(zip(*rows, strict=True))

    def _rest_near(self, x: Decimal) -> Decimal:
        return self.quotient(x) - 1

    def _rest_far(self, x: Decimal) -> Decimal:
        return x * self.quotient(x) - 1


def _erf_quotient(x: Decimal) -> Decimal:
    """Return ``erf(x) / x`` by its series."""
    term = total = Decimal(1)
    k = 0
    while abs(term) > Decimal(10) ** -DIGITS:
        k += 1
        term *= -x * x / k
        total += term / (2 * k + 1)
    return _TWO_BY_ROOT_PI * total


def _tanh_quotient(x: Decimal) -> Decimal:
    grown = (2 * x).exp()
    return (grown - 1) / (grown + 1) / x if x else Decimal(1)


_FOUND = (
    ("erf", Intervals(_erf_quotient, ERF_LARGEST, 16, 33 / 128, 5, 4)),
    ("erf", Intervals(_erf_quotient, ERF_LARGEST, 8, 17 / 32, 7, 2)),
    ("tanh", Intervals(_tanh_quotient, 9.02, 16, 0.6487, 8, 2)),
)
BY_INTERVALS: Mapping[tuple[str, int], Intervals] = MappingProxyType(
    {(name, row.entries): row for name, row in _FOUND}
)
"""By operation and the entries of a table that a register holds."""
