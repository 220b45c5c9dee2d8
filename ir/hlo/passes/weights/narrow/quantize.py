"""Narrow forms of one array of f32 weights, and the error that each form makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from .....arrays import Array
from .....dtypes import bf16, to_numpy
from .....targets.processor import default_threads
from ....patterns.parts import LOWER
from ..blocks.codes import Blocks

BLOCK = 32
"""Terms that share a scale in the form of 4 bits."""

AT_ONCE = 1 << 18
"""Elements that are quantized at a time: the temporaries stay in cache."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The codes of an array in a form and, per output channel, the scale to multiply them with.

    ``lower`` has the lowest 8 bits of codes of 24. ``scale`` is None where the codes are the
    values. It has one element per index of the dimensions that are not contracted. ``largest`` is
    the greatest absolute error of a weight; ``relative`` is the root mean square of the errors over
    that of the weights.
    """

    form: str
    codes: Array
    scale: Array | None
    largest: float
    relative: float
    lower: Array | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of codes and scales."""
        return sum(a.nbytes for a in (self.codes, self.lower, self.scale) if a is not None)


def refusal(weights: Array) -> str:
    """Return why an array has to stay f32; empty if it can be narrowed."""
    total = np.abs(weights).max(initial=np.float32(0))  # NaN if there is one
    if np.isnan(total):
        return "it contains NaN"
    return "it contains infinities" if np.isinf(total) else ""


def to_bf16(weights: Array, contracted: tuple[int, ...]) -> Narrowed | str:
    """Round f32 weights to bf16, to nearest even; or return why that is impossible."""
    del contracted  # bf16 needs no scale
    codes = np.empty(weights.shape, to_numpy(bf16))

    def narrow(at: slice) -> _Error:
        bits = np.ascontiguousarray(weights[at]).view(np.uint32)
        rounded = (bits + (0x7FFF + (bits >> 16 & 1))) & 0xFFFF0000
        codes.view(np.uint16)[at] = rounded >> 16
        return _error(weights[at], rounded.view(np.float32))

    error = _together(weights, narrow)
    if not np.isfinite(error.largest):
        return "it contains numbers that bf16 rounds to infinity"
    return Narrowed("bf16", codes, None, error.largest, error.relative)


def to_integers(weights: Array, contracted: tuple[int, ...], bits: int) -> Narrowed:
    """Quantize f32 weights symmetrically to 8, 16 or 24 bits, with one scale per output channel.

    The scale is ``max |w| / (2**(bits - 1) - 1)`` over the contracted dimensions, so that a
    channel's negative is exact, too; 1 for a channel of zeros, and for one whose scale would be
    denormal.
    """
    largest = _largest(bits)
    scale = _scale(_top(weights, contracted), bits)
    codes = np.empty(weights.shape, np.int8 if bits == 8 else np.int16)
    lower = np.empty(weights.shape, np.uint8) if bits == 16 + LOWER else None

    def narrow(at: slice) -> _Error:
        own = scale if scale.shape[0] == 1 else scale[at]
        whole = np.clip(np.rint(weights[at] / own), -largest, largest)
        if lower is None:
            codes[at] = whole
        else:
            integers = whole.astype(np.int32)
            codes[at], lower[at] = integers >> LOWER, integers & ((1 << LOWER) - 1)
        return _error(weights[at], whole * own.astype(np.float64))

    error = _together(weights, narrow)
    own_scale = scale.squeeze(contracted)
    return Narrowed(f"int{bits}", codes, own_scale, error.largest, error.relative, lower)


