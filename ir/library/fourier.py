"""Fourier transforms by SciPy, else NumPy: complex, real to complex, and back.

SciPy transforms several rows at once in the lanes of vectors, and many on several threads: 256 x
256 complex numbers take a sixth of NumPy's time, 64 rows of 4096 a ninth.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..errors import LibraryError
from ..targets.processor import default_threads
from .call import LibraryCall
from .each import scipy

TRANSFORMS = {"FFT": "fftn", "IFFT": "ifftn", "RFFT": "rfftn", "IRFFT": "irfftn"}
SHARED = 1 << 16
"""Numbers from which on threads are worth their start."""


def transform(call: LibraryCall, a: Array) -> Array:
    """A transform of the last dimensions, of lengths ``fft_length``; inverses divide by their size.

    The type stays: single precision is computed in single precision where NumPy does so (2.0 on).
    """
    lengths, kind = call.attributes.get("fft_length"), call.attributes.get("fft_type")
    name = TRANSFORMS.get(str(kind))
    if name is None or not isinstance(lengths, tuple) or not all(type(n) is int for n in lengths):
        raise LibraryError("fft", f"fft_type={kind!r}, fft_length={lengths!r}")
    (wanted,) = call.results
    if not a.size or 0 in wanted.shape:
        return np.zeros(wanted.shape, wanted.dtype)
    axes = tuple(range(-len(lengths), 0))
    if (module := scipy("fft")) is None:
        out = getattr(np.fft, name)(a, lengths, axes)
    else:
        threads = default_threads() if a.size >= SHARED else 1
        out = getattr(module, name)(a, lengths, axes, workers=threads)
    return np.asarray(out).astype(wanted.dtype, copy=False)
