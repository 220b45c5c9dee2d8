"""Arguments and results as .npz files: reading, putting in order, writing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.archive import opened
from ...ir.errors import ArgumentError, ArtifactError
from ...ir.files import whole_file

if TYPE_CHECKING:  # `--help` needs neither LLVM nor NumPy
    from ...codegen.plan.signature import ArraySpec
    from ...ir.arrays import Array as Array


def read_npz(path: str | Path) -> dict[str, Array]:
    """Return the arrays of an .npz file by name, as stored.

    Raises ``ArgumentError`` for a file that is missing, unreadable, damaged, too large, or holds
    pickled objects.
    """
    from ...ir.npy import read_arrays

    try:
        with opened(path) as archive:
            return read_arrays(archive)
    except ArtifactError as e:
        if not os.path.isfile(path):
            raise ArgumentError(f"cannot read {path}", e.why) from None
        raise ArgumentError(
            f"cannot read {path} as .npz", e.why or e.what, hint="numpy.savez writes such files"
        ) from None


def _number(name: str) -> int | None:
    """Return the 3 of ``arg3``."""
    digits = name[3:]
    known = name.startswith("arg") and digits.isascii() and digits.isdecimal()
    return int(digits) if known and len(digits) <= 9 else None


def read_constants(path: str | Path | None) -> dict[int | str, Array] | None:
    """Frozen parameters of an .npz file: ``arg3`` means parameter 3, other names are names."""
    if path is None:
        return None
    frozen: dict[int | str, Array] = {}
    for name, array in read_npz(path).items():
        number = _number(name)
        frozen[name if number is None else number] = array
    return frozen


def in_order(arrays: Mapping[str, Array], params: Sequence[ArraySpec]) -> list[Array]:
    """Arguments in the order of the parameters.

    They are named ``arg0``, ``arg1``, ... or like the parameters; other names mean the order in
    the file. NumPy stores bf16 and other types of ml_dtypes as bare bytes; they get their type
    back from the parameter.
    """
    numbers = {name: _number(name) for name in arrays}
    if all(n is not None for n in numbers.values()):
        names = sorted(arrays, key=lambda name: numbers[name] or 0)
    elif set(arrays) == {p.name for p in params}:
        names = [p.name for p in params]
    else:
        names = list(arrays)
    ordered = [arrays[name] for name in names]
    return [_typed(a, p) for a, p in zip(ordered, params, strict=False)] + ordered[len(params) :]


def sizes(arrays: Mapping[str, Array]) -> dict[str | int, tuple[int, ...]]:
    """Return the shapes of arguments by name; of ``arg3``, and of NumPy's ``arr_3``, by place."""
    found: dict[str | int, tuple[int, ...]] = {}
    for name, array in arrays.items():
        number = _number(name.replace("arr_", "arg", 1))
        found[name if number is None else number] = array.shape
    return found


def _typed(array: Array, param: ArraySpec) -> Array:
    from ...ir.dtypes import to_numpy

    dtype = to_numpy(param.dtype)
    bare = array.dtype.kind == "V" and array.dtype.names is None and array.dtype.subdtype is None
    same = array.dtype.itemsize == dtype.itemsize
    return array.view(dtype) if bare and same and array.dtype != dtype else array


def write_npz(path: str | Path, arrays: Sequence[Array]) -> None:
    """Write ``out0, out1, ...``; the file appears whole or not at all."""
    import numpy as np

    named: dict[str, Any] = {f"out{i}": a for i, a in enumerate(arrays)}
    with whole_file(path) as file:
        np.savez(file, **named)
