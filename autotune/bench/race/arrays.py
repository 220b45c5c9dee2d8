"""Arrays between the processes of a race: one file, every element type, no pickle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes  # noqa: F401  (NumPy knows its types by name from here on)
import numpy as np

from ....ir.arrays import Array

LENGTH = 8  # bytes at the start: the length of the description, which is JSON


def write_arrays(path: Path, arrays: Sequence[Array]) -> None:
    """Write arrays, row-major, after a description of their types and shapes."""
    rows = [np.array(a, order="C", copy=None) for a in arrays]
    head = json.dumps([[a.dtype.name, list(a.shape)] for a in rows]).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(LENGTH, "little") + head)
        for a in rows:
            file.write(a.tobytes())


def read_arrays(path: Path) -> list[Array]:
    """Return the arrays of a file that ``write_arrays`` wrote, each in memory of its own."""
    with path.open("rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(LENGTH), "little")))
        found = []
        for name, shape in head:
            dtype, count = np.dtype(name), int(np.prod(shape, dtype=np.int64))
            data = bytearray(file.read(count * dtype.itemsize))
            found.append(np.frombuffer(data, dtype, count).reshape(shape))
        return found
