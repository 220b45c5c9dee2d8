"""Fourier transforms by NumPy: complex, real to complex, and back."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ..errors import LibraryError
from .call import LibraryCall

Array: TypeAlias = np.ndarray[Any, Any]

TRANSFORMS = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}


def transform(call: LibraryCall, a: Array) -> Array:
    """A transform of the last dimensions, of lengths ``fft_length``; inverses divide by their size.

    The type stays: single precision is computed in single precision where NumPy does so (2.0 on).
    """
    lengths, kind = call.attributes.get("fft_length"), call.attributes.get("fft_type")
    found = TRANSFORMS.get(str(kind))
    if found is None or not isinstance(lengths, tuple) or not all(type(n) is int for n in lengths):
        raise LibraryError("fft", f"fft_type={kind!r}, fft_length={lengths!r}")
    (wanted,) = call.results
    if not a.size or 0 in wanted.shape:
        return np.zeros(wanted.shape, wanted.dtype)
    axes = tuple(range(-len(lengths), 0))
    out = found(a, lengths, axes)  # type: ignore[operator]
    return np.asarray(out).astype(wanted.dtype, copy=False)
