"""Numbers of DLPack: kinds of devices, and element types as a code and bits."""

from __future__ import annotations

from ....ir.dtypes import BY_NAME, DType

CPU, CUDA, CUDA_MANAGED = 1, 2, 13  # DLDeviceType
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6  # DLDataTypeCode
_F8 = {
    7: "f8e3m4",
    8: "f8e4m3",
    9: "f8e4m3b11fnuz",
    10: "f8e4m3fn",
    11: "f8e4m3fnuz",
    12: "f8e5m2",
    13: "f8e5m2fnuz",
    14: "f8e8m0fnu",
}
_KINDS = {_INT: "s", _UINT: "u", _FLOAT: "f", _COMPLEX: "c", _BFLOAT: "bf"}


def element_type(code: int, bits: int) -> DType | None:
    """Return the element type of a code; None for one that HLO does not have."""
    if bits < 8:  # packed, several to a byte; ours take a byte each
        return None
    if code == _BOOL:
        return BY_NAME["pred"] if bits == 8 else None
    return BY_NAME.get(_F8.get(code, f"{_KINDS.get(code, '?')}{bits}"))


def code_of(dtype: DType) -> tuple[int, int]:
    """Return the code and the bits of an element type.

    ``BufferError`` for elements of less than 8 bits.
    """
    if dtype.kind == "pred":
        return _BOOL, 8
    if dtype.bits < 8:
        raise BufferError(f"DLPack packs several {dtype} into a byte, and here each has its own")
    for table in (_F8, {_BFLOAT: "bf16"}):
        for code, name in table.items():
            if dtype.name == name:
                return code, dtype.bits
    codes = {"signed": _INT, "unsigned": _UINT, "float": _FLOAT, "complex": _COMPLEX}
    return codes[dtype.kind], dtype.bits


def packed(dtype: DType) -> int:
    """Return DLDataType as one number of 32 bits, a single lane; 0 for a type that it lacks."""
    if dtype.bits < 8:
        return 0
    code, bits = code_of(dtype)
    return code | bits << 8 | 1 << 16
