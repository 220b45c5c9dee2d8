"""Discrete Fourier transforms, and complex numbers as pairs of reals."""

from __future__ import annotations

from .shaping import move_axis, stack, unstack
from .term import Term


def fft(x: Term, kind: str, length: int, axis: int) -> Term:
    """HLO's ``fft`` along a dimension, of ``length``, which is its size but for IRFFT.

    ``kind`` is FFT or IFFT (of complex numbers), RFFT (of floats; ``length // 2 + 1`` complex
    results) or IRFFT (its inverse).
    """
    rows = move_axis(x, axis, -1)
    value = rows.site.infer("fft", [rows.value], fft_type=kind, fft_length=(length,))
    return move_axis(Term(rows.site, value), -1, axis)


def pairs_of_complex(x: Term) -> Term:
    """Complex ``[..]`` as floats ``[.., 2]``: real and imaginary parts."""
    return stack([x.do("real"), x.do("imag")], x.rank)


def complex_of_pairs(x: Term) -> Term:
    """Floats ``[.., 2]``, real and imaginary parts, as complex ``[..]``."""
    real, imag = unstack(x, x.rank - 1)
    return real.do("complex", imag)
