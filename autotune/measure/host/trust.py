"""How far figures that are measured on this machine now can be trusted: conditions, and a sentence.

Each condition is read from the system or measured for a fraction of a second. ``doctor`` prints
them, and benches warn by them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ....ir.targets.processor import cores
from ...log.records import quantile
from .placement import placed, priority

WATCHED = 0.2  # seconds during which other programs' use of the cores is counted
FREE = 0.9  # of a core: one that counts as free
REPEATS = 200  # of a piece of work
PIECE = 20_000  # iterations of a loop in it: about half a millisecond
FREE_CORES, REAL_TIME = "free cores", "real-time priority"
EVEN, UNEVEN = 0.05, 0.25  # spreads from which figures are fairly, and hardly, certain


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that measuring depends on: is it well, what was found, and the figure, if any."""

    name: str
    ok: bool
    told: str
    figure: float | None = None


@dataclass(frozen=True, slots=True)
class Trust:
    """The conditions for timing code of ``threads`` threads.

    ``spread`` is that of a fixed piece of work done again and again: its 90th percentile over its
    median, less one. Ratios of timed programs that are nearer to one than it say nothing.
    """

    threads: int
    conditions: tuple[Condition, ...]
    spread: float

    @property
    def problems(self) -> tuple[Condition, ...]:
        """The conditions that are not well."""
        return tuple(c for c in self.conditions if not c.ok)

    @property
    def level(self) -> str:
        """``good``, ``fair`` or ``poor``; poor where other programs take the same cores' time."""
        bad = {c.name for c in self.problems}
        if self.spread >= UNEVEN or {FREE_CORES, REAL_TIME} <= bad:
            return "poor"
        return "fair" if self.problems or self.spread >= EVEN else "good"

    @property
    def told(self) -> str:
        """One sentence: how far figures can be trusted, and why not further."""
        least = f"differences under {max(self.spread, 0.01):.0%} mean nothing"
        why = "; ".join(c.told for c in self.problems)
        match self.level:
            case "good":
                return f"figures can be trusted here now: {least}"
            case "fair":
                reason = why or "the same work takes unequal times"
                return f"figures can be compared here now, with care: {least} ({reason})"
            case _:
                reason = why or "the same work takes very unequal times"
                return f"figures cannot be trusted here now: {least} ({reason})"

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the sentence included."""
        return {**asdict(self), "level": self.level, "told": self.told}


@dataclass(frozen=True, slots=True)
class System:
    """Where the system tells about itself; a test has files of its own."""

    proc: Path = Path("/proc")
    cpus: Path = Path("/sys/devices/system/cpu")
    groups: Path = Path("/sys/fs/cgroup")

    def text(self, path: Path) -> str:
        """Return a file's text, "" where the system does not have it."""
        with suppress(OSError, UnicodeDecodeError):
            return path.read_text().strip()
        return ""


def trust(
    threads: int = 1,
    system: System | None = None,
    watched: float = WATCHED,
    sleep: Callable[[float], object] = time.sleep,
) -> Trust:
    """Return how far times of code with so many threads can be trusted; takes half a second."""
    place = system or System()
    before = _ticks(place)
    sleep(watched)
    conditions = (
        *_use(before, _ticks(place), threads),
        _load(place),
        _quota(place, threads),
        _governor(place),
        _siblings(place, threads),
        _real_time(priority()),
    )
    return Trust(threads, conditions, spread())


def spread(repeats: int = REPEATS, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the 90th percentile of the times of one piece of work over their median, less one."""
    times = []
    with placed(1):
        for _ in range(repeats):
            began = clock()
            for _ in range(PIECE):
                pass
            times.append(clock() - began)
    found = tuple(times)
    middle = quantile(found, 0.5)
    return quantile(found, 0.9) / middle - 1 if middle else 0.0


def _own_cores() -> Iterable[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(cores())


def _ticks(system: System) -> Mapping[int, Sequence[int]]:
    """Return the ticks of each core by use, as ``/proc/stat`` counts them."""
    found: dict[int, Sequence[int]] = {}
    for line in system.text(system.proc / "stat").splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name[3:].isdigit():
            with suppress(ValueError):
                found[int(name[3:])] = [int(c) for c in counts]
    return found


def _use(
    before: Mapping[int, Sequence[int]], after: Mapping[int, Sequence[int]], threads: int
) -> list[Condition]:
    """Return how many of this process's cores are free, and if a hypervisor takes time away."""
    idle, stolen, number = 0.0, 0.0, 0
    for core in _own_cores():
        spent = [b - a for a, b in zip(before.get(core, ()), after.get(core, ()), strict=False)]
        if len(spent) < 5 or (total := sum(spent[:8])) <= 0:
            continue
        idle += (spent[3] + spent[4]) / total
        stolen += spent[7] / total if len(spent) > 7 else 0.0
        number += 1
    if not number:
        return [Condition(FREE_CORES, True, "not told by the system")]
    told = f"{idle:.1f} of {number} cores are free"
    free = Condition(FREE_CORES, idle >= FREE * min(threads, number), told, idle)
    if number < threads:
        told = f"{number} cores for {threads} threads"
        free = Condition(FREE_CORES, False, told, idle)
    share = stolen / number
    told = f"the hypervisor took {share:.0%} of their time"
    return [free, Condition("stolen time", share < 0.01, told, share)]


def _load(system: System) -> Condition:
    words = system.text(system.proc / "loadavg").split()
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        return Condition("load", True, "not told by the system")
    told = f"load {load:.1f} on {cores()} cores in the last minute"
    return Condition("load", load <= cores() / 2, told, load)


def _quota(system: System, threads: int) -> Condition:
    """Return the cores' worth of time that the control group allows, of either version."""
    words = system.text(system.groups / "cpu.max").split()
    old = [
        system.text(system.groups / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")
    ]
    quota, period = words if len(words) == 2 else old
    with suppress(ValueError, ZeroDivisionError):
        if (share := int(quota) / int(period)) > 0:
            told = f"the control group allows {share:g} cores' time"
            return Condition("CPU quota", share >= threads, told, share)
    return Condition("CPU quota", True, "none")


def _governor(system: System) -> Condition:
    paths = [system.cpus / f"cpu{n}" / "cpufreq" / "scaling_governor" for n in _own_cores()]
    found = sorted({text for p in paths if (text := system.text(p))})
    if not found:
        return Condition("governor", True, "not told by the system (a virtual machine?)")
    well = found == ["performance"]
    told = f"frequency governor: {', '.join(found)}"
    return Condition("governor", well, told if well else f"{told}, so clocks change")


def _siblings(system: System, threads: int) -> Condition:
    """Return if threads would share a core: hardware threads are fewer cores than they seem."""
    lists = [
        system.text(system.cpus / f"cpu{n}" / "topology" / "thread_siblings_list")
        for n in _own_cores()
    ]
    known = {text for text in lists if text}
    if not known:
        return Condition("SMT", True, "not told by the system")
    if len(known) == len(lists):
        return Condition("SMT", True, "each core has one thread here", float(len(known)))
    told = f"{len(lists)} hardware threads are on {len(known)} cores"
    return Condition("SMT", threads <= len(known), told, float(len(known)))


def _real_time(told: str) -> Condition:
    return Condition(REAL_TIME, told.startswith("taken"), f"real-time priority {told}")
