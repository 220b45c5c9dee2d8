"""The kernels of a cell: rows of its table and marks on its roofline, the heaviest first."""

from __future__ import annotations

from dataclasses import dataclass

from ..bench.data import CellBench, GroupBench
from ..measure.host.peak import Peak
from .charts.roofline import Roof, RooflineMark
from .verdicts import fma_seconds, least_seconds


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A group with its number on the roofline, and its share of the time.

    ``roof`` is its share of the roof that bounds it, ``bound`` the name of that one: a level of
    memory, or ``FMA``.
    """

    number: int
    group: GroupBench
    share: float
    roof: float | None
    bound: str

    @property
    def gain(self) -> float | None:
        """Default over tuned seconds; None if either did not run."""
        g = self.group
        return (
            g.default_seconds / g.tuned_seconds if g.default_seconds and g.tuned_seconds else None
        )

    @property
    def total(self) -> float:
        """Seconds in a run of the model, all executions of the group together."""
        return self.group.weight * self.group.tuned_seconds

    @property
    def flops_rate(self) -> float:
        """FLOP per second; 0 if it did not run."""
        return self.group.flops / self.group.tuned_seconds if self.group.tuned_seconds else 0.0

    @property
    def bytes_rate(self) -> float:
        """Bytes per second; 0 if it did not run."""
        return self.group.bytes / self.group.tuned_seconds if self.group.tuned_seconds else 0.0


def kernel_rows(cell: CellBench, peak: Peak | None) -> tuple[KernelRow, ...]:
    """Return the rows of a cell's groups by their time in a run of the model, the longest first."""
    whole = sum(g.weight * g.tuned_seconds for g in cell.groups) or 1.0
    groups = sorted(cell.groups, key=lambda g: -g.weight * g.tuned_seconds)
    return tuple(
        KernelRow(n, g, g.weight * g.tuned_seconds / whole, *_roof(g, peak))
        for n, g in enumerate(groups, 1)
    )


def _roof(g: GroupBench, peak: Peak | None) -> tuple[float | None, str]:
    """Return a group's share of its roof, and that roof's name; None if it is not known.

    Bytes that would be above every level's roof were not all moved: a gather reads some rows.
    """
    if peak is None or not g.tuned_seconds or peak.flops <= 0 or peak.bandwidth <= 0:
        return None, ""
    if peak.roofs and g.bytes > g.tuned_seconds * max(r.bandwidth for r in peak.roofs):
        return None, ""
    level = peak.roof_of(g.working_set)
    computes = fma_seconds(g, peak) > g.bytes / level.bandwidth
    return least_seconds(g, peak) / g.tuned_seconds, "FMA" if computes else level.name


def marks(rows: tuple[KernelRow, ...]) -> tuple[RooflineMark, ...]:
    """Return the rows as marks on a roofline."""
    return tuple(
        RooflineMark(
            f"{r.number} {r.group.name}",
            r.group.flops,
            r.group.bytes,
            r.group.default_seconds,
            r.group.tuned_seconds,
            r.share,
        )
        for r in rows
    )


def roof_of(peak: Peak) -> Roof:
    """Return measured peaks as the roof of a picture."""
    return Roof(peak.flops, tuple((r.name, r.bandwidth) for r in (*peak.roofs, peak.memory)))
