"""torch's element types, and its tensors as arrays without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...arrays import Array
from ...dtypes import (
    BY_NAME,
    DType,
    bf16,
    c64,
    c128,
    f16,
    f32,
    f64,
    pred,
    s8,
    s16,
    s32,
    s64,
    to_numpy,
    u8,
    u16,
    u32,
    u64,
)
from ...errors import UnsupportedError

if TYPE_CHECKING:
    import torch


TYPES: dict[str, DType] = {
    "bool": pred,
    "uint8": u8,
    "uint16": u16,
    "uint32": u32,
    "uint64": u64,
    "int8": s8,
    "int16": s16,
    "int32": s32,
    "int64": s64,
    "float16": f16,
    "bfloat16": bf16,
    "float32": f32,
    "float64": f64,
    "complex64": c64,
    "complex128": c128,
    **{
        f"float8_{kind}": BY_NAME[f"f8{kind}"]
        for kind in ("e5m2", "e4m3fn", "e5m2fnuz", "e4m3fnuz", "e8m0fnu")
    },
}
"""By torch's name."""


def element_type(dtype: torch.dtype) -> DType | None:
    """Return the element type of a torch dtype; None for one that HLO does not have."""
    return TYPES.get(str(dtype).removeprefix("torch."))


def as_array(tensor: torch.Tensor) -> Array:
    """Return a dense tensor in the processor's memory as an array: a view where it is contiguous.

    ``UnsupportedError`` for sparse, quantized and meta tensors and for types that HLO lacks.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

    tensor = getattr(tensor, "constant", None) if isinstance(tensor, FakeTensor) else tensor
    if tensor is None:
        raise UnsupportedError("cannot read a tensor", "it is fake: it has no elements")
    dtype = element_type(tensor.dtype)
    if dtype is None or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        shown = f"{tensor.dtype} with layout {tensor.layout} on {tensor.device}"
        raise UnsupportedError("cannot read a tensor", f"it is {shown}", hint="make it dense")
    kind = to_numpy(dtype)
    with unset_fake_temporarily():  # a compiler is called while its graph is traced
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        if kind.isbuiltin == 1:
            return np.asarray(plain.numpy())
        carrier = {1: torch.uint8, 2: torch.int16}[kind.itemsize]
        return np.asarray(plain.view(carrier).numpy()).view(kind)


def as_tensor(array: Array) -> torch.Tensor:
    """Return an array as a tensor: the same memory where it is contiguous and writable.

    ``UnsupportedError`` for a type that torch does not have.
    """
    import torch

    name = next((n for n, d in TYPES.items() if to_numpy(d) == array.dtype), None)
    if name is None:
        raise UnsupportedError("cannot make a tensor", f"torch has no type {array.dtype}")
    dense = np.require(array, requirements=["C", "W"])
    if dense.dtype.isbuiltin == 1:
        return torch.from_numpy(dense)
    carrier = {1: np.uint8, 2: np.int16}[dense.dtype.itemsize]
    return torch.from_numpy(dense.view(carrier)).view(getattr(torch, name))
