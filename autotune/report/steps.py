"""The steps of a profiled call, as a timeline by thread and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from ...codegen.runtime.profile.data import Profile
from ...codegen.runtime.profile.figures import CALL, CONTROL, ProfileRow
from ...ir.errors import ArtifactError
from ..bench.data import CellBench
from ..measure.host.peak import Peak
from .charts.timeline import Lane, TimeSpan, timeline


@dataclass(frozen=True, slots=True)
class StepView:
    """A row of the profile as the table shows it."""

    row: ProfileRow
    share: float
    roof: float | None
    schedule: str
    members: str


@dataclass(frozen=True, slots=True)
class ProfileView:
    """The picture of a call, its steps, its seconds, and what a reader of the figures must know.

    ``outside`` are the seconds that no step of the picture has: checking arguments, making results.
    """

    picture: Markup
    steps: tuple[StepView, ...]
    seconds: float
    outside: float
    notes: tuple[str, ...]


def profile_view(cell: CellBench, peak: Peak | None) -> ProfileView | None:
    """Return the view of a cell's profile; None without one, or if this version cannot read it."""
    if cell.profile is None:
        return None
    try:
        found = Profile.from_json(dict(cell.profile))
    except ArtifactError:
        return None
    sizes = {g.key: g.working_set for g in cell.groups}
    steps = tuple(_step(found, row, peak, sizes) for row in found.heaviest)
    picture = timeline(_lanes(found), str(cell.key))
    outside = sum(row.seconds for row in found.rows if row.kind == CALL)
    return ProfileView(picture, steps, found.seconds, outside, found.notes)


def _step(
    profile: Profile, row: ProfileRow, peak: Peak | None, sizes: Mapping[str, float]
) -> StepView:
    members = ", ".join(f"{m.name} ({m.source})" if m.source else m.name for m in row.members)
    schedule = f"{row.schedule} {row.record[:12]}".strip()
    roof = profile.roofline(row)
    if peak is not None and row.task in sizes:
        roof = row.roofline((peak.flops, peak.roof_of(sizes[row.task]).bandwidth))
    return StepView(row, profile.share(row), roof, schedule, members)


def _lanes(profile: Profile) -> list[Lane]:
    """Return what each thread did; the rows one after the other, if there are no events."""
    if not profile.events:
        return [Lane("", tuple(_one_by_one(profile.rows)))]
    lanes: dict[int, list[TimeSpan]] = {}
    for e in profile.events:
        row = profile.rows[e.row]
        if row.kind not in (CONTROL, CALL) and e.part == (e.thread > 0):
            span = TimeSpan(row.name, row.kind, e.begin, e.seconds)
            lanes.setdefault(e.thread, []).append(span)
    return [Lane(f"thread {n}", tuple(spans)) for n, spans in sorted(lanes.items())]


def _one_by_one(rows: tuple[ProfileRow, ...]) -> list[TimeSpan]:
    spans, at = [], 0.0
    for row in rows:
        kind = row.kind.partition(" ")[0]
        spans.append(TimeSpan(row.name, kind, at, row.seconds))
        at += row.seconds
    return spans
