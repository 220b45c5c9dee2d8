"""Operands with Python's operators, for writing numerical code down once for every width.

Sums and products are rounded one by one, unless ``fma`` is asked for. Python numbers stand for
literals of the other operand's type; comparisons give conditions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dtypes import DType, f32, f64
from ..emit.llvm.builder import SIGNED, IRBuilder
from ..emit.llvm.convert import to_odd
from ..emit.llvm.core import Value


@dataclass(frozen=True, slots=True)
class ArithValue:
    """A number, one per lane, and the builder that its instructions go to."""

    b: IRBuilder
    v: Value

    @property
    def dtype(self) -> DType:
        return self.v.dtype

    def lift(self, x: ArithValue | float) -> ArithValue:
        """A literal of this type; an operand as it is."""
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

    def over(self, other: ArithValue | float, endless: bool = False) -> ArithValue:
        """``self / other``, both of middling size, ``other`` not 0: fast on GPUs.

        ``endless``: ``other`` may be infinite.
        """
        return ArithValue(self.b, self.b.ratio(self.v, self.lift(other).v, endless))

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
        """Whether both are numbers and equal."""
        name = "oeq" if self.dtype.is_float else "eq"
        return ArithValue(self.b, self.b.compare(name, self.v, self.lift(other).v))

    def is_nan(self) -> ArithValue:
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
        """Arithmetic: the sign is kept."""
        return ArithValue(self.b, self.b.binary("ashr", self.v, self.lift(bits).v))

    def fma(self, y: ArithValue | float, z: ArithValue | float) -> ArithValue:
        """``self * y + z``, rounded once where the machine can."""
        return ArithValue(self.b, self.b.fma(self.v, self.lift(y).v, self.lift(z).v))

    def where(self, a: ArithValue, b: ArithValue | float) -> ArithValue:
        """``a`` where this condition holds, else ``b``."""
        return ArithValue(self.b, self.b.select(self.v, a.v, a.lift(b).v))

    def _intrinsic(self, name: str, *others: ArithValue) -> ArithValue:
        return ArithValue(self.b, self.b.intrinsic(name, self.v, *(x.v for x in others)))

    def abs(self) -> ArithValue:
        return self._intrinsic("llvm.fabs")

    def sqrt(self) -> ArithValue:
        return self._intrinsic("llvm.sqrt")

    def rint(self) -> ArithValue:
        return self._intrinsic("llvm.rint")

    def floor(self) -> ArithValue:
        return self._intrinsic("llvm.floor")

    def copysign(self, sign: ArithValue) -> ArithValue:
        """This size with the sign of another number, zeros included."""
        return self._intrinsic("llvm.copysign", sign)

    def bits(self) -> ArithValue:
        """The bits of a float, as signed integers."""
        return ArithValue(self.b, self.b.bits(self.v))

    def floats(self) -> ArithValue:
        """The floats that have these bits."""
        return ArithValue(self.b, self.b.from_bits(self.v))

    def double(self) -> ArithValue:
        """An f32 as f64."""
        return ArithValue(self.b, self.b.cast("fpext", self.v, f64))

    def single(self) -> ArithValue:
        """An f64 rounded to f32: to odd if that is to be rounded again."""
        if self.b.rounds_again is not None:
            return ArithValue(self.b, to_odd(self.b, self.v, self.b.rounds_again))
        return ArithValue(self.b, self.b.cast("fptrunc", self.v, f32))

    def as_float(self) -> ArithValue:
        """An integer as a float of the same width."""
        return ArithValue(
            self.b, self.b.cast("sitofp", self.v, f64 if self.dtype.bits == 64 else f32)
        )

    def low_half(self) -> ArithValue:
        """The low 32 bits of 64."""
        return ArithValue(self.b, self.b.cast("trunc", self.v, SIGNED[32]))


def horner(x: ArithValue, *coefficients: float) -> ArithValue:
    """The polynomial in ``x``, its constant term first."""
    result = x.lift(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result.fma(x, c)
    return result


def between(x: ArithValue, low: float, high: float) -> ArithValue:
    """``x`` limited to low .. high; NaN stays."""
    x = (x < low).where(x.lift(low), x)
    return (x > high).where(x.lift(high), x)
