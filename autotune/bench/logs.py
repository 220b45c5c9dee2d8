"""The logs of a sweep: read once each, named, hashed, and what is odd about them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from ...ir.errors import NestwrightError
from ...ir.target import Target
from ..log.automatic import automatic_log, with_related
from ..log.best import AUTO
from ..log.contents import Log
from ..log.journal import read
from ..log.records import device_id
from ..log.units import counted
from ..tuner.session import default_log
from .data import LogBench
from .facts import without_folders

LogLike: TypeAlias = str | os.PathLike[str]


@dataclass(slots=True)
class BenchLogs:
    """The logs that were read so far, by path; ``facts`` by name."""

    facts: dict[str, LogBench] = field(default_factory=dict)
    _read: dict[str, tuple[str, Log]] = field(default_factory=dict)

    def find(self, asked: LogLike | None, model: str, target: Target) -> tuple[str, Log]:
        """Return the name and contents of the log for a model; an empty name for none.

        Without one that is ``asked`` for it is the model's default log, if there is one.
        ``LogError`` for a log that cannot be read.
        """
        place = Path(asked) if asked is not None else default_log(model, target)
        if asked is None and not place.exists():
            return "", Log(())
        if asked == AUTO:
            return AUTO, with_related(automatic_log(), target)[0]
        return self._known(place)

    def unread(self, asked: LogLike | None) -> str:
        """Return why a log that is asked for cannot be read; "" if it is, or none is."""
        if asked is None or asked == AUTO:
            return ""
        try:
            self._known(Path(asked))
        except NestwrightError as e:
            return without_folders(str(e), [Path(asked)])
        return ""

    def _known(self, place: Path) -> tuple[str, Log]:
        if (known := self._read.get(str(place))) is None:
            known = self._read[str(place)] = self._new(place, read(place))
        return known

    def _new(self, place: Path, log: Log) -> tuple[str, Log]:
        name, number = place.name, 1
        while name in self.facts:
            number += 1
            name = f"{place.name} ({number})"
        self.facts[name] = _facts(name, log)
        return name, log

    @property
    def warnings(self) -> Iterable[str]:
        """The oddities of the logs: lines that were skipped, trials of several machines."""
        for log in self.facts.values():
            if log.problems:
                skipped = counted(len(log.problems), "line")
                yield f"{skipped} of {log.name} skipped, the first: {log.problems[0]}"
            machines = sorted({d.rpartition("-t")[0] or d for d in log.devices})
            if len(machines) > 1:
                yield (
                    f"{log.name} mixes {len(machines)} machines ({', '.join(machines)}): "
                    "trials of others than the target are not shown"
                )


def _facts(name: str, log: Log) -> LogBench:
    """Return the hash of a log's files, its trials, and its problems without folders."""
    digest = sha256()
    for path in log.paths:
        digest.update(path.read_bytes())
    problems = (without_folders(p, log.paths) for p in log.problems)
    devices = tuple(sorted({t.device for t in log.trials}))
    return LogBench(name, digest.hexdigest(), len(log.trials), tuple(problems), devices)


def unused(name: str, log: Log, target: Target) -> str:
    """Return why a log that is there has no schedule for a model on a target."""
    devices = {t.device for t in log.trials} | {b.device for b in log.bests}
    if not devices:
        return f"{name} has no trial"
    if not log.bests and not any(t.ran for t in log.trials):
        return f"{name} has {counted(len(log.trials), 'trial')}, which all failed"
    here = device_id(target)
    if here in devices:
        return f"{name} has trials of this target, but of none of this model's groups"
    some = ", ".join(sorted(devices)[:3])
    return f"{name} has trials of {some}, and none of {here}"
