"""NumPy's arithmetic in the mode of this processor in which denormals count as 0.

Code that is built with ``denormals="flush"`` runs in that mode; so does what is computed of it in
NumPy, at compile time and as its oracle.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import local
from typing import TYPE_CHECKING, NamedTuple

from ...dtypes import f64
from ...errors import UnsupportedError
from ..nodes import Instruction, Shape

if TYPE_CHECKING:
    import ctypes

    from ...target import Target
    from ..meaning.values import CallEvaluator, Handler, Value


class ModeWord(NamedTuple):
    """The word of ``fenv_t`` that a processor's mode is in, and the bits that flush."""

    offset: int
    bits: int


_WORDS = {
    ("Linux", "x86_64"): ModeWord(28, 0x8040),
    ("Linux", "aarch64"): ModeWord(0, 1 << 24),
    ("Darwin", "x86_64"): ModeWord(4, 0x8040),
    ("Darwin", "arm64"): ModeWord(8, 1 << 24),
}
_BYTES = 64  # more than any ``fenv_t``


class _State(local):
    """What this thread flushes: 0 nothing, 1 all but f64, 2 everything; and the mode before."""

    kinds = 0
    outside = 0


_state = _State()


def flushing(doubles: bool = True) -> AbstractContextManager[None]:
    """Let arithmetic of this thread take denormals for 0, NumPy's included.

    Without ``doubles`` the interpreter keeps those of f64, as GPUs do. Library calls run as they
    did before, and so do threads that libraries have started. ``UnsupportedError`` where this
    machine's mode cannot be changed.
    """
    return _mode(1 + doubles)


def flushing_as(target: Target | None) -> AbstractContextManager[None]:
    """Return ``flushing`` as the code for a target does it; for one that keeps, what changes
    nothing.
    """
    if target is None or not target.flushes:
        return nullcontext()
    return flushing(target.flushes_f64)


def kept(handler: Handler) -> Handler:
    """Return a handler of the interpreter that runs in the mode from before ``flushing``."""
    if not _state.kinds:
        return handler

    def keep(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
        with _mode(0):
            return handler(i, args, run)

    return keep


def keeps(i: Instruction) -> bool:
    """True if an instruction computes f64 alone, and this thread keeps those."""
    if _state.kinds != 1:
        return False
    arrays = [x.shape for x in (i, *i.operands) if isinstance(x.shape, Shape)]
    return {a.dtype for a in arrays if a.dtype.is_float} == {f64}


@contextmanager
def _mode(kinds: int) -> Iterator[None]:
    word, fenv, before = _word(), _fenv(), (_state.kinds, _state.outside)
    environment = bytearray(_BYTES)
    held = _pointer(environment)
    fenv.fegetenv(held)
    inside = bytearray(environment)
    place = slice(word.offset, word.offset + 4)
    mode = int.from_bytes(environment[place], "little")
    outside = before[1] if before[0] else mode
    inside[place] = (outside | (word.bits if kinds else 0)).to_bytes(4, "little")
    fenv.fesetenv(_pointer(inside))
    _state.kinds, _state.outside = kinds, outside
    try:
        yield
    finally:
        _state.kinds, _state.outside = before
        fenv.fesetenv(held)


def _pointer(memory: bytearray) -> ctypes.Array[ctypes.c_char]:
    import ctypes

    return (ctypes.c_char * len(memory)).from_buffer(memory)


@cache
def _fenv() -> ctypes.CDLL:
    """Return the library that has C's functions of the floating-point environment."""
    import ctypes

    return ctypes.CDLL(None)


def _word() -> ModeWord:
    here = os.uname() if hasattr(os, "uname") else None
    found = None if here is None else _WORDS.get((here.sysname, here.machine))
    if found is None:
        why = "no mode of this machine's floating-point unit is known"
        raise UnsupportedError("the compiler cannot flush denormals", why)
    return found
