"""Comparing results with the interpreter's: which error is still right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..ir.accuracy import relative_error, tolerance
from ..ir.dtypes import from_numpy

if TYPE_CHECKING:
    from ..ir.hlo.nodes import HloModule

Array: TypeAlias = np.ndarray[Any, Any]


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
    module: HloModule, arguments: Sequence[Any], results: Sequence[Array], tf32: bool = False
) -> list[Comparison]:
    """Compare a module's results, in order, with those of the interpreter.

    ``tf32``: products of f32 may have been computed with operands of fewer bits.
    """
    from ..ir.hlo.interp import evaluate

    with np.errstate(all="ignore"):
        wanted = leaves(evaluate(module, arguments))
    pairs = zip(results, wanted, strict=True)
    return [compare(i, np.asarray(x), np.asarray(y), tf32) for i, (x, y) in enumerate(pairs)]


def leaves(value: Any) -> list[Any]:
    """The arrays in nested tuples, in order."""
    if isinstance(value, tuple | list):
        return [leaf for v in value for leaf in leaves(v)]
    return [value]


def compare(output: int, got: Array, want: Array, tf32: bool = False) -> Comparison:
    """Compare one output with its reference: exactly for integers, by RMS for floats.

    NaN and infinities must stand at the same places.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        told = f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
        return Comparison(output, float("inf"), 0.0, told)
    dtype = from_numpy(want.dtype)
    if dtype.kind not in ("float", "complex"):
        wrong = int(np.count_nonzero(got != want))
        return Comparison(output, float(wrong), 0.0, f"{wrong} elements differ" if wrong else "")
    error = relative_error(got, want)
    told = "" if error < float("inf") else "NaN, infinity or zero at other places"
    return Comparison(output, error, tolerance(dtype, tf32), told)
