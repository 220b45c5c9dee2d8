"""What a user gives as an array: as NumPy takes it, or a refusal that says why."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .errors import ArgumentError

Array: TypeAlias = np.ndarray[Any, Any]


def as_array(
    value: object, what: str, where: str = "", dtype: np.dtype[Any] | None = None
) -> Array:
    """The array that NumPy makes of a value, of an element type if one is asked for.

    ``ArgumentError`` for masked arrays, for objects, and where ``__array__`` raises whatever it
    may; ``what`` names the value in it.
    """
    refuse_masked(value, what, where)
    try:
        array = np.asarray(value, dtype)
    except Exception as error:  # ``__array__`` is other people's code
        told = f"{type(error).__name__}: {error}"
        raise ArgumentError(what, f"{_kind(value)} gives no array: {told}", where) from error
    if array.dtype.hasobject:
        raise ArgumentError(what, f"{_kind(value)} gives no array of numbers", where)
    return array


def refuse_masked(value: object, what: str, where: str = "") -> None:
    """``ArgumentError`` for one of NumPy's masked arrays: compiled code knows no masks."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(
            what, "a masked array, whose mask would be lost", where,
            "x.filled(value) gives a plain array",
        )  # fmt: skip


def _kind(value: object) -> str:
    return type(value).__name__
