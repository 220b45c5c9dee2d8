"""The least time of a task on this machine: no reading below it enters the log."""

from __future__ import annotations

import math

from ...ir.target import Target
from ..measure.memory.cache_state import cold_bytes
from ..tasks.counting import certain_reads
from ..tasks.extract import Task

HOT = 2.0
"""Multiple of the measured bandwidth above which operands must have come from a nearer cache."""


def least_seconds(task: Task, rate: float, stream: float, target: Target) -> float:
    """Return the seconds that any schedule of a task takes at least; 0 if nothing is certain.

    ``rate`` is the machine's peak of f32 operations per second, ``stream`` its bytes per second
    from beyond the L2 caches; 0: unknown. Operands that a trial left in a cache arrive far faster
    than ``stream``; those in a neighbor's larger cache a little faster, which ``HOT`` allows.
    """
    arithmetic = task.certain / rate if rate else 0.0
    c = task.program.computation
    if c is None or not stream:
        return arithmetic
    sizes = [math.prod(b.shape) * b.dtype.bytes for b in task.program.func.params]
    cold = cold_bytes(sizes, task.reuse, certain_reads(c), target)
    return max(arithmetic, cold / (HOT * stream))
