"""Discrete Fourier transforms, spectra of frames, and the matrix of the mel scale.

Complex arrays have a last dimension of two: real and imaginary parts.
"""

from __future__ import annotations

import numpy as np

from ....dtypes import f32, f64
from ....hlo.limits import require_bytes
from ...lax import indexing, shaping
from ...lax.fft import fft, pairs_of_complex
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator


def _fit(x: Term, axis: int, size: int) -> Term:
    """A dimension cut, or filled up with zeros, to a size."""
    high = [0] * x.rank
    high[axis] = size - x.dims[axis]
    return shaping.pad(x, 0, [0] * x.rank, high)


def fourier(x: Term, axis: int, size: int, inverse: bool, onesided: bool) -> Term:
    """The transform of ``x[.., parts]`` along a dimension, cut or filled up to ``size``.

    ``onesided`` leaves out the frequencies that follow from the others: in the result of the
    transform of real numbers, in the operand of an inverse one, whose result is then real.
    """
    dtype = x.dtype if x.dtype in (f32, f64) else f32
    parts = shaping.unstack(x.to(dtype), x.rank - 1)
    real = len(parts) == 1
    halved = size // 2 + 1
    parts = [_fit(p, axis, halved if inverse and onesided else size) for p in parts]
    whole = parts[0].do("complex", parts[0].number(0) if real else parts[1])
    if inverse and onesided:
        return shaping.expand_dims(fft(whole, "IRFFT", size, axis), [-1]).to(x.dtype)
    if real and onesided:
        found = fft(parts[0], "RFFT", size, axis)
    else:
        found = fft(whole, "IFFT" if inverse else "FFT", size, axis)
        if onesided:
            found = shaping.slice_in_dim(found, 0, halved, axis)
    return pairs_of_complex(found).to(x.dtype)


@operator("DFT", since=17)
def dft(node: Node) -> Term:
    """The axis is an input from operator set 20 on, before that an attribute."""
    x = node.input(0)
    if node.version >= 20:
        axis = int(node.known(2).reshape(())) if node.has(2) else -2
    else:
        axis = node.int_("axis", 1)
    axis = node.dimension(axis, x.rank)
    inverse, onesided = bool(node.int_("inverse")), bool(node.int_("onesided"))
    size = 2 * (x.dims[axis] - 1) if inverse and onesided else x.dims[axis]
    if node.has(1):
        size = int(node.known(1).reshape(()))
    return fourier(x, axis, size, inverse, onesided)


@operator("STFT", since=17)
def stft(node: Node) -> Term:
    """Transforms of overlapping frames, ``[b, frames, frequencies, 2]``.

    Real signals ``[b, length]`` are taken too, as exporters write them, for ``[b, length, 1]``.
    """
    x, step = node.input(0), int(node.known(1).reshape(()))
    if x.rank == 2:
        x = shaping.expand_dims(x, [-1])
    window = node.optional(2)
    size = int(node.known(3).reshape(())) if node.has(3) else (window or x).dims[0]
    if step < 1 or size < 1 or size > x.dims[1]:
        node.malformed(f"frames of {size} every {step} of a signal of {x.dims[1]}")
    frames = indexing.windows(x, 1, size, step)
    if window is not None:
        frames = frames * shaping.reshape(window, (size, 1))
    return fourier(frames, 2, size, False, bool(node.int_("onesided")))


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(node: Node) -> Term:
    """Triangles that are equally wide on the mel scale, as columns over the frequencies."""
    bands, length, rate = (int(node.known(n).reshape(())) for n in range(3))
    low, high = (float(node.known(n).reshape(())) for n in (3, 4))
    require_bytes((length // 2 + 1) * bands * 8, "the matrix", node.place)
    mels = 2595 * np.log10(1 + np.array([low, high]) / 700)
    steps = mels[0] + np.arange(bands + 2) * (mels[1] - mels[0]) / (bands + 2)
    hertz = 700 * (10 ** (steps / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(int)
    start, center, end = (edges[k : k + bands] for k in range(3))
    row = np.arange(length // 2 + 1)[:, None]
    rising = np.where(center > start, (row - start) / np.maximum(center - start, 1), 1.0)
    falling = (end - row) / np.maximum(end - center, 1)
    inside = np.where((row >= start) & (row < center), rising, 0.0)
    inside = np.where((row >= center) & (row < end), falling, inside)
    inside = np.where(row == center, np.where(end > center, inside, 1.0), inside)
    return node.constant(inside, node.dtype("output_datatype"))
