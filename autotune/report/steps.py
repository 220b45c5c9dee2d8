"""The steps of a profiled call as a timeline and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ..bench.data import CellBench
from .charts.timeline import TimeSpan, timeline

KINDS = {"kernel": "kernel", "copy": "copy", "library": "library"}


@dataclass(frozen=True, slots=True)
class ProfileStep:
    """A row of the profile, as the table shows it."""

    name: str
    kind: str
    seconds: float
    share: float
    calls: float
    schedule: str
    members: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The picture of a call, its steps, and their seconds together."""

    picture: Markup
    rows: tuple[ProfileStep, ...]
    seconds: float


def timeline_of(cell: CellBench) -> Timeline | None:
    """Return the timeline of a cell's profile; None without one, or if nothing took time."""
    rows = (cell.profile or {}).get("rows")
    if not isinstance(rows, list):
        return None
    known = [r for r in rows if isinstance(r, dict)]
    total = sum(_number(r, "seconds") for r in known)
    if total <= 0:
        return None
    steps = tuple(_step(r, total) for r in known)
    spans, at = [], 0.0
    for step in steps:
        kind = next((k for word, k in KINDS.items() if step.kind.startswith(word)), "control")
        spans.append(TimeSpan(step.name, kind, at, step.seconds))
        at += step.seconds
    return Timeline(timeline(spans, str(cell.key)), steps, total)


def _step(row: Mapping[str, Any], total: float) -> ProfileStep:
    seconds = _number(row, "seconds")
    members = row.get("members")
    names = [_member(m) for m in members] if isinstance(members, list) else []
    return ProfileStep(
        str(row.get("name", "")),
        str(row.get("kind", "")),
        seconds,
        seconds / total,
        _number(row, "calls") or 1.0,
        str(row.get("schedule", "") or ""),
        ", ".join(names),
    )


def _member(value: object) -> str:
    """Return an instruction with the line of the model's source that it came from."""
    if isinstance(value, Mapping):
        where = value.get("source") or ""
        return f"{value.get('name', '')}{f' ({where})' if where else ''}"
    return str(value)


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
