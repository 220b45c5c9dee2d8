"""Profiles as plain data for JSON, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from ....ir.errors import ArtifactError
from ...plan.facts import GroupMember
from ...plan.loaded import Event
from .figures import ProfileFigures, ProfileRow

VERSION = 1


def to_json(profile: ProfileFigures) -> dict[str, Any]:
    """Return a profile as plain data; each row also has the figures that follow from it."""
    data = asdict(profile)
    data["rows"] = [{**row, "members": list(row["members"])} for row in data["rows"]]
    data["peak"] = None if profile.peak is None else list(profile.peak)
    data["events"] = [[e.row, e.thread, e.begin, e.seconds, int(e.part)] for e in profile.events]
    for row, found in zip(profile.rows, data["rows"], strict=True):
        found["share"] = profile.share(row)
        found["flop_rate"], found["byte_rate"] = row.flop_rate, row.byte_rate
        found["roofline"] = profile.roofline(row)
    derived = {"sum": profile.sum, "overhead": profile.overhead, "notes": list(profile.notes)}
    return {"version": VERSION, **data, **derived}


def from_json(data: object) -> dict[str, Any]:
    """Return the fields of the profile that ``to_json`` wrote; ``ArtifactError`` for any other."""
    try:
        if not isinstance(data, dict) or data["version"] != VERSION:
            raise ValueError(f"this version reads profiles of version {VERSION}")
        own = {f.name: data[f.name] for f in fields(ProfileFigures)}
        own["rows"] = tuple(_row(row) for row in own["rows"])
        own["events"] = tuple(_event(*e) for e in own["events"])
        own["costs"] = {str(k): float(v) for k, v in own["costs"].items()}
        own["memory"] = {str(k): int(v) for k, v in own["memory"].items()}
        own["peak"] = None if own["peak"] is None else _peak(*own["peak"])
        return _checked(own, _PROFILE)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ArtifactError("the profile cannot be read", why) from error


_PROFILE: Mapping[str, Callable[[Any], object]] = {
    "name": str,
    "target": str,
    "threads": int,
    "rounds": int,
    "seconds": float,
    "probed": float,
    "timing": float,
    "lost": int,
    "bounded": bool,
    "simulated": bool,
}
_ROW: Mapping[str, Callable[[Any], object]] = {
    "name": str,
    "kind": str,
    "seconds": float,
    "calls": int,
    "flops": float,
    "transcendentals": float,
    "bytes": float,
    "group": str,
    "task": str,
    "schedule": str,
    "record": str,
    "depth": int,
    "parts": int,
}


def _checked(found: dict[str, Any], kinds: Mapping[str, Callable[[Any], object]]) -> dict[str, Any]:
    """Return fields whose values are of their types; ``TypeError`` for another."""
    for name, kind in kinds.items():
        value = found[name]
        fits = isinstance(value, int | float) if kind is float else type(value) is kind
        if not fits:
            raise TypeError(f"{name} is {value!r}")
    return found


def _row(data: Any) -> ProfileRow:
    own = {f.name: data[f.name] for f in fields(ProfileRow)}
    own["members"] = tuple(GroupMember(**{k: str(v) for k, v in m.items()}) for m in own["members"])
    own["busy"] = None if own["busy"] is None else float(own["busy"])
    return ProfileRow(**_checked(own, _ROW))


def _event(row: Any, thread: Any, begin: Any, seconds: Any, part: Any) -> Event:
    return Event(int(row), int(thread), float(begin), float(seconds), bool(part))


def _peak(flops: Any, bandwidth: Any) -> tuple[float, float]:
    return float(flops), float(bandwidth)
