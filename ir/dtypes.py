"""Element types: one frozen value per HLO type, and the NumPy dtype that stores it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np

Kind: TypeAlias = Literal["pred", "signed", "unsigned", "float", "complex"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type under its HLO name. ``bits`` is the width of a value, not of its storage.

    There is one object of each, copies and unpickled ones included: they compare by identity.
    """

    name: str
    kind: Kind
    bits: int

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return _named, (self.name,)

    @property
    def bytes(self) -> int:
        """Storage of one element in bytes; types of fewer than 8 bits take a whole byte."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """True for real floating-point types, those of 4 and 8 bits included."""
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers; ``pred`` is not one."""
        return self.kind in ("signed", "unsigned")


pred = DType("pred", "pred", 8)
s2, s4, s8, s16, s32, s64 = (DType(f"s{b}", "signed", b) for b in (2, 4, 8, 16, 32, 64))
u2, u4, u8, u16, u32, u64 = (DType(f"u{b}", "unsigned", b) for b in (2, 4, 8, 16, 32, 64))
f16, f32, f64 = (DType(f"f{b}", "float", b) for b in (16, 32, 64))
bf16 = DType("bf16", "float", 16)
c64, c128 = (DType(f"c{b}", "complex", b) for b in (64, 128))
F8 = tuple(
    DType(name, "float", 8)
    for name in (
        "f8e5m2",
        "f8e4m3",
        "f8e4m3fn",
        "f8e4m3b11fnuz",
        "f8e5m2fnuz",
        "f8e4m3fnuz",
        "f8e3m4",
        "f8e8m0fnu",
    )
)
f4e2m1fn = DType("f4e2m1fn", "float", 4)

_SIGNED, _UNSIGNED = (s2, s4, s8, s16, s32, s64), (u2, u4, u8, u16, u32, u64)
_FLOATS = (f16, bf16, f32, f64, *F8, f4e2m1fn)
ALL: tuple[DType, ...] = (pred, *_SIGNED, *_UNSIGNED, *_FLOATS, c64, c128)
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}


def _named(name: str) -> DType:
    return BY_NAME[name]


index = s64  # loop variables and index arithmetic

_NUMPY = {
    "pred": "bool",
    **{f"s{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"c{bits}": f"complex{bits}" for bits in (64, 128)},
}
_ML_DTYPES = {
    "bf16": "bfloat16",
    **{f"s{bits}": f"int{bits}" for bits in (2, 4)},
    **{f"u{bits}": f"uint{bits}" for bits in (2, 4)},
    **{d.name: d.name.replace("f8", "float8_", 1) for d in F8},
    "f4e2m1fn": "float4_e2m1fn",
}


@cache
def to_numpy(dtype: DType) -> np.dtype[Any]:
    """Return the dtype that stores ``dtype``: NumPy's own, or that of ml_dtypes for bf16, floats of
    4 and 8 bits, and integers of 2 and 4 bits."""
    if dtype.name in _NUMPY:
        return np.dtype(_NUMPY[dtype.name])
    import ml_dtypes

    narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype.name]))
    return narrow


@cache
def from_numpy(dtype: np.dtype[Any]) -> DType:
    """Return the element type that a NumPy dtype stores; ``KeyError`` if HLO does not have it."""
    name = np.dtype(dtype).name
    for ours, theirs in (*_NUMPY.items(), *_ML_DTYPES.items()):
        if theirs == name:
            return BY_NAME[ours]
    raise KeyError(f"no HLO element type for NumPy dtype {name}")


def is_numpy_dtype(dtype: np.dtype[Any]) -> bool:
    """True for NumPy's own dtypes, False for those of ml_dtypes.

    ``dtype.isbuiltin`` is not enough: it is false for copies, such as unpickled ones.
    """
    return dtype.num < _FIRST_FOREIGN


_FIRST_FOREIGN = 256  # NPY_USERDEF


def accumulator(dtype: DType) -> DType:
    """Return the type in which terms are added up: f32 for narrow floats, else the type itself."""
    return f32 if dtype.is_float and dtype.bits < 32 else dtype
