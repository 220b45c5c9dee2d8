"""Kernels in which denormals count as 0: the thread's mode is set around their own code only.

A function becomes two. That of its name sets the mode, calls ``NAME.flushing``, and puts back the
mode of its caller, which the other one knows as ``CALLER``. The other is never inlined: LLVM may
move arithmetic past what sets a mode, but not out of a function. What runs inside but is none of
the kernel's, the thread pool and polls for signals, runs in the caller's mode; chunks of a parallel
loop are such functions themselves, and so no thread of the pool keeps a mode.
"""

from __future__ import annotations

from collections.abc import Container

from ....ir.target import Target
from ...plan.symbols import PARALLEL, POLL
from ..llvm.core import CALLER, Function
from ..llvm.template import render

_IN_CALLERS_MODE = {POLL: "caller_poll.ll", PARALLEL: "caller_parallel.ll"}


def definitions(function: Function, attributes: str, linkage: str = "") -> list[str]:
    """Return the definition of a function, or of two where its target flushes denormals."""
    if not function.target.flushes:
        return [function.text(attributes, linkage)]
    name, params = function.name, function.params
    types = [(p.split()[0], p.split()[-1]) for p in params.split(", ") if p]
    given = ", ".join(f"{type_} {value}" for type_, value in [*types, ("i64", CALLER)])
    function.name, function.params = f"{name}.flushing", f"{params}, i64 {CALLER}"
    inner = function.text(f"{attributes} noinline", "internal ")
    function.name, function.params = name, params
    lines = [
        f"define {linkage}void @{name}({params}) {attributes} {{",
        f"  {CALLER} = call i64 @nw_flush()",
        f"  call void @{name}.flushing({given})",
        f"  call void @nw_set_mode(i64 {CALLER})",
        "  ret void",
        "}",
        "",
    ]
    return [inner, "\n".join(lines)]


def parallel_call(target: Target, arguments: str) -> str:
    """Return the call of the thread pool, in the mode of the caller."""
    own = f"call void @{PARALLEL}({arguments})"
    flushing = f"call void @nw_caller_parallel({arguments}, i64 {CALLER})"
    return flushing if target.flushes else own


def mode_texts(target: Target, declared: Container[str]) -> list[str]:
    """Return the functions that set modes, for a module that declares these; none if it keeps
    denormals.
    """
    if not target.flushes:
        return []
    files = [f"mode_{target.machine}.ll"]
    files += [file for symbol, file in _IN_CALLERS_MODE.items() if symbol in declared]
    return [render(__package__, file) for file in files]
