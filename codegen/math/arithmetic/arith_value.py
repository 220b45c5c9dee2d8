"""LLVM values with Python's operators, so that numerical code is written once for every width.

Sums and products are rounded one by one unless ``fma`` is asked for. Python numbers become literals
of the other operand's type; comparisons yield predicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.dtypes import DType, f32, f64
from ...emit.llvm.builder import SIGNED, IRBuilder
from ...emit.llvm.convert import to_odd
from ...emit.llvm.core import IRValue
from ...emit.llvm.tables import look_up


@dataclass(frozen=True, slots=True)
class ArithValue:
    """A scalar or vector value and the builder that emits the instructions on it."""

    b: IRBuilder
    v: IRValue

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.v.dtype

    def lift(self, x: ArithValue | float) -> ArithValue:
        """Return a number as a literal of this type, and a value unchanged."""
        return x if isinstance(x, ArithValue) else ArithValue(self.b, self.b.like(x, self.v))

    def _binary(self, name: str, other: ArithValue | float) -> ArithValue:
        full = f"f{name}" if self.dtype.is_float else name
        return ArithValue(self.b, self.b.binary(full, self.v, self.lift(other).v))

    def __add__(self, other: ArithValue | float) -> ArithValue:
        return self._binary("add", other)

    def __sub__(self, other: ArithValue | float) -> ArithValue:
        return self._binary("sub", other)

    def __rsub__(self, other: float) -> ArithValue:
        return self.lift(other) - self

    def __mul__(self, other: ArithValue | float) -> ArithValue:
        return self._binary("mul", other)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: ArithValue | float) -> ArithValue:
        return self._binary("div", other)

    def __rtruediv__(self, other: float) -> ArithValue:
        return self.lift(other) / self

    def __mod__(self, other: ArithValue | float) -> ArithValue:
        """Return C's ``fmod``, by a call for each lane."""
        return self._binary("rem", other)

    def over(self, other: ArithValue | float, maybe_inf: bool = False) -> ArithValue:
        """Return ``self / other`` for operands of moderate size and ``other`` not 0; fast on GPUs.

        ``maybe_inf``: ``other`` may be infinite.
        """
        return ArithValue(self.b, self.b.ratio(self.v, self.lift(other).v, maybe_inf))

    def estimate(self, name: str) -> ArithValue:
        """Return what a GPU's approximate instruction gives for a function of ``ESTIMATES``."""
        return ArithValue(self.b, self.b.estimate(name, self.v))

    def saturated(self) -> ArithValue:
        """Clamp an f32 to 0 .. 1; 0 for NaN."""
        return ArithValue(self.b, self.b.saturated(self.v))

    def reciprocal(self) -> ArithValue:
        """Return ``1 / self`` in f64, to 2**-45, of a number that f32 holds as a normal one."""
        if self.b.estimates:
            return self.lift(1.0).over(self)
        near = ArithValue(self.b, self.b.cast("fptrunc", self.v, f32))
        r = (1.0 / near).double()
        return r.fma((-self).fma(r, 1.0), r)

    def __neg__(self) -> ArithValue:
        return ArithValue(self.b, self.b.unary("fneg", self.v))

    def _compare(self, name: str, other: ArithValue | float) -> ArithValue:
        full = f"o{name}" if self.dtype.is_float else f"s{name}"
        return ArithValue(self.b, self.b.compare(full, self.v, self.lift(other).v))

    def __lt__(self, other: ArithValue | float) -> ArithValue:
        return self._compare("lt", other)

    def __gt__(self, other: ArithValue | float) -> ArithValue:
        return self._compare("gt", other)

    def equals(self, other: ArithValue | float) -> ArithValue:
        """Return the predicate "ordered and equal": false where either operand is NaN."""
        name = "oeq" if self.dtype.is_float else "eq"
        return ArithValue(self.b, self.b.compare(name, self.v, self.lift(other).v))

    def is_not_below(self, other: ArithValue) -> ArithValue:
        """Return the predicate "not less": true where either operand is NaN."""
        return ArithValue(self.b, self.b.compare("uge", self.v, other.v))

    def is_nan(self) -> ArithValue:
        """Return the predicate "is NaN"."""
        return ArithValue(self.b, self.b.compare("uno", self.v, self.v))

    def __and__(self, other: ArithValue | int) -> ArithValue:
        return ArithValue(self.b, self.b.binary("and", self.v, self.lift(other).v))

    def __or__(self, other: ArithValue | int) -> ArithValue:
        return ArithValue(self.b, self.b.binary("or", self.v, self.lift(other).v))

    def __xor__(self, other: ArithValue | int) -> ArithValue:
        return ArithValue(self.b, self.b.binary("xor", self.v, self.lift(other).v))

    def __lshift__(self, bits: int) -> ArithValue:
        return ArithValue(self.b, self.b.binary("shl", self.v, self.lift(bits).v))

    def __rshift__(self, bits: int) -> ArithValue:
        """Return the arithmetic shift to the right, which keeps the sign."""
        return ArithValue(self.b, self.b.binary("ashr", self.v, self.lift(bits).v))

    def fma(self, y: ArithValue | float, z: ArithValue | float) -> ArithValue:
        """Return ``self * y + z``, with a single rounding where the machine has an fma."""
        return ArithValue(self.b, self.b.fma(self.v, self.lift(y).v, self.lift(z).v))

    def where(self, a: ArithValue, b: ArithValue | float) -> ArithValue:
        """Return ``a`` where this predicate holds, else ``b``."""
        return ArithValue(self.b, self.b.select(self.v, a.v, a.lift(b).v))

    def _intrinsic(self, name: str, *others: ArithValue) -> ArithValue:
        return ArithValue(self.b, self.b.intrinsic(name, self.v, *(x.v for x in others)))

    def abs(self) -> ArithValue:
        """Return the absolute value."""
        return self._intrinsic("llvm.fabs")

    def sqrt(self) -> ArithValue:
        """Return the square root."""
        return self._intrinsic("llvm.sqrt")

    def rint(self) -> ArithValue:
        """Round to the nearest integer, ties to even."""
        return self._intrinsic("llvm.rint")

    def floor(self) -> ArithValue:
        """Round down to an integer."""
        return self._intrinsic("llvm.floor")

    def copysign(self, sign: ArithValue) -> ArithValue:
        """Return this magnitude with the sign of ``sign``, zeros included."""
        return self._intrinsic("llvm.copysign", sign)

    def bits(self) -> ArithValue:
        """Return the bits of a float as signed integers."""
        return ArithValue(self.b, self.b.bits(self.v))

    def floats(self) -> ArithValue:
        """Return the floats with these bits."""
        return ArithValue(self.b, self.b.from_bits(self.v))

    def look_up(self, table: Sequence[float]) -> ArithValue:
        """Return the f32 of a table (``emit.llvm.tables``) at the low bits of these integers."""
        return ArithValue(self.b, look_up(self.b, table, self.v))

    def double(self) -> ArithValue:
        """Extend an f32 to f64."""
        return ArithValue(self.b, self.b.cast("fpext", self.v, f64))

    def single(self) -> ArithValue:
        """Round an f64 to f32, to odd if the result will be rounded again."""
        if self.b.final_dtype is not None:
            return ArithValue(self.b, to_odd(self.b, self.v, self.b.final_dtype))
        return ArithValue(self.b, self.b.cast("fptrunc", self.v, f32))

    def as_float(self) -> ArithValue:
        """Convert an integer to a float of the same width."""
        return ArithValue(
            self.b, self.b.cast("sitofp", self.v, f64 if self.dtype.bits == 64 else f32)
        )

    def as_integer(self) -> ArithValue:
        """Truncate an f32 that 32 bits hold to an integer."""
        return ArithValue(self.b, self.b.cast("fptosi", self.v, SIGNED[32]))

    def low_half(self) -> ArithValue:
        """Truncate 64 bits to the low 32."""
        return ArithValue(self.b, self.b.cast("trunc", self.v, SIGNED[32]))


