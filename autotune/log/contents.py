"""The contents of tuning logs: records in file order, the winners among them, statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...codegen.driver.schedules import Schedules, fitting
from ...ir.library.functions import has as has_function
from ...ir.target import Target
from ...schedule.errors import ScheduleError
from ...schedule.language.trace import Trace
from .encoding import identify
from .records import (
    DEFAULT_SKETCH,
    LIBRARY_SKETCH,
    Best,
    DeviceRecord,
    Header,
    Json,
    Model,
    Record,
    Trial,
    Verdict,
    Workload,
    clearly_faster,
    device_id,
    estimates_id,
)
from .units import counted


@dataclass(slots=True)
class Log:
    """The records of one or more log files, in file order. ``problems`` are skipped lines."""

    paths: tuple[Path, ...]
    workloads: dict[str, Workload] = field(default_factory=dict)
    devices: dict[str, DeviceRecord] = field(default_factory=dict)
    models: list[Model] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    bests: list[Best] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def add(self, record: Record) -> bool:
        """Add a record; return False if it is a duplicate."""
        if isinstance(record, Header):
            return False
        key = name_of(record)
        if key in self.seen:
            return False
        self.seen.add(key)
        match record:
            case Workload():
                self.workloads[record.id] = record
            case DeviceRecord():
                self.devices[record.id] = record
            case Model():
                self.models.append(record)
            case Trial():
                self.trials.append(record)
            case Best():
                self.bests.append(record)
            case Verdict():
                self.verdicts.append(record)
        return True

    def trials_of(self, workload: str, device: str) -> list[Trial]:
        """Return the trials of one workload on one device."""
        return [t for t in self.trials if t.workload == workload and t.device == device]

    def winners(self, target: Target, keys: Collection[str] | None = None) -> dict[str, Best]:
        """Return the winner of each workload for a target, or for a model with workloads ``keys``.

        If a workload was tuned only with another number of threads, that winner is used; if it was
        never measured, the best by estimate. Winners that do not make the whole model faster are
        left out: their workloads get the default schedule.
        """
        found = self.best(estimates_id(target))
        for device in self._measured(target):
            found |= self.best(device)
        if keys is None:
            return found
        picks: Mapping[str, Best | None] = fitting(self.composed(target), keys)
        chosen = {**found, **picks}
        return {w: b for w, b in chosen.items() if b is not None and w in keys}

    def trace(self, best: Best) -> Trace:
        """Return a winner's schedule; ``ScheduleError`` if it cannot be read."""
        known = self.devices.get(best.device)
        accuracy = 0.0 if known is None else known.accuracy
        return Trace.from_json(best.trace, best.trial, accuracy)

    def composed(self, target: Target) -> list[dict[str, Best | None]]:
        """Return the winners of races of whole models for a target, by workload, oldest first.

        None is the default schedule. A race with another number of threads counts if none of its
        workloads was tuned with the target's. A verdict that refers to missing trials is left out.
        """
        own = self.best(device_id(target))
        schedules = {b.trial: b for b in self.bests} | {
            t.id: best_trial([t]) for t in self.trials if t.ran
        }
        kept = {n: b if _usable(b) else own.get(b.workload) for n, b in schedules.items()}
        found = []
        for device in self._measured(target):
            for v in sorted(self.verdicts, key=lambda v: v.ts):
                keys, picks = {w for w, _ in v.picks}, [pick for _, pick in v.picks if pick]
                serves = device == device_id(target) or not keys & own.keys()
                if v.device == device and serves and all(pick in kept for pick in picks):
                    found.append({w: kept[pick] if pick else None for w, pick in v.picks})
        return found

    def _measured(self, target: Target) -> list[str]:
        """Return the devices on which the target was tuned, the one with its threads last.

        Schedules of an accuracy serve looser ones, too, and come before these.
        """
        allowed = {target.accuracy} | {
            a for d in self.devices.values() if 0 <= (a := d.accuracy) <= target.accuracy
        }
        found: list[str] = []
        for accuracy in sorted(allowed):
            machine = replace(target, accuracy=accuracy)
            exact = device_id(machine)
            others = {d for d in self.devices if d.rpartition("-t")[0] == machine.key} - {exact}
            found += [*sorted(others), exact]
        return found

    def best(self, device: str) -> dict[str, Best]:
        """Return each workload's winner on a device: of its latest race, else of its trials."""
        winners: dict[str, Best] = {}
        for b in self.bests:
            latest = b.workload not in winners or b.ts >= winners[b.workload].ts
            if b.device == device and latest and _usable(b):
                winners[b.workload] = b
        fallback: dict[str, list[Trial]] = {}
        for t in self.trials:
            if t.device == device and t.ran and _usable(t) and t.workload not in winners:
                fallback.setdefault(t.workload, []).append(t)
        return winners | {w: best_trial(ts) for w, ts in fallback.items()}