def to_blocks(weights: Array, bits: int = 4, size: int = BLOCK) -> tuple[Blocks, float, float]:
    """Quantize f32 weights ``[k, n]`` to 4 or 8 bits, one scale for each ``size`` of a column.

    The largest of a block becomes -8, of -8 to 7 (-128 of 8 bits), and the scale is then fitted to
    its codes by least squares: 0 for a block of zeros, whose part of a result is then exactly 0.
    Also the greatest absolute error of a weight, and the root mean square of the errors over that
    of the weights.
    """
    (terms, columns), error, half = weights.shape, _Error(), 1 << (bits - 1)
    codes = np.empty(weights.shape, np.uint8)
    scale = np.empty((-(-terms // size), columns), np.float32)
    for n, first in enumerate(range(0, terms, size)):
        own = weights[first : first + size]
        top = np.take_along_axis(own, np.abs(own).argmax(0)[None], 0)[0]
        whole = np.clip(np.rint(own / _nonzero(top / np.float32(-half))), -half, half - 1)
        squares = np.square(whole).sum(0)
        fitted = (whole * own.astype(np.float64)).sum(0)
        scale[n] = fitted / np.where(squares == 0, 1, squares)
        codes[first : first + size] = whole + half
        error += _error(own, whole * scale[n].astype(np.float64))
    found = Blocks(codes, np.full((1, 1), half, np.float32), scale, size)
    return found, error.largest, error.relative


def _nonzero(scale: Array) -> Array:
    """Return scales, 1 in place of those that are 0 or denormal."""
    small = np.abs(scale) < np.finfo(np.float32).tiny
    return np.where(small, np.float32(1), scale).astype(np.float32)


def expected_errors(weights: Array, contracted: tuple[int, ...]) -> dict[str, float]:
    """Estimate ``relative`` of ``to_integers`` for each form of ``INTEGERS``.

    Errors are evenly spread over a step of the scale. It is too high for weights many of which
    are 0.
    """
    top = _top(weights, contracted)
    count = weights.size / max(top.size, 1)
    total = _together(weights, lambda at: _Error(weights=_squares(weights[at]))).weights

    def expected(bits: int) -> float:
        scale = _scale(top, bits).astype(np.float64)
        return float(np.square(scale).sum() * count / 12 / total) ** 0.5 if total else 0.0

    return {form: expected(bits) for form, bits in INTEGERS.items()}


def _top(weights: Array, contracted: tuple[int, ...]) -> Array:
    """Return the largest magnitude of each channel, with contracted dimensions of size 1."""
    highest, lowest = (f(contracted, keepdims=True) for f in (weights.max, weights.min))
    return np.asarray(np.maximum(highest, -lowest))


def _scale(top: Array, bits: int) -> Array:
    """Return the scale of each channel."""
    scale = (top / np.float32(_largest(bits))).astype(np.float32)
    scale[scale < np.finfo(np.float32).tiny] = 1
    return np.asarray(scale)


def _largest(bits: int) -> int:
    return (1 << (bits - 1)) - 1


INTEGERS: Mapping[str, int] = {f"int{bits}": bits for bits in (8, 16, 24)}
"""Bits of the forms with a scale per channel, the narrowest first."""

FORMS: Mapping[str, Callable[[Array, tuple[int, ...]], Narrowed | str]] = {
    "bf16": to_bf16,
    **{form: partial(to_integers, bits=bits) for form, bits in INTEGERS.items()},
}
"""The narrow forms, by the name that ``weights=`` takes."""


def _blocks(weights: Array) -> Iterator[slice]:
    """Yield slices of the first dimension, of about ``AT_ONCE`` elements each."""
    rows = max(1, AT_ONCE * len(weights) // max(weights.size, 1))
    for first in range(0, len(weights), rows):
        yield slice(first, first + rows)


@dataclass(frozen=True, slots=True)
class _Error:
    """Errors of numbers: the largest, and sums of squares of errors and of numbers, in f64."""

    largest: float = 0.0
    errors: float = 0.0
    weights: float = 0.0

    def __add__(self, other: _Error) -> _Error:
        largest = max(self.largest, other.largest)
        return _Error(largest, self.errors + other.errors, self.weights + other.weights)

    @property
    def relative(self) -> float:
        """The root mean square of the errors over that of the numbers."""
        return (self.errors / self.weights) ** 0.5 if self.weights else 0.0


def _error(exact: Array, rounded: Array) -> _Error:
    wide = exact.astype(np.float64).reshape(-1)
    difference = wide - rounded.reshape(-1)
    largest = float(np.abs(difference).max(initial=0))
    return _Error(largest, _squares(difference), _squares(wide))


def _squares(x: Array) -> float:
    return float(np.square(x, dtype=np.float64).sum())  # no BLAS: its threads spin


def _together(weights: Array, work: Callable[[slice], _Error]) -> _Error:
    """Return the errors of all blocks, which threads share; summed in order."""
    blocks = list(_blocks(weights))
    if len(blocks) < 2:
        return sum(map(work, blocks), _Error())
    with ThreadPoolExecutor(default_threads()) as pool:
        return sum(pool.map(work, blocks), _Error())
