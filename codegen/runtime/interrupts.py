"""Signals during native calls: which are watched, and how they end calls on each thread.

Python's own signal handler only records that a signal came; the function given to ``signal.signal``
runs when the main thread is back in Python. Native code therefore polls (``targets.cpu.calls``). On
the main thread a poll lets Python run its handlers, and an exception of theirs ends the call:
Ctrl-C as well as an alarm whose handler raises. Handlers that return let the call go on.

On other threads Python runs no handlers. A SIGINT ends their calls with ``KeyboardInterrupt`` where
it would on the main thread too, so that a process whose main thread waits for them can end. Signals
that are ignored, left to the system, or handled outside of Python are never touched.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ...ir.errors import TargetError

_NEVER = (
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGILL",
    "SIGKILL",
    "SIGPROF",
    "SIGSEGV",
    "SIGSTOP",
    "SIGSYS",
    "SIGTRAP",
)
"""Signals that report a fault of the code that runs, that cannot be handled, or profilers'."""

WATCHED = tuple(
    sorted(
        {int(s) for s in signal.valid_signals() if s < 32}
        - {int(getattr(signal, name)) for name in _NEVER if hasattr(signal, name)}
    )
)


class Signals:
    """The signals of this process as native calls see them; created once, with the runtime."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        def native(name: str, result: Any, *kinds: Any) -> Callable[..., Any]:
            # PYFUNCTYPE keeps the GIL, and raises what the function sets.
            function: Callable[..., Any] = ctypes.PYFUNCTYPE(result, *kinds)(addresses[name])
            return function

        self._unwatched = native("nw_unwatched", ctypes.c_bool, ctypes.c_int32)
        self._watch = native("nw_watch", None, ctypes.c_int32)
        self._ignore = native("nw_ignore", None, ctypes.c_int32)
        self._count = native("nw_interrupts", ctypes.c_int32)
        functions = self.adopt, end_elsewhere
        for function in functions:  # for ever, as the native code that calls them
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
        start = native("nw_signals_init", None, ctypes.c_int32, *[ctypes.c_void_p] * 3)
        start(sum(1 << number for number in WATCHED), _current(), *map(id, functions))
        main = native("nw_signals_main", None, ctypes.c_uint64)
        _name_main(main)
        os.register_at_fork(after_in_child=functools.partial(_name_main, main))
        self.adopt()

    def adopt(self) -> None:
        """Watch every signal that Python handles; leave those of other handlers alone."""
        for number in WATCHED:
            if self._unwatched(number):
                handled = callable(signal.getsignal(number))
                (self._watch if handled else self._ignore)(number)

    def count(self) -> int:
        """Return the number of SIGINTs since the runtime was loaded."""
        return int(self._count())


def _name_main(tell: Callable[[int], object]) -> None:
    tell(threading.main_thread().ident or 0)


def _current() -> int:
    """Return the address of CPython's function for the thread state that holds the GIL."""
    for name in ("PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet"):  # since 3.13, 3.5
        with suppress(AttributeError):
            function = getattr(ctypes.pythonapi, name)
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise TargetError("cannot tell which thread holds the GIL", "it is not CPython")


def end_elsewhere() -> None:
    """Raise ``KeyboardInterrupt`` if SIGINT means that and this is not the main thread."""
    elsewhere = threading.get_ident() != threading.main_thread().ident
    if elsewhere and means_interrupt(signal.getsignal(signal.SIGINT)):
        raise KeyboardInterrupt


def means_interrupt(handler: Any) -> bool:
    """True if a handler of SIGINT means ``KeyboardInterrupt``: Python's own, or asyncio's.

    ``asyncio.run`` installs one that first cancels the main task. It then waits for the threads of
    its executor, so their calls must end.
    """
    if isinstance(handler, functools.partial):
        handler = handler.func
    return handler is signal.default_int_handler or (
        getattr(handler, "__module__", None) == "asyncio.runners"
    )