def horner(x: ArithValue, *coefficients: float | ArithValue) -> ArithValue:
    """Evaluate a polynomial in ``x`` by Horner's rule, coefficients from the constant term up.

    They are numbers, or differ by lane.
    """
    result = x.lift(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result.fma(x, c)
    return result


def in_halves(x: ArithValue, *coefficients: float) -> ArithValue:
    """Evaluate a polynomial like ``horner``, even and odd powers side by side: half the latency."""
    square = x * x
    return horner(square, *coefficients[1::2]).fma(x, horner(square, *coefficients[::2]))


def in_pairs(x: ArithValue, *coefficients: float) -> ArithValue:
    """Evaluate a polynomial like ``horner``, pairs of terms side by side (Estrin): as many
    operations and half the latency.
    """
    square = x * x
    firsts = [x.lift(c) for c in coefficients[::2]]
    terms = [x.fma(c, firsts[k]) for k, c in enumerate(coefficients[1::2])]
    terms += firsts[len(terms) :]
    result = terms[-1]
    for term in reversed(terms[:-1]):
        result = result.fma(square, term)
    return result


def clamp(x: ArithValue, low: float, high: float) -> ArithValue:
    """Clamp ``x`` to low .. high; NaN stays NaN."""
    x = (x < low).where(x.lift(low), x)
    return (x > high).where(x.lift(high), x)
