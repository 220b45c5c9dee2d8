"""Time the thunks of a native program: calls as they are, and in turns calls of a probed twin.

The twin has the same kernels; its program reads the clock around every thunk, and parallel loops
around the part of each thread (``targets.cpu.probe``). So loops and branches run as they always do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter

import numpy as np

from ....ir.arrays import Array
from ...plan.loaded import Event, ThunkTime, Times
from ...plan.nodes import Plan, Thunk, children, walk
from .figures import APART
from .structs import EVENT, PROBE, TOTAL

SECONDS = 1.0  # of rounds, if their number is not given
PATIENCE = 8.0  # seconds after which they end even if both kinds of calls take different times
LEAST, MOST = 5, 200  # rounds then
KEPT = 1 << 14  # events of a call
TIMED, TRIES = 1000, 5  # thunks in a try that tells what timing takes
NS = 1e-9


@dataclass(frozen=True, slots=True)
class _Round:
    """A call as it is and a probed one, in seconds, and what the probe wrote, in nanoseconds."""

    whole: float
    probed: float
    totals: Array
    events: Array
    count: int


@dataclass(eq=False)
class Probe:
    """The probe's structure in a loaded library, and the memory that it writes to.

    ``cost`` returns the nanoseconds that timing so many thunks takes.
    """

    address: int
    cost: Callable[[int], int]
    thunks: int
    totals: Array = field(init=False)
    events: Array = field(init=False)

    def __post_init__(self) -> None:
        self.totals = TOTAL.table([dict.fromkeys(TOTAL.fields, 0)] * max(1, self.thunks))
        self.events = EVENT.table([dict.fromkeys(EVENT.fields, 0)] * KEPT)

    def clear(self) -> None:
        """Forget everything; the next call begins to count."""
        for name in TOTAL.fields:
            self.totals[name] = 0
        places = self.totals.ctypes.data, self.events.ctypes.data
        values = dict.fromkeys(PROBE.fields, 0)
        values |= {"totals": places[0], "events": places[1], "capacity": KEPT}
        made = PROBE.table([values])
        ctypes.memmove(self.address, made.ctypes.data, PROBE.bytes)

    def each(self) -> float:
        """Return the seconds that timing one thunk takes, the least of some tries."""
        self.clear()
        return min(self.cost(TIMED) for _ in range(TRIES)) * NS / TIMED

    def taken(self) -> tuple[Array, Array, int]:
        """Return copies of the totals and of the events, and how many events there were."""
        count = int(PROBE.read(self.address)["count"])
        return self.totals.copy(), self.events[: min(count, KEPT)].copy(), count


def measure(
    plan: Plan,
    plain: Callable[[], object],
    probed: Callable[[], object],
    probe: Probe,
    rounds: int | None,
) -> Times:
    """Return the times of calls; ``plain`` makes one as it is, ``probed`` one of the twin.

    What a call raises is raised.
    """
    plain()
    probe.clear()
    probed()
    taken = _rounds(plain, probed, probe, rounds)
    calm = sorted(taken, key=lambda r: r.probed)[: -(-len(taken) // 2)]
    seconds = _mean([r.totals["seconds"] for r in calm])
    busy = _mean([r.totals["busy"] for r in calm])
    own, first = _own(plan.thunks, seconds), calm[0]
    thunks = {}
    for n in range(probe.thunks):
        calls, parts = (int(first.totals[name][n]) for name in ("calls", "parts"))
        thunks[n] = ThunkTime(float(own[n]), calls, float(busy[n]) if parts else None, parts)
    probed_time = quicker([r.probed for r in taken])
    return Times(
        len(taken),
        quicker([r.whole for r in taken]),
        probed_time,
        thunks,
        max(0.0, probed_time - float(own.sum())),
        tuple(_events(first.events)),
        first.count - len(first.events),
        probe.each() * first.count,
    )


def quicker(seconds: Sequence[float]) -> float:
    """Return the mean of the quicker half: other programs disturb these least.

    Unlike medians, means of the same calls add up.
    """
    return fmean(sorted(seconds)[: -(-len(seconds) // 2)])


def _mean(nanoseconds: Sequence[Array]) -> Array:
    found: Array = np.mean(np.stack(nanoseconds), axis=0) * NS
    return found


def _rounds(
    plain: Callable[[], object],
    probed: Callable[[], object],
    probe: Probe,
    rounds: int | None,
) -> list[_Round]:
    """Make calls of both kinds in turns, so many, or until time is up."""
    began = perf_counter()
    taken: list[_Round] = []
    while len(taken) < rounds if rounds else not _enough(taken, perf_counter() - began):
        start = perf_counter()
        plain()
        whole = perf_counter() - start
        probe.clear()
        start = perf_counter()
        probed()
        spent = perf_counter() - start
        taken.append(_Round(whole, spent, *probe.taken()))
    return taken


def _enough(taken: Sequence[_Round], seconds: float) -> bool:
    """True if rounds may end: the time is up, and other programs did not disturb one kind more."""
    if len(taken) < LEAST or (len(taken) < MOST and seconds < SECONDS):
        return False
    if len(taken) >= MOST or seconds > PATIENCE:
        return True
    whole = quicker([r.whole for r in taken])
    return abs(quicker([r.probed for r in taken]) - whole) <= APART * whole


def _own(thunks: Sequence[Thunk], seconds: Array) -> Array:
    """Return the times of thunks, by number, without those inside them."""
    own = seconds.copy()
    numbers = {id(t): n for n, t in enumerate(walk(thunks))}
    for thunk in walk(thunks):
        inner = [numbers[id(t)] for part in children(thunk) for t in part]
        own[numbers[id(thunk)]] -= float(seconds[inner].sum()) if inner else 0.0
    return np.maximum(own, 0.0)


def _events(found: Array) -> Iterator[Event]:
    """Yield events in the order of their beginning, threads numbered as they appear."""
    order = np.lexsort((-found["end"], found["begin"]))
    start = int(found["begin"].min()) if found.size else 0
    caller = next((int(e["thread"]) for e in found if not e["part"]), 0)
    threads = {caller: 0}
    for e in found[order]:
        number = threads.setdefault(int(e["thread"]), len(threads))
        begin, end = int(e["begin"]) - start, int(e["end"]) - start
        yield Event(int(e["thunk"]), number, begin * NS, (end - begin) * NS, bool(e["part"]))
