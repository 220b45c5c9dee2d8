"""Why a winner won, as bars: how much slower it is with a decision put back to the default's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ..attribute import Attribution, Reverted
from ..log.records import Json, quantile, ratios
from ..measure.compare import interval
from .charts.axes import SECONDS
from .charts.bars import Bar, ratio_bars
from .formats import DASH


@dataclass(frozen=True, slots=True)
class RevertView:
    """The picture, the rows of the table behind it, and what is to be said below."""

    picture: Markup
    rows: tuple[tuple[str, ...], ...]
    note: str


def revert_view(found: Attribution, name: str) -> RevertView:
    """Return an attribution as bars, the decision that buys most first after all together."""
    known = [(v, _bar(found.runs, v)) for v in found.variants]
    first, rest = known[:1], sorted(known[1:], key=lambda pair: -pair[1].value if pair[1] else 0)
    ordered = [*first, *rest]
    bars = [bar for _, bar in ordered if bar is not None]
    picture = ratio_bars(bars, "time over the winner's", f"What each decision of {name} buys")
    return RevertView(picture, tuple(_row(v, bar) for v, bar in ordered), _note(found, bars[1:]))


def _bar(winner: Sequence[float], v: Reverted) -> Bar | None:
    if not v.runs or len(v.runs) != len(winner):
        return None
    slower = ratios(v.runs, tuple(winner))
    low, high = interval(slower)
    change = "" if v.winner == v.default else f": {shown(v.winner)} → {shown(v.default)}"
    label = f"{v.decision}{change}"
    return Bar(label, quantile(slower, 0.5), low, high, clear=low > 1 or high < 1)


def _row(v: Reverted, bar: Bar | None) -> tuple[str, ...]:
    head = v.decision, shown(v.winner), shown(v.default)
    if bar is None:
        return (*head, DASH, v.note or DASH, DASH)
    seconds = SECONDS.text(quantile(v.runs, 0.5))
    return (*head, seconds, f"{bar.value:.2f}×", f"{bar.low:.2f} to {bar.high:.2f}")


def shown(value: Json) -> str:
    """Return a decision as text; several, side by side."""
    return ", ".join(map(shown, value)) if isinstance(value, list) else str(value)


def _note(found: Attribution, single: Sequence[Bar]) -> str:
    if found.note:
        return f"The winner could not be measured again: {found.note}"
    unclear = sum(not b.clear for b in single)
    if single and unclear == len(single):
        return "No decision alone makes a clear difference: they count together, or it is noise."
    return f"{unclear} of {len(single)} differences are within the noise (grey)." if unclear else ""
