"""Element types: one frozen value per HLO type, with its NumPy twin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np

Kind: TypeAlias = Literal["pred", "signed", "unsigned", "float", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type as HLO names it. ``bits`` is the width of the value, not of its storage."""

    name: str
    kind: Kind
    bits: int

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """Storage of one element in bytes; types under a byte take a whole one."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
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

ALL: tuple[DType, ...] = (
    pred, s2, s4, s8, s16, s32, s64, u2, u4, u8, u16, u32, u64, f16, bf16, f32, f64, *F8, f4e2m1fn,
    c64, c128,
)  # fmt: skip
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}

index = s64  # loop variables and index arithmetic

_ML_DTYPES = {
    "bf16": "bfloat16",
    "s2": "int2", "s4": "int4", "u2": "uint2", "u4": "uint4",
    "f8e5m2": "float8_e5m2", "f8e4m3": "float8_e4m3", "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz", "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e4m3fnuz": "float8_e4m3fnuz", "f8e3m4": "float8_e3m4", "f8e8m0fnu": "float8_e8m0fnu",
    "f4e2m1fn": "float4_e2m1fn",
}  # fmt: skip
_NUMPY = {
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
}  # fmt: skip


@cache
def to_numpy(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that stores ``dtype`` (ml_dtypes' for bf16, f8 and the narrow integers)."""
    if dtype.name in _NUMPY:
        return np.dtype(_NUMPY[dtype.name])
    import ml_dtypes

    narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype.name]))
    return narrow


@cache
def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The element type that a NumPy dtype stores; ``KeyError`` for one HLO does not have."""
    name = np.dtype(dtype).name
    for ours, theirs in (*_NUMPY.items(), *_ML_DTYPES.items()):
        if theirs == name:
            return BY_NAME[ours]
    raise KeyError(f"no HLO element type for NumPy dtype {name}")


def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy itself has the type; ``isbuiltin`` denies it for copies, say unpickled."""
    return dtype.num < _FIRST_FOREIGN


_FIRST_FOREIGN = 256  # NPY_USERDEF
