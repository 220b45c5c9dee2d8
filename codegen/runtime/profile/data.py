"""A profile, as ``Executable.profile`` returns it: its figures in the forms that are read."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from ...plan.facts import GroupMember
from . import encoding, html, trace
from .figures import ProfileFigures


@dataclass(frozen=True, slots=True)
class Profile(ProfileFigures):
    """The times of a model's calls, step by step; its fields are those of ``ProfileFigures``."""

    def against(self, flops: float, bandwidth: float) -> Profile:
        """Return the profile with the machine's peak, in FLOP/s and bytes/s."""
        return replace(self, peak=(flops, bandwidth))

    def without_folders(self) -> Profile:
        """Return the profile with sources by the names of their files, without their folders."""
        rows = (replace(r, members=tuple(map(_bare, r.members))) for r in self.rows)
        return replace(self, rows=tuple(rows))

    def to_json(self) -> dict[str, Any]:
        """Return plain data, which ``from_json`` reads; derived figures are with the rows."""
        return encoding.to_json(self)

    @staticmethod
    def from_json(data: object) -> Profile:
        """Invert ``to_json``; ``ArtifactError`` for any other value."""
        return Profile(**encoding.from_json(data))

    def trace(self) -> dict[str, Any]:
        """Return the events in Chrome's trace format, which Perfetto opens."""
        return trace.trace([self])

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events as one file of Chrome's trace format, whole or not at all.

        ``ArtifactError`` if the file cannot be written.
        """
        trace.write([self], path)

    def _repr_html_(self) -> str:
        return html.page(self)


def _bare(member: GroupMember) -> GroupMember:
    return replace(member, source=member.source.replace("\\", "/").rpartition("/")[2])
