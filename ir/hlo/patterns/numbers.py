"""Real arrays with Python's operators: what formulas of many steps are written in.

A ``Num`` is an array instruction; operands of an operation have one shape, and Python's numbers
become constants of that shape and of the other operand's type. Comparisons give a ``Num`` of pred.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...dtypes import BY_NAME, DType, f64, pred
from ..nodes import Instruction, Shape
from ..rewrite import make
from . import build


@dataclass(frozen=True, slots=True, eq=False)
class Num:
    """A real array, or a truth value for each element of one."""

    node: Instruction

    def like(self, value: float | int | bool | Num) -> Num:
        """``value`` in this array's shape and type; an array stays what it is."""
        if isinstance(value, Num):
            return value
        return Num(build.full(value, self.node.array.dtype, self.node.array.dims))

    def call(self, opcode: str, *more: Num | float) -> Num:
        """Return an element-wise operation whose first operand is this array."""
        others = (self.like(m).node for m in more)
        return Num(build.pointwise(opcode, self.node, *others))

    def _compare(self, direction: str, other: Num | float) -> Num:
        operands = (self.node, self.like(other).node)
        return Num(build.pointwise("compare", *operands, direction=direction))

    def __add__(self, other: Num | float) -> Num:
        return self.call("add", other)

    def __radd__(self, other: float) -> Num:
        return self.like(other) + self

    def __sub__(self, other: Num | float) -> Num:
        return self.call("subtract", other)

    def __rsub__(self, other: float) -> Num:
        return self.like(other) - self

    def __mul__(self, other: Num | float) -> Num:
        return self.call("multiply", other)

    def __rmul__(self, other: float) -> Num:
        return self.like(other) * self

    def __truediv__(self, other: Num | float) -> Num:
        return self.call("divide", other)

    def __rtruediv__(self, other: float) -> Num:
        return self.like(other) / self

    def __neg__(self) -> Num:
        return self.call("negate")

    def __abs__(self) -> Num:
        return self.call("abs")

    def __and__(self, other: Num | int) -> Num:
        return self.call("and", other)

    def __or__(self, other: Num | int) -> Num:
        return self.call("or", other)

    def __invert__(self) -> Num:
        return self.call("not")

    def __lt__(self, other: Num | float) -> Num:
        return self._compare("LT", other)

    def __le__(self, other: Num | float) -> Num:
        return self._compare("LE", other)

    def __gt__(self, other: Num | float) -> Num:
        return self._compare("GT", other)

    def __ge__(self, other: Num | float) -> Num:
        return self._compare("GE", other)

    def equals(self, other: Num | float) -> Num:
        """True where the two are equal: never at NaN."""
        return self._compare("EQ", other)

    def differs(self, other: Num | float) -> Num:
        """True where the two are not equal: always at NaN."""
        return self._compare("NE", other)

    @property
    def is_infinite(self) -> Num:
        """True where it is an infinity of either sign."""
        return abs(self).equals(math.inf)

    @property
    def is_nan(self) -> Num:
        """True where it is NaN."""
        return self.differs(self)

    @property
    def bits(self) -> Num:
        """The bits of a float as an unsigned integer."""
        return self.reinterpret(BY_NAME[f"u{self.node.array.dtype.bits}"])

    def reinterpret(self, dtype: DType) -> Num:
        """Return the same bits as another type of the same width."""
        return Num(make("bitcast-convert", Shape(dtype, self.node.array.dims), (self.node,)))

    @property
    def format(self) -> Format:
        """Return the format of its type, f32 or f64."""
        return DOUBLE if self.node.array.dtype == f64 else SINGLE


@dataclass(frozen=True, slots=True)
class Format:
    """A binary float of IEEE 754: bits of the whole and of the fraction, largest exponent."""

    width: int
    fraction: int
    top: int

    @property
    def precision(self) -> int:
        """Digits of a normal number, the hidden one included."""
        return self.fraction + 1

    @property
    def exponents(self) -> int:
        """The mask of the exponent's bits."""
        return ((1 << (self.width - 1 - self.fraction)) - 1) << self.fraction


SINGLE = Format(32, 23, 127)
DOUBLE = Format(64, 52, 1023)


def where(condition: Num, a: Num | float, b: Num | float) -> Num:
    """``a`` where the condition holds, else ``b``; one of the two must be an array."""
    if isinstance(a, Num):
        first, second = a, a.like(b)
    elif isinstance(b, Num):
        first, second = b.like(a), b
    else:
        raise TypeError("one of the choices must be an array")
    assert condition.node.array.dtype == pred
    operands = (condition.node, first.node, second.node)
    return Num(make("select", first.node.array, operands))


def copysign(size: Num, sign: Num) -> Num:
    """Return the magnitude of ``size`` with the sign bit of ``sign``, both of one float type."""
    top = 1 << (size.format.width - 1)
    joined = (size.bits & (top - 1)) | (sign.bits & top)
    return joined.reinterpret(size.node.array.dtype)


def head(x: Num) -> Num:
    """Return ``x`` cut to half its digits: its square, and its product with the rest, are exact."""
    form = x.format
    cut = form.precision - form.precision // 2
    kept = ((1 << form.width) - 1) ^ ((1 << cut) - 1)
    return (x.bits & kept).reinterpret(x.node.array.dtype)


def two_sum(a: Num, b: Num) -> tuple[Num, Num]:
    """Return the rounded sum and what rounding lost (Knuth, TAOCP 2, 4.2.2)."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def scale(m: Num, *, even: bool = False) -> tuple[Num, Num]:
    """Powers of two ``s`` and ``1 / s`` with ``1 <= m s < 2``, for ``m >= 0``.

    Both are normal numbers, so at the ends of the range ``m s`` may be up to 4, or small. An
    ``even`` scale is a power of four, with ``m s`` below 4.
    """
    form = m.format
    one = 1 << form.fraction
    least, most = 2.0 ** (1 - form.top), 2.0 ** (form.top - 1)
    field = m.call("maximum", least).call("minimum", most).bits & form.exponents
    if even:
        field = (field - one) | one
    dtype = m.node.array.dtype
    return (2 * form.top * one - field).reinterpret(dtype), field.reinterpret(dtype)
