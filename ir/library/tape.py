"""Calls of SciPy's routines with memory of their own: made for operands of some types, then run.

Most of what a small factorization costs from Python is to look at arrays and to find memory and
addresses, which are the same for every call of an executable. So a function of ``lapack_scipy``
does not run routines: it records steps on a tape, which copy operands into buffers and call
routines on those, and returns the arrays that the steps will have filled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array
from .call import ArrayType, LibraryCall
from .each import Argument, PreparedCall, prepared_call

Results: TypeAlias = tuple[Array, ...]
Recording: TypeAlias = Callable[..., Results]
"""Records steps on a tape, its first argument, and returns the arrays that they will fill."""


class Tape:
    """Steps over operands ``[B, ...]`` of fixed shapes. One thread may run it at a time."""

    def __init__(self, operands: Sequence[Array]) -> None:
        """Begin without a step. Of the operands given here, only types and shapes count."""
        self._like = tuple(operands)
        self._steps: list[Callable[[Sequence[Array]], object]] = []
        self.bytes = 0
        """The size of the buffers."""

    def run(self, operands: Sequence[Array]) -> None:
        """Fill the buffers from these operands, in C order: all steps, in order."""
        for step in self._steps:
            step(operands)

    def then(self, action: Callable[[], object]) -> None:
        """Add a step of NumPy on buffers, whose warnings do not count."""

        def step(operands: Sequence[Array]) -> None:
            with np.errstate(all="ignore"):
                action()

        self._steps.append(step)

    def number(self, a: Array) -> int | None:
        """Return which operand this is, None for other arrays."""
        return next((k for k, x in enumerate(self._like) if x is a), None)

    def copy(self, a: Array) -> Array:
        """Return a buffer with a copy of an operand, in C order."""
        return self._filled(a, self._new(a.shape, a.dtype))

    def columns(self, a: Array) -> Array:
        """Return a buffer with the columns of an operand's matrices in its rows."""
        *batch, m, n = a.shape
        buffer = self._new((*batch, n, m), a.dtype)
        self._filled(a, np.swapaxes(buffer, -1, -2))
        return buffer

    def zeros(self, a: Array, *dims: int, dtype: Any = None) -> Array:
        """Return a buffer of zeros ``[B, *dims]``, by default of the type of ``a``."""
        buffer = self._new((len(a), *dims), np.dtype(dtype or a.dtype))
        self._steps.append(lambda operands: buffer.fill(0))
        return buffer

    def blas(self, name: str, like: Array, *arguments: Argument) -> None:
        """Add a call of a routine of BLAS for each matrix of ``like``, ``[B, m, n]``."""
        self._call(prepared_call("blas", name, like, arguments))

    def lapack(self, name: str, like: Array, *arguments: Argument) -> Array:
        """Add a call of LAPACK, whose last argument is ``info``, and return that."""
        info = self.zeros(like, dtype=np.int32)
        self._call(prepared_call("lapack", name, like, (*arguments, info)))
        return info

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        buffer = np.empty(shape, dtype)
        self.bytes += buffer.nbytes
        return buffer

    def _filled(self, a: Array, buffer: Array) -> Array:
        number = self.number(a)
        if number is None:
            raise ValueError("a tape copies operands alone: another array is not filled again")
        self._steps.append(lambda operands: np.copyto(buffer, operands[number]))
        return buffer

    def _call(self, call: PreparedCall) -> None:
        self.bytes += call.bytes
        given = {k: n for k, x in call.arrays.items() if (n := self.number(x)) is not None}
        self._steps.append(partial(call.run, given))


def at_once(record: Recording, *arguments: Any) -> Results:
    """Return the results of a function that records on a tape; its operands are the arrays."""
    given = [np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in arguments]
    operands = [x for x in given if isinstance(x, np.ndarray)]
    tape = Tape(operands)
    results = record(tape, *given)
    tape.run(operands)
    return results


@dataclass(frozen=True, slots=True)
class Prepared:
    """A library call on tape. A result is an array that the tape fills, or an operand's number."""

    tape: Tape
    operands: tuple[ArrayType, ...]
    made: tuple[Array | int, ...]
    results: tuple[ArrayType, ...]
    """Types as the tape has them, ``[B, ...]``: the call's own may have other dimensions for B."""

    def run(self, operands: Sequence[Array], results: Sequence[Array]) -> None:
        """Fill the results, C-contiguous arrays as ``operands`` are; one thread at a time."""
        self.tape.run(operands)
        for out, made in zip(results, self.made, strict=True):
            np.copyto(out, operands[made] if isinstance(made, int) else made)


def prepare(call: LibraryCall, operands: Sequence[Array], record: Recording) -> Prepared | None:
    """Return a call on tape, which ``record(tape, *operands)`` fills; None where its results are
    not what the call says.
    """
    tape = Tape(operands)
    made = record(tape, *operands)
    fits = len(made) == len(call.results) and all(
        x.size == prod(t.shape) and x.dtype == t.dtype
        for x, t in zip(made, call.results, strict=True)
    )
    if not fits:
        return None
    numbers = [tape.number(x) for x in made]
    return Prepared(
        tape,
        tuple(ArrayType(x.shape, x.dtype) for x in operands),
        tuple(x if n is None else n for x, n in zip(made, numbers, strict=True)),
        tuple(ArrayType(x.shape, x.dtype) for x in made),
    )
