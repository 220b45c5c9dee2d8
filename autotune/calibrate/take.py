"""Taking a calibration: the loops of ``measure/host/peak.py`` under the machine's lock.

``calibrated`` is what tuning asks: the target with what is known of this machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from typing import Protocol

from ...ir.target import Target
from ...ir.targets.processor import memory
from ..measure.host.lock import MachineLock
from ..measure.host.peak import Clocks, Looping, PeakLoops, Reading, repeat, repeat_forks
from .readings import (
    Calibration,
    Name,
    calibration,
    called,
    contradiction,
    names,
    unsteady,
)
from .store import folder, load, save

REPEATS = 5
TRIES = 3  # readings of a quantity until one is steady
WORTH = 30.0  # seconds of tuning that a calibration is worth
BUSY = 1.5  # runnable programs per core with which it cannot succeed
UNKNOWN = 4 << 30  # bytes of memory where the system does not tell


class Loops(Protocol):
    """The loops of a machine, real or simulated."""

    def fma(self, threads: int) -> Looping:
        """Return a loop of multiply-adds."""

    def read(self, size: int, threads: int) -> Looping:
        """Return a loop that reads ``size`` bytes of each thread."""

    def copy(self, size: int, threads: int) -> Looping:
        """Return a loop that copies within ``size`` bytes of each thread."""

    def cycles(self) -> Looping:
        """Return a chain of steps of one cycle."""

    def forks(self) -> Looping:
        """Return parallel loops without work."""


def take(
    target: Target,
    loops: Loops | None = None,
    clocks: Clocks | None = None,
    told: Callable[[str], object] = lambda text: None,
) -> tuple[Calibration, str]:
    """Measure this machine; return its rates, and why they are worthless ("" if they are not).

    Nothing else of ours is timed or built meanwhile. ``told`` is called with each level's name.
    """
    loops = loops or PeakLoops(target)
    sizes = target.core.working_sets(target.threads, memory(UNKNOWN))
    readings: dict[Name, Reading] = {}
    with closing(MachineLock()) as lock, lock.timing():
        for name in names(tuple(sizes), target.threads):
            told(called(name))
            for _ in range(TRIES):
                readings[name] = _read(loops, name, sizes, target.threads, clocks or Clocks())
                why = unsteady(name, readings[name])
                if not why:
                    break
            if why:
                return calibration(readings), why
    found = calibration(readings)
    return found, contradiction(found, target)


def calibrated(target: Target, seconds: float | None = None) -> tuple[Target, str]:
    """Return the target with what is known of this machine, measured now if nothing is.

    Also a note for the user if that did not succeed: then the target is as it was. Nothing is
    measured with less than ``WORTH`` ``seconds`` to tune, nor where other programs run already.
    """
    if folder() is None or target.row.work != "threads" or not target.is_host:
        return target, ""
    found = load(target)
    if found is None:
        if seconds is not None and seconds < WORTH:
            return target, ""
        found, why = _now(target)
        if why:
            row = f"the figures of its family ({target.core.family}) are used"
            return target, f"this machine is not calibrated ({why}): {row}"
        with suppress(OSError):
            save(found, target)
    return replace(target, core=found.core(target)), ""


@cache
def _now(target: Target) -> tuple[Calibration, str]:
    """Return a calibration, and why it is worthless; a refusal holds for this process."""
    load_now = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load_now > BUSY * target.cores:
        return Calibration({}), f"a load of {load_now:.1f} on {target.cores} cores"
    return take(target)


def _read(
    loops: Loops, name: Name, sizes: Mapping[str, int], threads: int, clocks: Clocks
) -> Reading:
    what, level, count = name
    match what:
        case "fork":
            return repeat_forks(loops.forks(), threads, REPEATS, clocks)
        case "clock":
            return repeat(loops.cycles(), REPEATS, clocks)
        case "fma":
            return repeat(loops.fma(count), REPEATS, clocks)
        case "read":
            return repeat(loops.read(sizes[level], count), REPEATS, clocks)
        case _:
            return repeat(loops.copy(sizes[level], count), REPEATS, clocks)
