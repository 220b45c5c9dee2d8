"""The thread pool and the per-thread scratch memory, written in LLVM IR.

In Python, one pool per process serves every executable and every thread; in a C library, every
instance of the model has its own (``c_library.instance``). Both have

``void nw_parallel(ptr body, ptr context, i64 count)``
    calls ``body(context, begin, end)`` on chunks that cover ``0 .. count`` once, and returns when
    all of them have run. Threads claim chunks with a compare-exchange on ``ticket``, which holds
    the launch's generation and the chunks left; so a worker that was held up since an earlier
    launch can never claim a chunk of this one by mistake. The caller claims from the front, the
    workers from the back: from one kernel to the next, a core finds its part in its own cache.
    Calls from inside a body, and calls while another thread uses the pool, run serially in the
    caller. Once the caller's call has been interrupted, chunks not yet begun are skipped.
``ptr nw_scratch(i64 bytes)``
    memory of the calling thread, 64-byte aligned, distinct from what the same thread has been
    given before; it is taken back when the enclosing body returns, or by
``i64 nw_scratch_mark()``, ``void nw_scratch_release(i64 mark)``
    which take back everything given since the mark.
``void nw_pool_init(i32 threads)``, ``void nw_pool_set_threads(i32)``, ``i32 nw_pool_threads()``
    of the process's pool; the first once, before anything else.

Workers start at the first parallel call, spin about 2,000 times for more work and then sleep on a
futex. A child of ``fork`` has no workers: the pid is compared at every launch, and the child starts
its own. Where there is no futex (anything but Linux on the processors below) calls run serially.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .....ir.target import Target
from ....emit.llvm.template import render
from ....runtime.structs import JOB, POOL, RECORD, SEAT, SEGMENT
from . import each

SPINS = 2000  # times that an idle worker looks for work before it sleeps, about 20 microseconds
_HEADER = 64  # bytes in front of a segment's memory, so that it is aligned

_FUTEX: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "x86_64": {
            "futex": "202",
            "pause": "call void @llvm.x86.sse2.pause()",
            "declare_pause": "declare void @llvm.x86.sse2.pause()",
        },
        "aarch64": {
            "futex": "98",
            "pause": "call void @llvm.aarch64.hint(i32 1)",
            "declare_pause": "declare void @llvm.aarch64.hint(i32)",
        },
        "riscv64": {"futex": "98", "pause": "fence acquire", "declare_pause": ""},
    }
)


def module_text(target: Target) -> str:
    """Return the LLVM module of the process's pool for a target."""
    own = render(__package__, "process.ll", [POOL.names]) + each.text()
    workers = workers_text(target)
    if workers is None:
        return base_text(target) + own + serial_text()
    return base_text(target) + own + render(__package__, "process_futex.ll") + workers


def base_text(target: Target) -> str:
    """Return what all pools begin with, the module's head included."""
    names = {"triple": target.triple, "header": _HEADER}
    return render(__package__, "pool.ll", [SEGMENT.names], names)


def workers_text(target: Target) -> str | None:
    """Return ``nw_parallel`` over workers; None where threads cannot sleep on a futex."""
    machine, _, system = target.triple.partition("-")
    waiting = _FUTEX.get(machine) if "linux" in system else None
    if waiting is None:
        return None
    tables = JOB.names, RECORD.names, POOL.names, SEAT.names
    return render(__package__, "futex.ll", tables, {**waiting, "spins": SPINS})


def serial_text() -> str:
    """Return ``nw_parallel`` without workers."""
    return render(__package__, "serial.ll")
