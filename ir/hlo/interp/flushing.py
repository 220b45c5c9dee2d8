"""The interpreter in the mode of this processor in which denormals count as 0, where that is asked.

Code that is built with ``denormals="flush"`` runs in that mode; so does what the interpreter
computes of it, at compile time and as its oracle. Only the interpreter does: what compares or moves
constants elsewhere has to tell denormals apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
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


_asked: ContextVar[int] = ContextVar("denormals", default=0)
"""What the interpreter flushes: 0 nothing, 1 all but f64, 2 everything."""


class _Outside(local):
    """The mode of this thread before the interpreter set its own; None where it did not."""

    mode: int | None = None


_outside = _Outside()


@contextmanager
def flushing(doubles: bool = True) -> Iterator[None]:
    """Let the interpreter take denormals for 0 in this context.

    Without ``doubles`` it keeps those of f64, as GPUs do. Library calls run in the mode of the
    caller, and so do threads that libraries have started. ``UnsupportedError`` where this machine's
    mode cannot be changed.
    """
    _word()
    token = _asked.set(1 + doubles)
    try:
        yield
    finally:
        _asked.reset(token)


def flushing_as(target: Target | None) -> AbstractContextManager[None]:
    """Return ``flushing`` as the code for a target does it; for one that keeps, what changes
    nothing.
    """
    if target is None or not target.flushes:
        return nullcontext()
    return flushing(target.flushes_f64)


def as_asked() -> AbstractContextManager[None]:
    """Return the mode in which the interpreter computes, as a context."""
    return _mode(True) if _asked.get() else nullcontext()


def kept(handler: Handler) -> Handler:
    """Return a handler of the interpreter that runs in the mode of the interpreter's caller."""
    if not _asked.get():
        return handler

    def keep(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
        with _mode(False):
            return handler(i, args, run)

    return keep


def keeps(i: Instruction) -> bool:
    """True if an instruction computes f64 alone, and those are kept."""
    if _asked.get() != 1:
        return False
    arrays = [x.shape for x in (i, *i.operands) if isinstance(x.shape, Shape)]
    return {a.dtype for a in arrays if a.dtype.is_float} == {f64}


@contextmanager
def _mode(flush: bool) -> Iterator[None]:
    """Flush denormals in this thread, or go back to the mode before that."""
    word, fenv, before = _word(), _fenv(), _outside.mode
    environment = bytearray(_BYTES)
    held = _pointer(environment)
    fenv.fegetenv(held)
    place = slice(word.offset, word.offset + 4)
    now = int.from_bytes(environment[place], "little")
    outside = now if before is None else before
    inside = bytearray(environment)
    inside[place] = (outside | word.bits if flush else outside).to_bytes(4, "little")
    fenv.fesetenv(_pointer(inside))
    _outside.mode = outside if flush else None
    try:
        yield
    finally:
        _outside.mode = before
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
