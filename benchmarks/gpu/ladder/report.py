"""The report of a climb: a line for each rung, ladder.json and ladder.log."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .outcome import ABSENT, FAILED, OK, SKIPPED, Outcome

STATUS_OK, STATUS_FAILED, STATUS_ABSENT = 0, 1, 2


@dataclass
class Report:
    """The rungs so far. ``facts`` are those of the climb as a whole."""

    folder: Path
    facts: dict[str, Any]
    begun: float = field(default_factory=time.perf_counter)
    outcomes: list[Outcome] = field(default_factory=list)

    def begin(self) -> None:
        """Make the folder, with no rung in it yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "ladder.log").write_text("")
        self._write(None)

    def add(self, number: int, found: Outcome) -> None:
        """Print a rung's line and write everything down."""
        self.outcomes.append(found)
        line = found.line(number)
        print(line, flush=True)
        with (self.folder / "ladder.log").open("a", errors="replace") as file:
            body = found.log.rstrip("\n")
            file.write(f"== {line}\n{body}\n" if body else f"== {line}\n")
        self._write(None)

    def end(self, interrupted: str = "") -> int:
        """Print the sum of it all; the exit status."""
        states = [found.state for found in self.outcomes]
        if interrupted:
            self.facts["interrupted"] = interrupted
        if ABSENT in states:
            status = STATUS_ABSENT
        else:
            status = STATUS_FAILED if interrupted or FAILED in states else STATUS_OK
        counts = ", ".join(f"{states.count(s)} {s}" for s in (OK, FAILED, SKIPPED) if s in states)
        if status == STATUS_ABSENT:
            why = next(f.cause for f in self.outcomes if f.state == ABSENT)
            print(f"gpu/ladder: there is no GPU to climb on: {why}", file=sys.stderr)
        else:
            seconds = time.perf_counter() - self.begun
            print(f"{counts or 'nothing was run'} in {seconds:.0f} s; see {self.folder}")
        if interrupted:
            print(f"gpu/ladder: ended by {interrupted}", file=sys.stderr)
        self._write(status)
        return status

    def _write(self, status: int | None) -> None:
        from nestwright.ir.files import whole_file

        whole = {
            **self.facts,
            "seconds": time.perf_counter() - self.begun,
            "status": status,
            "rungs": [found.to_json() for found in self.outcomes],
        }
        with whole_file(self.folder / "ladder.json") as file:
            file.write(json.dumps(whole, indent=1, default=str).encode())
