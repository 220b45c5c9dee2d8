"""The page of a benchmark report: self-contained HTML, by jinja2."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from ..bench.data import BenchReport, CellBench, GroupBench
from ..log.units import duration, rate, share
from ..measure.peak import Peak

WIDTH, HEIGHT, MARGIN = 640, 220, 44


@dataclass(frozen=True, slots=True)
class Rates:
    """FLOP/s and bytes/s of a run, and their share of the machine's peaks."""

    flops: float
    bytes: float
    flops_share: float
    bytes_share: float


def render(report: BenchReport) -> str:
    """Return the HTML page as text."""
    environment = Environment(
        loader=PackageLoader(__package__ or __name__.rpartition(".")[0], "."),
        autoescape=select_autoescape(default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": duration, "rate": rate, "share": share}

    def rates(peak: Peak | None, flops: float, size: float, seconds: float) -> Rates:
        if not seconds or peak is None:
            return Rates(0.0, 0.0, 0.0, 0.0)
        f, b = flops / seconds, size / seconds
        return Rates(f, b, f / peak.flops, b / peak.bandwidth)

    return environment.get_template("report.html.j2").render(
        report=report,
        created=time.strftime("%Y-%m-%d %H:%M", time.localtime(report.created)),
        rates=rates,
        curve=curve_picture,
        bars=bar_picture,
    )


def curve_picture(cell: CellBench) -> Markup:
    """Return the tuning curve of a cell as SVG: the sum of its groups' best times over trials.

    The horizontal axis counts the trials of each group; the sum is relative to the default
    schedules.
    """
    curves = [(g.weight, g.curve) for g in cell.groups if len(g.curve) > 1]
    if not curves:
        return Markup("")
    longest = max(c[-1][0] for _, c in curves)
    totals = [
        sum(w * _at(c, n) for w, c in curves) / sum(w * c[0][1] for w, c in curves)
        for n in range(1, longest + 1)
    ]
    low = min(totals)
    points = [_place(n, v, longest, low) for n, v in enumerate(totals, 1)]
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in _stairs(points))
    return Markup(
        '<svg viewBox="0 0 {w} {h}" role="img" aria-label="tuning curve">'
        '<polyline class="axis" points="{m},{t} {m},{b} {r},{b}"/>'
        '<text x="{m}" y="{label}">1 trial per group</text>'
        '<text x="{r}" y="{label}" text-anchor="end">{longest}</text>'
        '<text x="{left}" y="{t}" text-anchor="end" dy="4">1.00</text>'
        '<text x="{left}" y="{b}" text-anchor="end">{low}</text>'
        '<polyline class="curve" points="{steps}"/></svg>'
    ).format(
        w=WIDTH,
        h=HEIGHT,
        m=MARGIN,
        t=12,
        b=HEIGHT - 28,
        r=WIDTH - 12,
        label=HEIGHT - 8,
        left=MARGIN - 6,
        longest=longest,
        low=f"{low:.2f}",
        steps=steps,
    )


def _at(curve: Sequence[tuple[int, float]], number: int) -> float:
    """Return the best time after ``number`` trials; before the first that ran, its time."""
    return next((v for n, v in reversed(curve) if n <= number), curve[0][1])


def _place(number: int, value: float, longest: int, low: float) -> tuple[float, float]:
    top, bottom = 12, HEIGHT - 28
    x = MARGIN + (WIDTH - 12 - MARGIN) * (number - 1) / max(1, longest - 1)
    y = top + (bottom - top) * ((1.0 - value) / (1.0 - low) if low < 1.0 else 0.0)
    return x, y


def _stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a step line through points: a best time holds until the next one."""
    steps = [points[0]]
    for (_, y), (x, new) in itertools.pairwise(points):
        steps += [(x, y), (x, new)]
    return steps


def bar_picture(group: GroupBench, longest: float) -> Markup:
    """Return a group's default and tuned time as two bars, scaled to the longest one."""
    scale = 120 / longest if longest else 0.0
    return Markup(
        '<svg class="bars" viewBox="0 0 120 14"><rect class="default" width="{a}" height="6"/>'
        '<rect class="tuned" y="7" width="{b}" height="6"/></svg>'
    ).format(
        a=f"{group.weight * group.default_seconds * scale:.1f}",
        b=f"{group.weight * group.tuned_seconds * scale:.1f}",
    )
