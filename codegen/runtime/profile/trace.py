"""A profile's events in Chrome's trace format, which Perfetto and chrome://tracing open.

The format: "Trace Event Format", Google. An event of phase X is complete, with its beginning and
duration in microseconds; one of phase M names a thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....ir.errors import ArtifactError
from ....ir.files import whole_file
from ...plan.loaded import Event
from .figures import ProfileFigures

MICRO = 1e6
PROCESS = 1
CALLER = "caller"


def trace(profile: ProfileFigures) -> dict[str, Any]:
    """Return a profile's events: a row for each thread that was seen to work."""
    threads = sorted({e.thread for e in profile.events} | {0})
    names = [
        {"name": "process_name", "ph": "M", "pid": PROCESS, "args": {"name": profile.name}},
        *(
            {
                "name": "thread_name",
                "ph": "M",
                "pid": PROCESS,
                "tid": t,
                "args": {"name": f"worker {t}" if t else CALLER},
            }
            for t in threads
        ),
    ]
    told = {"target": profile.target, "events_lost": profile.lost, "notes": list(profile.notes)}
    return {
        "traceEvents": [*names, *_events(profile)],
        "displayTimeUnit": "ns",
        "otherData": told,
    }


def _events(profile: ProfileFigures) -> Iterator[dict[str, Any]]:
    for e in profile.events:
        row = profile.rows[e.row]
        found: dict[str, Any] = {
            "name": row.name,
            "cat": "part" if e.part else row.kind,
            "ph": "X",
            "ts": e.begin * MICRO,
            "dur": e.seconds * MICRO,
            "pid": PROCESS,
            "tid": e.thread,
        }
        if not e.part:
            found["args"] = _arguments(profile, e)
        yield found


def _arguments(profile: ProfileFigures, e: Event) -> dict[str, Any]:
    """Return what is shown of an event that is chosen."""
    row = profile.rows[e.row]
    found = {
        "group": row.group,
        "flops": row.flops,
        "bytes": row.bytes,
        "schedule": " ".join(filter(None, (row.schedule, row.record))),
        "source": ", ".join(row.sources),
    }
    return {name: value for name, value in found.items() if value}


def write(profile: ProfileFigures, path: str | os.PathLike[str]) -> None:
    """Write the trace, whole or not at all; ``ArtifactError`` if it cannot be written."""
    text = json.dumps(trace(profile), separators=(",", ":"))
    try:
        with whole_file(Path(path), durable=False) as file:
            file.write(text.encode())
    except OSError as error:
        raise ArtifactError(f"cannot write {path}", error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the path
        raise ArtifactError(f"cannot write {str(path)!r}", str(error)) from error
