"""Narrow forms of one array of f32 weights, and the error that each form makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from .....dtypes import bf16, to_numpy
from ....patterns.parts import LOWER
from ..blocks.codes import Blocks

Array: TypeAlias = np.ndarray[Any, Any]

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
    error = _Error()
    for at in _blocks(weights):
        bits = np.ascontiguousarray(weights[at]).view(np.uint32)
        rounded = (bits + (0x7FFF + (bits >> 16 & 1))) & 0xFFFF0000
        codes.view(np.uint16)[at] = rounded >> 16
        error.add(weights[at], rounded.view(np.float32))
    if not np.isfinite(error.largest):
        return "it contains numbers that bf16 rounds to infinity"
    return Narrowed("bf16", codes, None, *error.result())


def to_integers(weights: Array, contracted: tuple[int, ...], bits: int) -> Narrowed:
    """Quantize f32 weights symmetrically to 8, 16 or 24 bits, with one scale per output channel.

    The scale is ``max |w| / (2**(bits - 1) - 1)`` over the contracted dimensions, so that a
    channel's negative is exact, too; 1 for a channel of zeros, and for one whose scale would be
    denormal.
    """
    largest = _largest(bits)
    scale = _scale(weights, contracted, bits)
    codes = np.empty(weights.shape, np.int8 if bits == 8 else np.int16)
    lower = np.empty(weights.shape, np.uint8) if bits == 16 + LOWER else None
    error = _Error()
    for at in _blocks(weights):
        own = scale if scale.shape[0] == 1 else scale[at]
        whole = np.clip(np.rint(weights[at] / own), -largest, largest)
        error.add(weights[at], whole * own.astype(np.float64))
        if lower is None:
            codes[at] = whole
        else:
            integers = whole.astype(np.int32)
            codes[at], lower[at] = integers >> LOWER, integers & ((1 << LOWER) - 1)
    return Narrowed(f"int{bits}", codes, scale.squeeze(contracted), *error.result(), lower)


def to_blocks(weights: Array, bits: int = 4, size: int = BLOCK) -> tuple[Blocks, float, float]:
    """Quantize f32 weights ``[k, n]`` to 4 or 8 bits, one scale for each ``size`` of a column.

    The largest of a block becomes -8, of -8 to 7 (-128 of 8 bits), and the scale is then fitted to
    its codes by least squares. Also the greatest absolute error of a weight, and the root mean
    square of the errors over that of the weights.
    """
    (terms, columns), error, half = weights.shape, _Error(), 1 << (bits - 1)
    codes = np.empty(weights.shape, np.uint8)
    scale = np.empty((-(-terms // size), columns), np.float32)
    for n, first in enumerate(range(0, terms, size)):
        own = weights[first : first + size]
        top = np.take_along_axis(own, np.abs(own).argmax(0)[None], 0)[0]
        whole = np.clip(np.rint(own / _nonzero(top / np.float32(-half))), -half, half - 1)
        squares = np.square(whole).sum(0)
        scale[n] = _nonzero((whole * own).sum(0) / np.where(squares == 0, 1, squares))
        codes[first : first + size] = whole + half
        error.add(own, whole * scale[n].astype(np.float64))
    return Blocks(codes, np.full((1, 1), half, np.float32), scale, size), *error.result()


def _nonzero(scale: Array) -> Array:
    """Return scales, 1 in place of those that are 0 or denormal."""
    small = np.abs(scale) < np.finfo(np.float32).tiny
    return np.where(small, np.float32(1), scale).astype(np.float32)


def expected_error(weights: Array, contracted: tuple[int, ...], bits: int) -> float:
    """Estimate ``relative`` of ``to_integers``: errors are evenly spread over a step of the scale.

    It is too high for weights many of which are 0.
    """
    scale = _scale(weights, contracted, bits).astype(np.float64)
    count = weights.size / max(scale.size, 1)
    total = sum(float(np.square(weights[at], dtype=np.float64).sum()) for at in _blocks(weights))
    return float(np.square(scale).sum() * count / 12 / total) ** 0.5 if total else 0.0


def _scale(weights: Array, contracted: tuple[int, ...], bits: int) -> Array:
    """Return the scale of each channel, with contracted dimensions of size 1."""
    top = np.maximum(
        weights.max(contracted, keepdims=True), -weights.min(contracted, keepdims=True)
    )
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


class _Error:
    """Errors of one array, summed in f64 block by block."""

    def __init__(self) -> None:
        self.largest = 0.0
        self._errors = 0.0
        self._weights = 0.0

    def add(self, exact: Array, rounded: Array) -> None:
        """Count one block."""
        wide = exact.astype(np.float64).reshape(-1)
        difference = wide - rounded.reshape(-1)
        self.largest = max(self.largest, float(np.abs(difference).max(initial=0)))
        self._errors += float(np.square(difference).sum())  # no BLAS: its threads spin
        self._weights += float(np.square(wide).sum())

    def result(self) -> tuple[float, float]:
        """Return the largest absolute error and the relative root mean square."""
        return self.largest, (self._errors / self._weights) ** 0.5 if self._weights else 0.0
