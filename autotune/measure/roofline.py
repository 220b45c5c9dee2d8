"""Profiles beside the machine's peaks: which share of what it allows each step reaches.

The roofline model: Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance
Model for Multicore Architectures" (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...codegen.runtime.executable import Executable
from ...codegen.runtime.profile.data import Profile
from .host.placement import placed
from .machine import measure_peak


def profiled(exe: Executable, args: Sequence[Any]) -> Profile:
    """Return the profile of a model with its machine's peaks, measured once per process.

    Threads are placed as for other timings. A simulator has no peaks. Errors as for
    ``Executable.profile``.
    """
    target = exe.bundle.target
    if target.row.simulated:
        return exe.profile(*args)
    with placed(target.threads):
        found = exe.profile(*args)
    peak = measure_peak(target)
    return found.against(peak.flops, peak.bandwidth)
