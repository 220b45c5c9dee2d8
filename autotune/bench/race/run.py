"""A race: ways are opened one after another, then timed in turns until the result is clear."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ....ir.arrays import Array
from ...log.records import quantile
from ...measure.compare import settled
from ...measure.host.lock import MachineLock
from ..data import Latency, Throughput, WayBench
from .entrant import Entrant, Lost, WayEntry

TURN = 0.01  # seconds of calls in a turn
MOST = 10_000  # calls in a turn
ROUNDS = 21  # at least: a control's spread needs them
SLOW = 0.2  # seconds of a call from which ``FEW`` rounds have to do
FEW = 7
CHECK_EVERY = 3  # rounds
OPEN_TIME = 1.0  # seconds that callers have

Errors = Callable[[list[Array]], float]


@dataclass(frozen=True, slots=True)
class RaceRules:
    """The options of a race: ``seconds`` of timing for each way, unless it is clear before.

    ``callers`` are numbers of threads whose throughput is measured. ``error`` compares results with
    the oracle's (None: they are not checked); ``folder`` is for files. ``tell`` gets a line of text
    at each step.
    """

    seconds: float
    folder: Path
    callers: Sequence[int] = ()
    error: Errors | None = None
    tell: Callable[[str], object] = lambda text: None


@dataclass(slots=True)
class _Lane:
    """An entrant and what was read off it so far."""

    entrant: Entrant
    calls: int = 1
    once: float = 0.0
    runs: list[float] = field(default_factory=list)
    each: list[float] = field(default_factory=list)
    throughput: list[Throughput] = field(default_factory=list)
    error: float | None = None
    problem: str = ""


def race(entries: Sequence[WayEntry], rules: RaceRules) -> tuple[WayBench, ...]:
    """Run ways in turns; return them in the same order. One that fails has its problem.

    Each gets a turn in every round, in random order: none always follows the same other one.
    """
    lock = MachineLock()
    lost: dict[str, str] = {}
    try:
        with ExitStack() as stack:
            lanes: list[_Lane] = []
            for entry in entries:
                rules.tell(f"opening {entry.name}")
                try:
                    with lock.building():
                        lanes.append(_Lane(stack.enter_context(Entrant(entry))))
                except Lost as e:
                    lost[entry.name] = str(e)
            _rounds(lanes, rules, lock)
            for lane in lanes:
                _finish(lane, rules, lock)
            found = {lane.entrant.entry.name: _way(lane) for lane in lanes}
    finally:
        lock.close()
    return tuple(
        found.get(e.name) or WayBench(e.name, problem=lost.get(e.name, "")) for e in entries
    )


def _rounds(lanes: Sequence[_Lane], rules: RaceRules, lock: MachineLock) -> None:
    """Time all lanes in rounds, until nothing more would change or the time is used up."""
    for lane in lanes:
        with lock.timing():
            _attempt(lane, _prepare)
    spent, done, order = 0.0, 0, random.Random(0)
    while live := [lane for lane in lanes if not lane.problem]:
        longest = max(lane.once for lane in live)
        least = FEW if longest > SLOW else ROUNDS
        over = spent >= rules.seconds * len(live)
        clear = done % CHECK_EVERY == 0 and settled([lane.runs for lane in live])
        if done >= least and (over or clear):
            break
        began = time.monotonic()
        with lock.timing():
            for lane in order.sample(live, len(live)):
                _attempt(lane, _turn)
        spent, done = spent + time.monotonic() - began, done + 1
    for lane in lanes:
        lane.runs = lane.runs[:done]


def _attempt(lane: _Lane, action: Callable[[_Lane], None]) -> None:
    try:
        action(lane)
    except Lost as e:
        lane.problem = str(e)


def _prepare(lane: _Lane) -> None:
    """Decide on the calls of a turn."""
    lane.once, _ = lane.entrant.turn(1)
    lane.calls = max(1, min(MOST, math.ceil(TURN / max(lane.once, 1e-9))))


def _turn(lane: _Lane) -> None:
    seconds, each = lane.entrant.turn(lane.calls)
    lane.runs.append(seconds)
    lane.each += each


def _finish(lane: _Lane, rules: RaceRules, lock: MachineLock) -> None:
    """Check a lane's results, and measure its throughput."""

    def check(lane: _Lane) -> None:
        if rules.error is not None:
            place = rules.folder / f"{lane.entrant.entry.name}.results"
            lane.error = rules.error(lane.entrant.results(place))
            place.unlink()

    if not lane.problem:
        _attempt(lane, check)
    if lane.problem:
        return
    for count in rules.callers:
        rules.tell(f"{lane.entrant.entry.name}: {count} callers")
        lane.throughput += _throughput(lane.entrant.entry, count, lock)


def _throughput(entry: WayEntry, count: int, lock: MachineLock) -> list[Throughput]:
    """Return the throughput of several callers; nothing where a model does not serve them.

    The model is opened again, on as many cores as they have threads together, if there are so many.
    """
    found = []
    within = replace(entry, cores=first_cores(count * entry.threads))
    with suppress(Lost):
        with lock.building():
            entrant = Entrant(within)
        with entrant:
            for shared in (True, False):
                with suppress(Lost), lock.timing():
                    calls, seconds = entrant.callers(count, shared, OPEN_TIME)
                    found.append(Throughput(count, shared, calls, seconds))
    return found


def first_cores(count: int) -> list[int]:
    """Return the first of the cores that this process may run on, ``count`` at most."""
    known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return known[:count]


def _way(lane: _Lane) -> WayBench:
    entry, each = lane.entrant.entry, tuple(lane.each)
    if lane.problem:
        return WayBench(entry.name, lane.entrant.detail, problem=lane.problem)
    middle, high, top = (quantile(each, q) for q in (0.5, 0.9, 0.99))
    return WayBench(
        entry.name,
        lane.entrant.detail,
        tuple(lane.runs),
        Latency(middle, high, top, len(each)),
        tuple(lane.throughput),
        lane.entrant.first,
        lane.error,
    )
