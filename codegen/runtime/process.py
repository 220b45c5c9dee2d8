"""What every executable of a process shares: the thread pool, the scratch memory, the entry.

They are loaded once and never freed: the pool's threads run in them until the process ends. A
saved executable brings their object code along, so that loading one compiles nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock

from ...ir.target import Target
from .. import cpu
from . import entry_ir, pool

SYMBOLS = (*pool.SYMBOLS, *entry_ir.SYMBOLS)
SHARED = 2  # objects that all executables share; what a bundle has beyond them is its own


@dataclass(frozen=True, slots=True)
class Runtime:
    """The loaded runtime: addresses by symbol."""

    addresses: Mapping[str, int]

    def set_threads(self, threads: int) -> None:
        """How many threads ``nw_parallel`` uses from now on."""
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(self.addresses["nw_pool_set_threads"])(threads)


_lock = Lock()
_loaded: list[Runtime] = []


@cache
def objects(target: Target) -> tuple[bytes, ...]:
    """The runtime's object code for a target."""
    modules = (pool.module_text(target), entry_ir.module_text(target))
    return tuple(cpu.compile(text, target) for text in modules)


def runtime(compiled: Sequence[bytes] | None = None) -> Runtime:
    """The runtime of this process, loaded at the first call (from ``compiled`` if given)."""
    with _lock:
        if not _loaded:
            host = Target.parse("cpu")
            library = cpu.load(compiled or objects(host))
            # For ever: worker threads run in this code until the process ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
            addresses = {name: library.address(name) for name in SYMBOLS}
            init = ctypes.CFUNCTYPE(None, ctypes.c_int32)(addresses["nw_pool_init"])
            init(host.threads)
            _loaded.append(Runtime(addresses))
        return _loaded[0]
