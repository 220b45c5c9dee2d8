"""Narrow forms of one array of f32 weights, and the error that each form makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ....dtypes import bf16, to_numpy

Array: TypeAlias = np.ndarray[Any, Any]

LARGEST = 127
"""Codes of int8 run from -127 to 127, so that a channel's negative is exact, too."""

AT_ONCE = 1 << 18
"""Elements that are quantized at a time: the temporaries stay in cache."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The codes of an array and, per output channel, the scale to multiply them with.

    ``scale`` is None where the codes are the values. It has one element per index of the dimensions
    that are not contracted. ``largest`` is the greatest absolute error of a weight; ``relative`` is
    the root mean square of the errors over that of the weights.
    """

    codes: Array
    scale: Array | None
    largest: float
    relative: float


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
    return Narrowed(codes, None, *error.result())


def to_int8(weights: Array, contracted: tuple[int, ...]) -> Narrowed | str:
    """Quantize f32 weights symmetrically, with one scale per output channel.

    The scale is ``max |w| / 127`` over the contracted dimensions; 1 for a channel of zeros, and for
    one of denormals, whose scale would be 0.
    """
    top = np.maximum(
        weights.max(contracted, keepdims=True), -weights.min(contracted, keepdims=True)
    )
    scale = (top / np.float32(LARGEST)).astype(np.float32)
    scale[scale < np.finfo(np.float32).tiny] = 1
    codes = np.empty(weights.shape, np.int8)
    error = _Error()
    for at in _blocks(weights):
        own = scale if scale.shape[0] == 1 else scale[at]
        whole = np.rint(weights[at] / own)
        codes[at] = np.clip(whole, -LARGEST, LARGEST)
        error.add(weights[at], codes[at] * own.astype(np.float64))
    return Narrowed(codes, scale.squeeze(contracted), *error.result())


FORMS: Mapping[str, Callable[[Array, tuple[int, ...]], Narrowed | str]] = {
    "bf16": to_bf16,
    "int8": to_int8,
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
