"""A profile's events in Chrome's trace format, which Perfetto and chrome://tracing open.

The format: "Trace Event Format", Google. An event of phase X is complete, with its beginning and
duration in microseconds; one of phase M names a thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ....ir.errors import ArtifactError
from ....ir.files import whole_file
from .figures import ProfileFigures, ProfileRow

MICRO = 1e6
CALLER = "caller"


def trace(profiles: Sequence[ProfileFigures]) -> dict[str, Any]:
    """Return the events of profiles, each a process; in it a row for each thread that worked."""
    events: list[dict[str, Any]] = []
    for process, profile in enumerate(profiles, 1):
        events += [*_names(profile, process), *_events(profile, process)]
    told = [
        {"model": p.name, "target": p.target, "events_lost": p.lost, "notes": list(p.notes)}
        for p in profiles
    ]
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"profiles": told}}


def _names(profile: ProfileFigures, process: int) -> Iterator[dict[str, Any]]:
    """Yield the names of the process and of its threads."""
    named = {"ph": "M", "pid": process}
    whole = f"{profile.name} on {profile.target}"
    yield {"name": "process_name", **named, "args": {"name": whole}}
    for thread in sorted({e.thread for e in profile.events} | {0}):
        name = f"worker {thread}" if thread else CALLER
        yield {"name": "thread_name", **named, "tid": thread, "args": {"name": name}}


def _events(profile: ProfileFigures, process: int) -> Iterator[dict[str, Any]]:
    for e in profile.events:
        row = profile.rows[e.row]
        found: dict[str, Any] = {
            "name": row.name,
            "cat": "part" if e.part else row.kind,
            "ph": "X",
            "ts": round(e.begin * MICRO, 3),
            "dur": round(e.seconds * MICRO, 3),
            "pid": process,
            "tid": e.thread,
        }
        if not e.part:
            found["args"] = _arguments(row)
        yield found


def _arguments(row: ProfileRow) -> dict[str, Any]:
    """Return what is shown of an event that is chosen."""
    found = {
        "group": row.group,
        "flops": row.flops,
        "bytes": row.bytes,
        "schedule": " ".join(filter(None, (row.schedule, row.record))),
        "source": ", ".join(row.sources),
    }
    return {name: value for name, value in found.items() if value}


def write(profiles: Sequence[ProfileFigures], path: str | os.PathLike[str]) -> None:
    """Write the trace, whole or not at all; ``ArtifactError`` if it cannot be written."""
    text = json.dumps(trace(profiles), separators=(",", ":"))
    try:
        with whole_file(Path(path), durable=False) as file:
            file.write(text.encode())
    except OSError as error:
        raise ArtifactError(f"cannot write {path}", error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the path
        raise ArtifactError(f"cannot write {str(path)!r}", str(error)) from error
