"""Arguments and results as files: reading and writing .npz, comparing outputs."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..ir.errors import ArgumentError

Array: TypeAlias = np.ndarray[Any, Any]

# Largest error, relative to the reference's root mean square, by bytes of the floating type.
TOLERANCE = {1: 1e-1, 2: 2e-2, 4: 1e-3, 8: 1e-9}


def read_npz(path: str | Path) -> list[Array]:
    """The arrays of an .npz file in order: ``arg0, arg1, ...`` by number, else as stored.

    Raises ``ArgumentError`` for a file that is missing, unreadable, or holds pickled objects.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            names = list(data.files)
            if names and all(n.startswith("arg") and n[3:].isdigit() for n in names):
                names.sort(key=lambda n: int(n[3:]))
            return [np.asarray(data[n]) for n in names]
    except FileNotFoundError:
        raise ArgumentError(f"cannot read {path}", "there is no such file") from None
    except (OSError, ValueError, zipfile.BadZipFile) as e:
        raise ArgumentError(
            f"cannot read {path} as .npz", str(e), hint="write it with numpy.savez"
        ) from None


def read_constants(path: str | Path) -> dict[int | str, Array]:
    """Frozen parameters of an .npz file: ``arg3`` means parameter 3, other names are names."""
    try:
        with np.load(path, allow_pickle=False) as data:
            return {
                int(n[3:]) if n.startswith("arg") and n[3:].isdigit() else n: np.asarray(data[n])
                for n in data.files
            }
    except FileNotFoundError:
        raise ArgumentError(f"cannot read {path}", "there is no such file") from None
    except (OSError, ValueError, zipfile.BadZipFile) as e:
        raise ArgumentError(f"cannot read {path} as .npz", str(e)) from None


def write_npz(path: str | Path, arrays: Sequence[Array]) -> None:
    """Write ``out0, out1, ...``; the file appears whole or not at all."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent or ".", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as f:
            np.savez(f, **{f"out{i}": a for i, a in enumerate(arrays)})  # type: ignore[arg-type]
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far one output is from its reference. ``error`` is relative to the reference's RMS."""

    output: int
    error: float
    tolerance: float
    mismatch: str = ""

    @property
    def ok(self) -> bool:
        return not self.mismatch and self.error <= self.tolerance


def compare(output: int, got: Array, want: Array) -> Comparison:
    """Compare one output with its reference: exactly for integers, by RMS for floats.

    NaN and infinities must stand at the same places.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        told = f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
        return Comparison(output, float("inf"), 0.0, told)
    if got.dtype.kind in "biu":
        wrong = int(np.count_nonzero(got != want))
        return Comparison(output, float(wrong), 0.0, f"{wrong} elements differ" if wrong else "")
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    x, y = got.astype(wide), want.astype(wide)
    finite = np.isfinite(y)
    if not np.array_equal(finite, np.isfinite(x)) or not np.array_equal(
        x[~finite], y[~finite], equal_nan=True
    ):
        return Comparison(output, float("inf"), 0.0, "NaN or infinity at other places")
    size = got.dtype.itemsize // (2 if got.dtype.kind == "c" else 1)
    if not finite.any():
        return Comparison(output, 0.0, TOLERANCE[size])
    scale = max(float(np.sqrt(np.mean(np.abs(y[finite]) ** 2))), 1e-30)
    error = float(np.max(np.abs(x[finite] - y[finite]))) / scale
    return Comparison(output, error, TOLERANCE[size])
