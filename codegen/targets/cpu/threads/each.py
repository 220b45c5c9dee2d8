"""Calls of one routine for each matrix of a batch, in LLVM IR: see ``ir.library.each``.

``void nw_each(ptr routine, i64 count, i64 chunks, ptr table)``
    calls ``routine(p[0], p[1], ...)`` for numbers ``0 .. count``, in chunks that the pool's threads
    share. ``table`` has three rows of ``ARGUMENTS``: the pointers, what is added to them for each
    number, and what is added for each chunk. A routine of fewer arguments ignores the others, by
    the calling conventions of C on all processors that are targets.
"""

from __future__ import annotations

from .....ir.library.each import ARGUMENTS
from ....emit.llvm.template import render


def text() -> str:
    """Return the function's text, for the module that has ``nw_parallel``."""
    lines = [line for k in range(ARGUMENTS) for line in _pointer(k)]
    pointers = ", ".join(f"ptr %p{k}" for k in range(ARGUMENTS))
    names = {"load": "\n  ".join(lines), "pointers": pointers, "row": 8 * ARGUMENTS}
    return render(__package__, "each.ll", names=names)


def _pointer(k: int) -> list[str]:
    """Return the lines that compute an argument: pointer + step * number + own * chunk."""
    return [
        f"%at{k} = getelementptr ptr, ptr %table, i64 {k}",
        f"%base{k} = load ptr, ptr %at{k}",
        f"%step_at{k} = getelementptr i64, ptr %steps, i64 {k}",
        f"%step{k} = load i64, ptr %step_at{k}",
        f"%own_at{k} = getelementptr i64, ptr %owns, i64 {k}",
        f"%own{k} = load i64, ptr %own_at{k}",
        f"%far{k} = mul i64 %step{k}, %number",
        f"%apart{k} = mul i64 %own{k}, %chunk",
        f"%offset{k} = add i64 %far{k}, %apart{k}",
        f"%p{k} = getelementptr i8, ptr %base{k}, i64 %offset{k}",
    ]
