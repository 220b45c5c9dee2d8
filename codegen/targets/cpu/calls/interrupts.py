"""Asking for signals from native code, in LLVM IR: see ``runtime.interrupts`` for Python's side.

A *record* (``structs.RECORD``) is one call that can be interrupted. It is on the C stack of the
calling thread from ``nw_enter`` to ``nw_leave``, and the thread's pthread key points to the
innermost one.

``i1 nw_poll()``
    asks whether the call that the thread works for has to end; 1 means: return at once, whatever
    is left undone. Costs about 10 ns: the record's flag, a counter of signals and a coarse clock.
``i32 nw_enter(ptr record)``, ``i32 nw_leave(ptr record)``
    begin and end a call, with the GIL held. ``nw_enter`` returns -1, with an exception set and
    nothing begun, if a signal was waiting whose handler raised. ``nw_leave`` returns 1, with the
    exception set, if the call was interrupted. The caller puts Python's thread state into the
    record.
``ptr nw_guarded(ptr self, ptr args, i64 count, ptr names)``
    a METH_FASTCALL function that calls its first argument with the others, in a record: for native
    code by way of ctypes. Nothing of Python comes between, so that no record outlives its call.
``ptr nw_record()``, ``void nw_lend(ptr record)``
    the innermost record of this thread; let this thread, a worker of the pool, work for another's.
``void nw_signals_init(i32 watched, ptr current, ptr adopt, ptr elsewhere)``
    once per process: the signals to watch as bits, CPython's function that gives the thread state
    that holds the GIL, and two Python functions.
``void nw_signals_main(i64 thread)``
    which thread, by pthread_self, is Python's main one; again in a child of fork.
``i1 nw_unwatched(i32)``, ``void nw_watch(i32)``, ``void nw_ignore(i32)``
    whether a signal has a handler that is neither ours nor ignored; put ours before it; leave it
    alone from now on.
``i32 nw_interrupts()``
    how many SIGINTs have been seen.

Our handler calls the one that it replaced and then counts. So a poll learns of a signal without the
GIL, which it takes only then: Python's handlers run, and what they raise ends the call. Whoever
installs a handler by ``signal.signal`` takes ours away. A poll therefore looks every ``PERIOD``
whether it is still in place; calls shorter than that never look.
"""

from __future__ import annotations

from .....ir.target import Target
from ....emit.llvm.template import render
from ....runtime.structs import RECORD

PERIOD = 20_000_000  # nanoseconds between two looks at the handlers


def module_text(target: Target) -> str:
    """Return the module's text; it is the same for every executable."""
    names = {"triple": target.triple, "period": PERIOD}
    return render(__package__, "interrupts.ll", [RECORD.names], names)
