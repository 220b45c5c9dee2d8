"""Bit layouts of the floating-point element types, and which codes are not finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from .dtypes import BY_NAME, DType, to_numpy

Special: TypeAlias = Literal["ieee", "fn", "fnuz", "finite", "scale"]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A floating-point format: a sign bit, ``exponent`` bits with this ``bias``, ``mantissa`` bits.

    ``special`` tells which codes are not finite: ``ieee`` has infinities and NaNs in the top
    exponent; ``fn`` has one NaN of each sign, all other bits set; ``fnuz`` has one NaN, the code of
    minus zero; ``finite`` has neither. ``scale`` is unsigned and has an exponent only: a power of
    two, with one NaN, all bits set. Sources: OCP 8-bit floating point specification, OCP
    microscaling formats specification, and the StableHLO RFCs that name the types.
    """

    exponent: int
    mantissa: int
    bias: int
    special: Special = "ieee"

    @property
    def sign(self) -> int:
        """The mask of the sign bit; 0 for unsigned formats."""
        return 0 if self.special == "scale" else 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        """The code with all exponent bits set and no others: infinity, if the format has one."""
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def largest(self) -> int:
        """The code of the largest finite number."""
        top = (1 << (self.exponent + self.mantissa)) - 1
        match self.special:
            case "ieee":
                return self.infinity - 1
            case "fn" | "scale":
                return top - 1
            case _:
                return top


FORMATS: dict[DType, FloatFormat] = {
    BY_NAME[name]: value
    for name, value in {
        "f64": FloatFormat(11, 52, 1023),
        "f32": FloatFormat(8, 23, 127),
        "bf16": FloatFormat(8, 7, 127),
        "f16": FloatFormat(5, 10, 15),
        "f8e5m2": FloatFormat(5, 2, 15),
        "f8e4m3": FloatFormat(4, 3, 7),
        "f8e3m4": FloatFormat(3, 4, 3),
        "f8e4m3fn": FloatFormat(4, 3, 7, "fn"),
        "f8e4m3b11fnuz": FloatFormat(4, 3, 11, "fnuz"),
        "f8e5m2fnuz": FloatFormat(5, 2, 16, "fnuz"),
        "f8e4m3fnuz": FloatFormat(4, 3, 8, "fnuz"),
        "f8e8m0fnu": FloatFormat(8, 0, 127, "scale"),
        "f4e2m1fn": FloatFormat(2, 1, 1, "finite"),
    }.items()
}


def is_narrow(dtype: DType) -> bool:
    """True for floats of at most 8 bits and integers of fewer than 8.

    Their elements are only stored, moved and converted, never computed on. Each takes the low bits
    of a byte of its own, whose other bits are zero.
    """
    return dtype.bits < (16 if dtype.is_float else 8)


def code(value: Any, dtype: DType) -> int:
    """Return the code of a number in a narrow type, rounding floats and wrapping integers."""
    if dtype.is_int:
        return int(value) & ((1 << dtype.bits) - 1)
    return int(np.asarray(value, np.float32).astype(to_numpy(dtype)).view(np.uint8))
