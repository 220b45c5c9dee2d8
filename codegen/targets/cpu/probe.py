"""The probe of a profile, in LLVM IR: when thunks run, and on which threads.

It is linked with a program whose thunks tell it when they begin and end (``program``):

``i64 nw_probe_begin(i64 thunk)``, ``void nw_probe_end(i64 thunk, i64 began)``
    read the monotonic clock; the second adds to the thunk's total and notes an event.
``void nw_parallel(ptr body, ptr context, i64 count)``
    stands in for the pool's, which is ``nw_pool_parallel`` here: each part that a thread runs is
    timed on that thread. Loops inside of parts are not timed again.
``i64 nw_probe_cost(i64 count)``
    the nanoseconds that timing takes, for so many thunks.

``nw_probe`` is the structure ``runtime.profile.structs.PROBE``.
"""

from __future__ import annotations

from functools import cache

from ....ir.target import Target
from ...emit.llvm.template import render
from ...runtime.profile.structs import EVENT, PROBE, TOTAL
from . import toolchain as cpu

_MONOTONIC = {"linux": 1, "darwin": 6}
"""The number of ``CLOCK_MONOTONIC`` by operating system."""


def module_text(target: Target) -> str:
    """Return the probe's LLVM module for a target."""
    clock = next((n for name, n in _MONOTONIC.items() if name in target.triple), 1)
    tables = PROBE.names, TOTAL.names, EVENT.names
    return render(__package__, "probe.ll", tables, {"triple": target.triple, "clock": clock})


@cache
def probe(host: Target) -> bytes:
    """Return the probe's object code."""
    return cpu.compile_once(module_text(host), host)
