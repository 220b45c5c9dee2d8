"""Running library calls: what an executable remembers between them, what they must give."""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock

import numpy as np

from ..arrays import Array, as_array
from ..errors import ArgumentError, LibraryError
from .call import ArrayType, LibraryCall
from .lapack import prepared as lapack_prepared
from .registry import function, is_registered
from .tape import Prepared

FIRST_STATE = 0x7012395
"""The state of random numbers before the first call: XLA's, which is any number but 0."""

_lock = Lock()


def _fresh_lock() -> None:
    """A child of a fork may have inherited a lock that a thread of its parent held."""
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


class Session:
    """State that an executable, or one evaluation, keeps between library calls."""

    def __init__(self) -> None:
        self._state = FIRST_STATE

    def run(self, call: LibraryCall, operands: Sequence[Array]) -> list[Array]:
        """The results of a call, of the types that it asks for.

        What the function raises comes through as it is, with a note of the call. ``LibraryError``
        if the function does not exist, or its results do not fit.
        """
        if call.opcode == "rng-get-and-update-state":
            return [self._next_state(call)]
        found, is_users = function(call)
        if not is_users:
            with np.errstate(all="ignore"):
                return checked(found(call, *operands), call)
        try:
            made = found(call, *(np.array(a, order="C") for a in operands))
        except Exception as error:
            error.add_note(f"raised by the function registered for {call.target!r}")
            raise
        return checked(made, call)

    def prepared(self, call: LibraryCall) -> Prepared | None:
        """A call on tape, of a routine of LAPACK whose steps are the same each time."""
        return lapack_prepared(call) if call.opcode == "custom-call" else None

    def is_users(self, call: LibraryCall) -> bool:
        """Does a function that a user registered answer the call, for now?"""
        return is_registered(call.target)

    def _next_state(self, call: LibraryCall) -> Array:
        """The 128-bit state, low word first; ``delta`` is added to it."""
        delta = call.attributes.get("delta", 0)
        step = delta if isinstance(delta, int) else 0
        with _lock:
            state = self._state
            self._state = (state + step) % (1 << 128)
        return np.array([state % (1 << 64), state >> 64], np.uint64)


def checked(made: object, call: LibraryCall) -> list[Array]:
    """Return a function's results as C-contiguous arrays; ``LibraryError`` if they do not fit."""
    many = isinstance(made, tuple | list)
    values: Sequence[object] = made if isinstance(made, tuple | list) else (made,)
    where = f"{call.opcode} {call.target!r}"
    if made is None and not call.results:
        return []
    if len(values) != len(call.results):
        got = f"a tuple of {len(values)}" if many else type(made).__name__
        raise LibraryError(
            where, f"its function must return {len(call.results)} arrays, gave {got}"
        )
    return [
        _fitting(v, t, i, where) for i, (v, t) in enumerate(zip(values, call.results, strict=True))
    ]


def _fitting(value: object, wanted: ArrayType, number: int, where: str) -> Array:
    if type(value) is np.ndarray and value.dtype == wanted.dtype and value.shape == wanted.shape:
        return np.asarray(value, order="C")
    try:
        array = as_array(value, f"result {number} must be {wanted}")
    except ArgumentError as error:
        raise LibraryError(where, f"{error.what}; {error.why}", hint=error.hint) from error
    if array.shape != wanted.shape or array.dtype.newbyteorder("=") != wanted.dtype:
        shape = ",".join(map(str, array.shape))
        raise LibraryError(
            where,
            f"result {number} must be {wanted}, not {array.dtype}[{shape}]",
            hint="numpy.asarray(x, call.results[i].dtype) converts; nothing is converted unasked",
        )
    return np.asarray(array, wanted.dtype, order="C")
