"""Run simulated code in this process: its runtime, one run at a time, and the report of each run.

A library of simulated kernels is linked with a runtime of its own, and so has its own state.
``NESTWRIGHT_SIM_SEED`` picks the orders in which blocks and threads run.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from ....ir.errors import ArgumentError, UnsupportedError
from .. import jit
from .report import error
from .structs import REPORT

SEED = "NESTWRIGHT_SIM_SEED"

_running = RLock()


def seed() -> int:
    """Return the environment's seed, 0 if unset. ``ArgumentError`` if it is not below 10^18."""
    text = os.environ.get(SEED, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ArgumentError(f"{SEED}={text!r}", "it must be an integer from 0 to 10^18 - 1")
    return int(text)


@contextmanager
def watching(library: jit.JitLibrary) -> Iterator[None]:
    """Run simulated code of a library inside; ``SimulationError`` if it did something undefined.

    ``UnsupportedError`` if a launch of the library is in progress in this thread: a signal handler
    may be called in the middle of one.
    """
    with _running:
        if ctypes.CFUNCTYPE(ctypes.c_bool)(library.address("nw_sim_running"))():
            raise UnsupportedError(
                "a simulated launch inside a launch of the same code",
                "it has only one state",
                hint="let the signal handler note the signal, and run after the call",
            )
        start = seed()
        clear = ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address("nw_sim_clear"))
        report = ctypes.CFUNCTYPE(ctypes.c_void_p)(library.address("nw_sim_report"))
        clear(start)
        yield
        found = REPORT.read(report() or 0)
        if found["kind"]:
            raise error(found, start)
