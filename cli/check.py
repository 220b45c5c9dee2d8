"""Comparing results with the interpreter's: which error is still right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..ir.dtypes import from_numpy

if TYPE_CHECKING:
    from ..ir.hlo.nodes import HloModule

Array: TypeAlias = np.ndarray[Any, Any]

# Largest error, relative to the reference's root mean square, by bytes of a real element.
TOLERANCE = {1: 1e-1, 2: 2e-2, 4: 1e-3, 8: 1e-9}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far one output is from its reference. ``error`` is relative to the reference's RMS;
    for integers it is the number of elements that differ."""

    output: int
    error: float
    tolerance: float
    mismatch: str = ""

    @property
    def ok(self) -> bool:
        """Is the output right?"""
        return not self.mismatch and self.error <= self.tolerance


def check(
    module: HloModule, arguments: Sequence[Any], results: Sequence[Array]
) -> list[Comparison]:
    """Compare a module's results, in order, with those of the interpreter."""
    from ..ir.hlo.interp import evaluate

    with np.errstate(all="ignore"):
        wanted = leaves(evaluate(module, arguments))
    pairs = zip(results, wanted, strict=True)
    return [compare(i, np.asarray(x), np.asarray(y)) for i, (x, y) in enumerate(pairs)]


def leaves(value: Any) -> list[Any]:
    """The arrays in nested tuples, in order."""
    if isinstance(value, tuple | list):
        return [leaf for v in value for leaf in leaves(v)]
    return [value]


def compare(output: int, got: Array, want: Array) -> Comparison:
    """Compare one output with its reference: exactly for integers, by RMS for floats.

    NaN and infinities must stand at the same places.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        told = f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
        return Comparison(output, float("inf"), 0.0, told)
    kind = from_numpy(want.dtype).kind
    if kind not in ("float", "complex"):
        wrong = int(np.count_nonzero(got != want))
        return Comparison(output, float(wrong), 0.0, f"{wrong} elements differ" if wrong else "")
    wide = np.complex128 if kind == "complex" else np.float64
    x, y = got.astype(wide), want.astype(wide)
    finite = np.isfinite(y)
    if not np.array_equal(finite, np.isfinite(x)) or not np.array_equal(
        x[~finite], y[~finite], equal_nan=True
    ):
        return Comparison(output, float("inf"), 0.0, "NaN or infinity at other places")
    tolerance = TOLERANCE[got.dtype.itemsize // (2 if kind == "complex" else 1)]
    if not finite.any():
        return Comparison(output, 0.0, tolerance)
    scale = max(float(np.sqrt(np.mean(np.abs(y[finite]) ** 2))), 1e-30)
    return Comparison(output, float(np.max(np.abs(x[finite] - y[finite]))) / scale, tolerance)
