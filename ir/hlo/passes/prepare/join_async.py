"""Asynchronous operations: a start and its done are joined into one operation."""

from __future__ import annotations

from ...analysis.asynchronous import stage, start_of, whole
from ...nodes import HloModule, Instruction
from ...rewrite import map_computations, rebuild


def join_async(module: HloModule) -> HloModule:
    """``x-done(x-start(a))``  ->  ``x(a)``, ``copy-done(copy-start(a))``  ->  ``copy(a)``"""
    return map_computations(module, lambda c: rebuild(c, _join))


def _join(i: Instruction) -> Instruction | None:
    if stage(i.opcode)[1] != "done":
        return None
    start = start_of(i)
    return None if start is None else whole(i, start)
