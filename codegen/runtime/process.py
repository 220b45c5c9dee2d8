"""The runtime that all executables of a process share: thread pool, scratch memory, entry,
interrupts.

It is loaded once and never freed: the pool's threads run in it until the process ends. A saved
executable contains its object code, so that loading one compiles nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from ...ir.target import HERE, Target
from ...ir.targets.processor import default_threads
from ..plan.symbols import RUNTIME
from ..targets.registry import backend
from . import jit
from .entry import builtin
from .interrupts import Signals

SHARED = 3  # objects that all executables share; what a bundle has beyond them is its own


class Runtime:
    """The loaded runtime: addresses by symbol.

    ``guarded(function, *args)`` calls native code by way of ctypes. It ends at a signal whose
    handler raises, with what that raises.
    """

    def __init__(
        self, addresses: Mapping[str, int], signals: Signals, guarded: Callable[..., Any]
    ) -> None:
        self.addresses = addresses
        self.signals = signals
        self.guarded = guarded

    def set_threads(self, threads: int) -> None:
        """Set the number of threads that ``nw_parallel`` uses from now on."""
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(self.addresses["nw_pool_set_threads"])(threads)


_lock = Lock()
_loaded: list[Runtime] = []


def runtime(compiled: Sequence[bytes] | None = None) -> Runtime:
    """Return the runtime of this process. The first call loads it, from ``compiled`` if given."""
    with _lock:
        if not _loaded:
            library = jit.load(compiled or _compiled())
            # For ever: worker threads run in this code until the process ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
            addresses = {name: library.address(name) for name in RUNTIME}
            init = ctypes.CFUNCTYPE(None, ctypes.c_int32)(addresses["nw_pool_init"])
            init(default_threads())
            guarded = builtin("guarded", addresses["nw_guarded"], None)
            _loaded.append(Runtime(addresses, Signals(addresses), guarded))
        return _loaded[0]


def _compiled() -> Sequence[bytes]:
    host = Target.parse(HERE)
    return backend(host).runtime(host)
