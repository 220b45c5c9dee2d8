"""The verdict of a cell in one line: how much faster, how sure, how near the roof, what is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...codegen.runtime.profile.figures import FMA_AT_MOST
from ..bench.data import CONTROL, DEFAULT, TUNED, CellBench, GroupBench, TrialBench
from ..log.records import ratios
from ..measure.compare import interval
from ..measure.host.peak import Peak
from .tuning import late_gain

OURS = (DEFAULT, TUNED, CONTROL)
WORTH = 0.02  # expected share of time saved from which more trials are worth it
WIDE = 0.10  # spread of the control from which a cell's figures are doubted


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """A cell's figures for its line.

    ``speedup`` is the tuned build over the default one with its interval, ``roof`` the share of the
    time that the machine's peaks allow at best, ``left`` the share of time that more trials might
    save as the last third of them did, ``spread`` how far the control lies from the same build.
    Figures that are not known are None.
    """

    speedup: float | None
    low: float
    high: float
    seconds: float | None
    roof: float | None
    trials: int
    seeds: int
    spent: float
    left: float | None
    peer: tuple[str, float] | None
    spread: float

    @property
    def sign(self) -> int:
        """1 if it is faster, -1 if slower; 0 if neither exceeds the interval and the control."""
        if self.speedup is None:
            return 0
        beyond = 1 + (self.spread if math.isfinite(self.spread) else 0.0)
        faster = self.low > 1 and self.speedup > beyond
        return 1 if faster else -1 if self.high < 1 and self.speedup < 1 / beyond else 0

    @property
    def word(self) -> str:
        """The comparison in words, as far as the figures allow."""
        if self.speedup is None:
            return "not measured"
        match self.sign:
            case 1:
                return f"{self.speedup:.2f}× faster than the default"
            case -1:
                return f"{1 / self.speedup:.2f}× slower than the default"
            case _:
                return "as fast as the default, as far as this run can tell"

    @property
    def advice(self) -> str:
        """Say if more trials are worth it; "" if nothing is known."""
        if self.left is None:
            return "" if self.trials else "no trials of this setting"
        late = f"the last third of the trials saved {100 * self.left:.1f} %"
        return f"more trials may pay: {late}" if self.left >= WORTH else f"done: {late}"


def verdict(cell: CellBench, peak: Peak | None) -> CellVerdict:
    """Return the verdict of a cell; ``peak`` are its target's peaks, if they were measured."""
    default, tuned = cell.way(DEFAULT), cell.way(TUNED)
    low, high = 0.0, math.inf
    if default and tuned and default.runs and tuned.runs:
        low, high = interval(ratios(default.runs, tuned.runs))
    trials = [t for g in cell.groups for t in g.trials]
    return CellVerdict(
        speedup=cell.speedup(),
        low=low,
        high=high,
        seconds=cell.seconds(TUNED),
        roof=roof_share(cell, peak),
        trials=len(trials),
        seeds=len({t.seed for t in trials}),
        spent=sum(_spent(g.trials) for g in cell.groups),
        left=_left(cell),
        peer=_best_peer(cell),
        spread=cell.spread,
    )


def _spent(trials: Sequence[TrialBench]) -> float:
    """Seconds from the first to the last trial of each seed; groups share a search's time."""
    ends: dict[int, float] = {}
    for t in trials:
        ends[t.seed] = max(ends.get(t.seed, 0.0), t.at)
    return sum(ends.values())


def roof_share(cell: CellBench, peak: Peak | None) -> float | None:
    """Return the least time that the peaks allow for the groups, over the time that they took."""
    ran = [g for g in cell.groups if g.tuned_seconds > 0]
    if peak is None or not ran or peak.flops <= 0 or peak.bandwidth <= 0:
        return None
    least = sum(g.weight * least_seconds(g, peak) for g in ran)
    return least / sum(g.weight * g.tuned_seconds for g in ran)


def least_seconds(g: GroupBench, peak: Peak) -> float:
    """Return the least time of a group that the peaks allow, at most its own.

    Its bytes come from the nearest level of memory that holds its working set.
    """
    moving = g.bytes / peak.roof_of(g.working_set).bandwidth
    return min(g.tuned_seconds, max(fma_seconds(g, peak), moving))


def fma_seconds(g: GroupBench, peak: Peak) -> float:
    """Return the least time of a group's operations, if FMAs do them.

    0 for one that was faster: other instructions did them, such as products in tile registers, or
    there were fewer.
    """
    least = g.flops / peak.flops
    return least if least <= FMA_AT_MOST * g.tuned_seconds else 0.0


def _left(cell: CellBench) -> float | None:
    """Return the mean of the groups' late gains, each weighed by its time."""
    known = [
        (g.weight * g.tuned_seconds, gain)
        for g in cell.groups
        if (gain := late_gain(g)) is not None
    ]
    total = sum(w for w, _ in known)
    return sum(w * gain for w, gain in known) / total if total > 0 else None


def _best_peer(cell: CellBench) -> tuple[str, float] | None:
    """Return the fastest peer, and its time over the tuned build's."""
    found = [
        (gain, w.name)
        for w in cell.ways
        if w.name not in OURS and w.runs and (gain := cell.speedup(TUNED, w.name)) is not None
    ]
    return (min(found)[1], min(found)[0]) if found else None


def doubts(cell: CellBench) -> tuple[str, ...]:
    """Return why figures of a cell are not to be trusted, in plain words."""
    found = list(cell.warnings)
    spread = cell.spread
    if math.isfinite(spread) and spread > WIDE and not found:
        found.append(
            f"the same build, timed as two, differed by {100 * spread:.0f} %: "
            "smaller differences mean nothing here"
        )
    return tuple(found)
