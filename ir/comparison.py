"""Comparing results with their references, output by output, and reporting the errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .accuracy import relative_error, tolerance
from .arrays import Array
from .dtypes import from_numpy


@dataclass(frozen=True, slots=True)
class Comparison:
    """The error of one output. ``error`` is the ``relative_error`` of floats; for integers it is
    the number of elements that differ. ``mismatch`` says what else differs."""

    output: int
    error: float
    tolerance: float
    mismatch: str = ""

    @property
    def ok(self) -> bool:
        """True if the output is within its tolerance."""
        return not self.mismatch and self.error <= self.tolerance

    def __str__(self) -> str:
        detail = f" ({self.mismatch})" if self.mismatch else ""
        word = "right" if self.ok else "WRONG"
        return f"{word}: error {self.error:.2e}, tolerance {self.tolerance:.0e}{detail}"


def compare_all(results: Any, wanted: Any, rounded: bool = False) -> list[Comparison]:
    """Compare arrays, or nested tuples of them, with their references, leaf by leaf.

    With ``rounded``, products of f32 may have rounded their operands. ``ValueError`` if the
    numbers of leaves differ.
    """
    pairs = zip(leaves(results), leaves(wanted), strict=True)
    return [compare(i, np.asarray(x), np.asarray(y), rounded) for i, (x, y) in enumerate(pairs)]


def leaves(value: Any) -> list[Any]:
    """Return the arrays in nested tuples or lists, in order."""
    return list(_leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def compare(output: int, got: Array, want: Array, rounded: bool = False) -> Comparison:
    """Compare output number ``output`` with its reference: integers exactly, floats by their size.

    NaNs and infinities must be at the same places.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        detail = f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
        return Comparison(output, float("inf"), 0.0, detail)
    dtype = from_numpy(want.dtype)
    if dtype.kind not in ("float", "complex"):
        wrong = int(np.count_nonzero(got != want))
        return Comparison(output, float(wrong), 0.0, f"{wrong} elements differ" if wrong else "")
    error = relative_error(got, want)
    detail = "" if error < float("inf") else "NaN, infinity or zero at other places"
    return Comparison(output, error, tolerance(dtype, rounded), detail)
