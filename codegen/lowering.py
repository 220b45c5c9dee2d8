"""One group from HLO to object code: the stages from ``te`` to ``asm``, in order."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..ir.errors import NestwrightError
from ..ir.hlo.nodes import Computation
from ..ir.loop.nodes import Func
from ..ir.target import Target
from ..schedule.schedule import Schedule
from ..schedule.sketches.generate import default_schedule
from ..schedule.trace import Trace
from ..te.from_hlo import lower_group
from . import cpu
from .llvm_ir import emit
from .lower.pipeline import lower
from .timings import timed

log = logging.getLogger("nestwright")


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A compiled group: object code, and the bytes of workspace that its caller hands it."""

    object: bytes
    workspace: int = 0


def compile_group(
    computation: Computation,
    symbol: str,
    target: Target,
    trace: Trace | None,
    timings: dict[str, float],
) -> KernelCode:
    """Compile a group; its kernel is called ``symbol``. ``UnsupportedError`` if it cannot be."""
    with timed(timings, "te"):
        func = lower_group(computation, symbol)
    with timed(timings, "schedule"):
        scheduled = apply(func, target, trace)
    with timed(timings, "lower"):
        flat = lower(scheduled.func, target)
    with timed(timings, "emit"):
        text = emit(flat, target)
    with timed(timings, "llvm"):
        code = cpu.compile(text, target)
    return KernelCode(code, int(flat.notes.get("workspace_bytes", 0)))


def apply(func: Func, target: Target, trace: Trace | None) -> Schedule:
    """The function under a trace, or under the default schedule if there is none that fits."""
    if trace is not None:
        try:
            return trace.replay(func)
        except NestwrightError as error:
            log.warning("%s: its schedule no longer applies: %s", func.name, error)
    return default_schedule(func, target)
