"""A profile as a small piece of HTML, for notebooks."""

from __future__ import annotations

from ....ir.html import facts, table
from .figures import ProfileFigures, ProfileRow

SHOWN = 20  # rows; the others are summed up


def page(profile: ProfileFigures) -> str:
    """Return a profile as HTML: the whole, and its heaviest rows."""
    rows = profile.heaviest
    head = {
        "profile": profile.name,
        "target": profile.target,
        "one call": f"{profile.seconds * 1e3:.3f} ms ({profile.rounds} rounds)",
        "sum of the rows": f"{profile.sum * 1e3:.3f} ms",
        "notes": "; ".join(profile.notes) or "none",
    }
    told = [_cells(profile, row) for row in rows[:SHOWN]]
    if rest := rows[SHOWN:]:
        seconds = sum(r.seconds for r in rest)
        share = seconds / profile.sum if profile.sum else 0.0
        told.append([f"{len(rest)} more", "", f"{seconds * 1e3:.3f}", f"{share:.1%}", *[""] * 5])
    titles = ("step", "kind", "ms", "share", "calls", "GFLOP/s", "GB/s", "schedule", "source")
    return facts(head) + table(titles, told)


def _cells(profile: ProfileFigures, row: ProfileRow) -> list[str]:
    return [
        row.name,
        row.group or row.kind,
        f"{row.seconds * 1e3:.3f}",
        f"{profile.share(row):.1%}",
        str(row.calls),
        f"{row.flop_rate / 1e9:.1f}" if row.flops else "",
        f"{row.byte_rate / 1e9:.1f}" if row.bytes else "",
        " ".join(filter(None, (row.schedule, row.record))),
        ", ".join(row.sources[:3]),
    ]