def name_of(record: Record) -> str:
    """Return the kind and the id of a record, by which repeated ones are found."""
    return f"{type(record).__name__}:{getattr(record, 'id', '') or identify(record)}"


def schedules_of(log: Log, target: Target) -> tuple[Schedules, list[str]]:
    """Return a log's schedules for a target, and the workloads whose trace cannot be read."""
    broken: list[str] = []

    def trace(best: Best) -> Trace | None:
        try:
            return log.trace(best)
        except ScheduleError:
            broken.append(best.workload)
            return None

    found = {key: trace(b) for key, b in log.winners(target).items()}
    groups = {key: made for key, made in found.items() if made is not None}
    models = [
        {w: None if b is None else trace(b) for w, b in picks.items()}
        for picks in log.composed(target)
    ]
    return Schedules(groups, models), [*dict.fromkeys(broken)]


def _usable(record: Best | Trial) -> bool:
    """False for a library function that is not registered in this process."""
    return record.sketch != LIBRARY_SKETCH or has_function(str(record.decisions.get("library")))


def absent_functions(log: Log) -> list[str]:
    """Return the names of library functions that won, but are not registered in this process."""
    return sorted({str(b.decisions.get("library")) for b in log.bests if not _usable(b)})


def winning(log: Log) -> list[Workload | DeviceRecord | Model | Trial | Best | Verdict]:
    """Return the records of a log that builds need: winners that are not defaults, and verdicts.

    Builds with these records are the same as with the log, and so are seeds. Of the verdicts on a
    model and device the latest is kept.
    """
    verdicts = {(v.model, v.device): v for v in sorted(log.verdicts, key=lambda v: v.ts)}
    picked = {pick for v in verdicts.values() for _, pick in v.picks}
    found = [b for d in log.devices for b in log.best(d).values()]
    wanted = picked | {b.trial for b in found if b.sketch != DEFAULT_SKETCH}
    works = {r.workload for r in (*found, *log.bests) if r.trial in wanted}
    works |= {t.workload for t in log.trials if t.id in wanted}
    wanted |= {b.trial for b in found if b.workload in works}
    latest = {b.trial: b for b in sorted(log.bests, key=lambda b: b.ts)}
    bests = [b for b in latest.values() if b.trial in wanted]
    trials = [t for t in log.trials if t.id in wanted - latest.keys()]
    kept: list[Trial | Best | Verdict] = [*trials, *bests, *verdicts.values()]
    devices = {r.device for r in kept}
    models = {m for m, _ in verdicts}
    return [
        *(d for d in log.devices.values() if d.id in devices),
        *(m for m in log.models if m.id in models),
        *(w for w in log.workloads.values() if w.id in works),
        *kept,
    ]


def best_trial(trials: Sequence[Trial]) -> Best:
    """Return the fastest of some trials that ran, or the default if none is clearly faster."""
    fastest = min(trials, key=lambda t: t.cost)
    default = next((t for t in trials if t.sketch == DEFAULT_SKETCH), fastest)
    winner = fastest if clearly_faster(fastest.cost, default.cost) else default
    return Best(
        workload=winner.workload,
        device=winner.device,
        trial=winner.id,
        sketch=winner.sketch,
        decisions=winner.decisions,
        trace=winner.trace or [],
        runs=winner.runs,
        default_runs=default.runs,
        error=0.0,
        ts=winner.ts,
    )


def stats(log: Log) -> dict[str, Json]:
    """Return statistics of a log: trials by status and source, the speed-up of each winner."""
    statuses = Counter(t.status for t in log.trials)
    sources = Counter(t.source for t in log.trials)
    gains: dict[str, Json] = {
        f"{w[:16]} {d}": b.default_seconds / b.seconds
        for d in log.devices
        for w, b in log.best(d).items()
    }
    return {
        "trials": len(log.trials),
        "status": dict(statuses),
        "source": dict(sources),
        "workloads": len(log.workloads),
        "devices": [*sorted(log.devices)],
        "models": [*sorted({m.name for m in log.models})],
        "races": len(log.bests),
        "verdicts": len(log.verdicts),
        "speedup": gains,
    }


def describe(log: Log) -> str:
    """Describe the contents of a log in one line."""
    models = sorted({f"{m.name} for {m.device}" for m in log.models})
    held = ", ".join(models[:6]) or "no model"
    more = f" and {len(models) - 6} more" if len(models) > 6 else ""
    trials, works = counted(len(log.trials), "trial"), counted(len(log.workloads), "workload")
    failed = ", which all failed" if log.trials and not any(t.ran for t in log.trials) else ""
    return f"{trials} of {works}{failed}; {held}{more}"
