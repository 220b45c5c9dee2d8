"""Two clocks for what is compared: the device's events, and the host's with a wait at the end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nestwright.ir.arrays import Array

TURN = 0.02  # seconds that one turn takes, about
ROUNDS = (5, 15)  # of turns, at least and at most
MOST = 500  # submissions in one turn


@dataclass(frozen=True)
class Contender:
    """``submit()`` submits ``calls`` calls, each on arguments of its own; ``wait()`` ends them.

    ``events(action)`` gives the device's seconds for what the action submits; None where there is
    no such clock. ``how`` tells what ``submit`` is: one graph, or calls one by one.
    """

    name: str
    how: str
    calls: int
    submit: Callable[[], object]
    wait: Callable[[], object]
    events: Callable[[Callable[[], object]], float] | None
    result: Callable[[], list[Array]]

    def device(self, times: int) -> float:
        """Seconds of a call by the device's events, from so many submissions."""
        assert self.events is not None
        return self.events(lambda: self._submitted(times)) / (times * self.calls)

    def host(self, times: int) -> float:
        """Seconds of a call by the host's clock, from the first submission until all is done."""
        self.wait()
        start = time.perf_counter()
        self._submitted(times)
        self.wait()
        return (time.perf_counter() - start) / (times * self.calls)

    def _submitted(self, times: int) -> None:
        for _ in range(times):
            self.submit()


def medians(contenders: Sequence[Contender], budget: float) -> dict[str, dict[str, Any]]:
    """Seconds of one call of each by both clocks, in turns that alternate: medians, quartiles."""
    times = {}
    for c in contenders:
        c.host(1)
        times[c.name] = int(min(MOST, max(1, round(TURN / max(c.host(1) * c.calls, 1e-7)))))
    device: dict[str, list[float]] = {c.name: [] for c in contenders}
    host: dict[str, list[float]] = {c.name: [] for c in contenders}
    end = time.perf_counter() + budget
    for turn in range(ROUNDS[1]):
        if turn >= ROUNDS[0] and time.perf_counter() > end:
            break
        for c in contenders if turn % 2 == 0 else reversed(contenders):
            host[c.name].append(c.host(times[c.name]))
            if c.events is not None:
                device[c.name].append(c.device(times[c.name]))
    return {
        c.name: {
            "how": c.how,
            "calls": c.calls * times[c.name],
            "device": spread(device[c.name]),
            "host": spread(host[c.name]),
        }
        for c in contenders
    }


def spread(readings: Sequence[float]) -> dict[str, float] | None:
    """Return the median and the quartiles of readings; None where there are none."""
    if not readings:
        return None
    if len(readings) == 1:
        return {"median": readings[0], "low": readings[0], "high": readings[0], "rounds": 1}
    low, middle, high = statistics.quantiles(readings, n=4)
    return {"median": middle, "low": low, "high": high, "rounds": len(readings)}


def seconds(row: dict[str, Any], clock: str = "") -> float:
    """Return a contender's median by a clock; without a name by the device's, else the host's."""
    found = row[clock] if clock else row["device"] or row["host"]
    return float(found["median"])


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return our speed relative to each peer, by a clock that both have; 1 is equal."""
    ours = rows["nestwright"]
    return {
        name: seconds(theirs, clock) / seconds(ours, clock)
        for name, theirs in rows.items()
        if name != "nestwright"
        for clock in ["device" if ours["device"] and theirs["device"] else "host"]
    }
