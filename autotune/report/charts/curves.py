"""Tuning curves: the best time so far against trials, and against seconds, seeds as a band."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ...log.records import quantile
from .axes import COUNT, SECONDS, WALL, Canvas, ChartAxis, Scale, draw_axes, linear, logarithmic
from .svg import Place, joined, path, picture, tag

FRAME = Canvas(height=220.0)
STEEP = 4.0  # ratio of the first to the last time from which the time's scale is logarithmic


@dataclass(frozen=True, slots=True)
class Curve:
    """The best seconds so far of one seed: ascending places, and the value that holds from each.

    It holds up to ``end``, where the search stopped.
    """

    seed: int
    places: tuple[float, ...]
    values: tuple[float, ...]
    end: float

    def at(self, place: float) -> float | None:
        """Return the best so far at a place; None before the first."""
        number = bisect_right(self.places, place)
        return self.values[number - 1] if number else None


def tuning_curve(curves: Sequence[Curve], default: float, name: str, *, by_time: bool) -> Markup:
    """Return the picture of some seeds' curves, the default's seconds as a line.

    With several seeds the line is their median and the band all of them. Places are trials, or
    seconds since the search began (``by_time``).
    """
    known = [c for c in curves if c.places]
    if not known:
        return Markup("")
    values = [v for c in known for v in c.values] + ([default] if default > 0 else [])
    scale = logarithmic if max(values) > STEEP * min(values) else linear
    upward = scale(values, *FRAME.upward)
    across = linear([c.end for c in known], *FRAME.across, zero=True)
    x = (
        ChartAxis(across, WALL, "time since the first trial")
        if by_time
        else ChartAxis(across, COUNT, "trials")
    )
    y = ChartAxis(upward, SECONDS, "best time so far")
    against = "seconds" if by_time else "trials"
    return picture(
        FRAME.width,
        FRAME.height,
        f"Best time so far of {name} against {against}",
        draw_axes(FRAME, x, y),
        _default(default, upward),
        _band(known, across, upward),
        kind="curve",
    )


def _default(seconds: float, y: Scale) -> Markup:
    if seconds <= 0:
        return Markup("")
    at, (left, right) = y(seconds), FRAME.across
    above = at - 4 if at - 14 > FRAME.top else at + 12
    label = f"default {SECONDS.text(seconds)}"
    line = tag("line", class_="defaultline", x1=left, x2=right, y1=at, y2=at)
    text = tag("text", label, class_="defaultname", x=right, y=above, text_anchor="end")
    return joined([line, text])


def _band(curves: Sequence[Curve], x: Scale, y: Scale) -> Markup:
    """Return the median of the seeds as a step line, and their range as a band."""
    places = sorted({p for c in curves for p in (*c.places, c.end)})
    rows = [(p, found) for p in places if (found := _found(curves, p))]
    parts = []
    if len(curves) > 1:
        low = steps([(x(p), y(min(v))) for p, v in rows])
        high = steps([(x(p), y(max(v))) for p, v in rows])
        parts.append(tag("polygon", class_="band", points=path([*low, *reversed(high)])))
    middle = [(x(p), y(quantile(v, 0.5))) for p, v in rows]
    parts.append(tag("polyline", class_="best", points=path(steps(middle))))
    last = middle[-1]
    parts.append(tag("circle", class_="tuned", cx=last[0], cy=last[1], r=3.0))
    return joined(parts)


def _found(curves: Sequence[Curve], place: float) -> tuple[float, ...]:
    values = (c.at(place) for c in curves)
    return tuple(v for v in values if v is not None)


def steps(points: Sequence[Place]) -> list[Place]:
    """Return a step line: a value holds until the next one."""
    found = [points[0]]
    for (_, y), (x, new) in itertools.pairwise(points):
        found += [(x, y), (x, new)] if new != y else [(x, y)]
    return found
