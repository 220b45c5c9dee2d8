"""A tuned group as the templates show it: curves, honesty, attribution, differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from ...schedule.errors import ScheduleError
from ...schedule.language.trace import Trace
from ..bench.data import GroupBench
from ..log.records import Json
from .charts.axes import COUNT, SECONDS, WALL
from .charts.curves import Curve, tuning_curve
from .charts.scatter import honesty as honesty_picture
from .diff import Pair, aligned
from .formats import DASH
from .kernels import KernelRow
from .reverts import RevertView, revert_view
from .tuning import FEW, Failure, curves_by_time, curves_by_trials, failures, honesty


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group that was tuned, with the pictures and tables of its tuning."""

    row: KernelRow
    summary: str
    by_trials: Markup
    by_time: Markup
    improvements: tuple[tuple[str, str, str], ...]
    improvements_by_time: tuple[tuple[str, str, str], ...]
    honesty_picture: Markup
    honesty_models: tuple[tuple[str, str], ...]
    honesty_rows: tuple[tuple[str, ...], ...]
    attribution: RevertView | None
    diffs: tuple[tuple[str, tuple[Pair, ...]], ...]
    failures: tuple[Failure, ...]


def group_view(row: KernelRow, nests: bool = True) -> GroupView | None:
    """Return the view of a group; None if it has few trials and no schedule of its own.

    With ``nests`` the loop nests of both schedules are compared.
    """
    g = row.group
    changed = g.tuned.sketch != g.default.sketch or g.tuned.decisions != g.default.decisions
    if len(g.trials) < FEW and not changed:
        return None
    trials, times, fair = curves_by_trials(g), curves_by_time(g), honesty(g)
    return GroupView(
        row=row,
        summary=_summary(row),
        by_trials=tuning_curve(trials, g.default_seconds, g.name, by_time=False),
        by_time=tuning_curve(times, g.default_seconds, g.name, by_time=True),
        improvements=_improvements(trials, COUNT.text),
        improvements_by_time=_improvements(times, WALL.text),
        honesty_picture=honesty_picture(fair.pairs, g.name),
        honesty_models=tuple((name, _figure(rho)) for name, rho in fair.rho.items()),
        honesty_rows=tuple((part, *map(_figure, rhos)) for part, rhos in fair.parts),
        attribution=revert_view(g.attribution, g.name) if g.attribution else None,
        diffs=_diffs(g, nests),
        failures=failures(g),
    )


def _summary(row: KernelRow) -> str:
    """Say which schedule won, with which decisions, and what it gained."""
    g = row.group
    if g.tuned.sketch == g.default.sketch:
        return f"The default schedule is kept after {len(g.trials)} trials."
    decided = ", ".join(f"{k}={v}" for k, v in g.tuned.decisions.items())
    gain = "" if row.gain is None else f", {row.gain:.2f}× over the default"
    record = f"; trial {g.tuned.record[:12]} of the log" if g.tuned.record else ""
    return f"Winner: {g.tuned.sketch} with {decided or 'no decisions'}{gain}{record}."


def _improvements(
    curves: tuple[Curve, ...], text: Callable[[float], str]
) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (str(c.seed), text(place), SECONDS.text(value))
        for c in curves
        for place, value in zip(c.places, c.values, strict=True)
    )


def _figure(rho: float | None) -> str:
    return DASH if rho is None else f"{rho:.2f}"


def _diffs(g: GroupBench, nests: bool) -> tuple[tuple[str, tuple[Pair, ...]], ...]:
    """Return the differences of both schedules by title, without those of equal texts."""
    texts = [("Schedule", _steps(g.default.trace), _steps(g.tuned.trace))]
    if nests:
        texts.append(("Loop nest", g.default.nest, g.tuned.nest))
    return tuple((title, rows) for title, a, b in texts if (rows := aligned(a, b)))


def _steps(trace: list[Json]) -> str:
    """Return a trace as Python; "" if it is not one that this version knows."""
    try:
        return Trace.from_json(trace).show()
    except ScheduleError:
        return ""
