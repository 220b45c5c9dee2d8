"""How the floats of each element type are laid out in bits, and what their top codes mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from .dtypes import BY_NAME, DType, to_numpy

Special: TypeAlias = Literal["ieee", "fn", "fnuz", "finite", "scale"]


@dataclass(frozen=True, slots=True)
class Format:
    """A float: a sign bit, ``exponent`` bits with this ``bias``, ``mantissa`` bits.

    ``special`` says what is not a number: ``ieee`` has infinities and NaNs under the top
    exponent; ``fn`` one NaN of each sign, all bits set; ``fnuz`` one NaN, where minus zero would
    be; ``finite`` neither. ``scale`` has an exponent and nothing else: a power of two, its one
    NaN all bits set. (OCP 8-bit floating point, OCP microscaling formats, and the RFCs of
    StableHLO that name the types.)
    """

    exponent: int
    mantissa: int
    bias: int
    special: Special = "ieee"

    @property
    def sign(self) -> int:
        """The bit of the sign, as a number; 0 where there is none."""
        return 0 if self.special == "scale" else 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        """The bits of infinity where there is one, else those of the first code past it."""
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def largest(self) -> int:
        """The bits of the largest finite number."""
        top = (1 << (self.exponent + self.mantissa)) - 1
        match self.special:
            case "ieee":
                return self.infinity - 1
            case "fn" | "scale":
                return top - 1
            case _:
                return top


FORMATS: dict[DType, Format] = {
    BY_NAME[name]: value
    for name, value in {
        "f64": Format(11, 52, 1023),
        "f32": Format(8, 23, 127),
        "bf16": Format(8, 7, 127),
        "f16": Format(5, 10, 15),
        "f8e5m2": Format(5, 2, 15),
        "f8e4m3": Format(4, 3, 7),
        "f8e3m4": Format(3, 4, 3),
        "f8e4m3fn": Format(4, 3, 7, "fn"),
        "f8e4m3b11fnuz": Format(4, 3, 11, "fnuz"),
        "f8e5m2fnuz": Format(5, 2, 16, "fnuz"),
        "f8e4m3fnuz": Format(4, 3, 8, "fnuz"),
        "f8e8m0fnu": Format(8, 0, 127, "scale"),
        "f4e2m1fn": Format(2, 1, 1, "finite"),
    }.items()
}


def is_narrow(dtype: DType) -> bool:
    """Whether elements are only stored, moved and converted: floats of 8 bits or fewer, integers
    of fewer than 8. Each takes the low bits of a byte of its own, the others being zero."""
    return dtype.bits < (16 if dtype.is_float else 8)


def code(value: Any, dtype: DType) -> int:
    """The bits that store a number of a narrow type, which is rounded or wrapped to it."""
    if dtype.is_int:
        return int(value) & ((1 << dtype.bits) - 1)
    return int(np.asarray(value, np.float32).astype(to_numpy(dtype)).view(np.uint8))
