"""Converting what a user passes as an array to NumPy, or refusing it with a reason."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .errors import ArgumentError

Array: TypeAlias = np.ndarray[Any, Any]


def as_array(
    value: object, what: str, where: str = "", dtype: np.dtype[Any] | None = None
) -> Array:
    """Convert a value to an array, of element type ``dtype`` if one is given.

    ``ArgumentError``, in which ``what`` names the value, for masked arrays, for arrays of objects,
    and if ``__array__`` raises anything.
    """
    refuse_masked(value, what, where)
    try:
        array = np.asarray(value, dtype)
    except Exception as error:  # ``__array__`` is foreign code and may raise anything
        why = f"{_kind(value)} does not convert to an array: {type(error).__name__}: {error}"
        raise ArgumentError(what, why, where) from error
    if array.dtype.hasobject:
        raise ArgumentError(what, f"{_kind(value)} does not convert to an array of numbers", where)
    return array


def refuse_masked(value: object, what: str, where: str = "") -> None:
    """Raise ``ArgumentError`` for a NumPy masked array: compiled code ignores masks."""
    if isinstance(value, np.ma.MaskedArray):
        why = "a masked array, whose mask would be lost"
        raise ArgumentError(what, why, where, hint="x.filled(value) gives a plain array")


def _kind(value: object) -> str:
    return type(value).__name__
