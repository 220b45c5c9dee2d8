"""The tuning log as a file: reading, appending that survives kill -9, best records, merging.

A line is written whole or not at all, as far as anyone can see: a partial last line is ignored when
reading and cut off before the next append. Writers take turns by a lock file beside the log, which
the system frees when its holder dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import BinaryIO, TypeAlias, TypeVar

from ...codegen.driver.schedules import Schedules, fitting
from ...ir.errors import LogError
from ...ir.files import open_lock, whole_file
from ...ir.target import Target
from ...schedule.errors import ScheduleError
from ...schedule.language.trace import Trace
from .records import (
    DEFAULT_SKETCH,
    MAX_LINE,
    BadLine,
    Best,
    DeviceRecord,
    Header,
    Json,
    Model,
    Record,
    Trial,
    UnknownVersion,
    Verdict,
    Workload,
    clearly_faster,
    decode,
    device_id,
    encode,
    estimates_id,
    fields_of,
    identify,
    is_unchanged,
    record_of,
)
from .units import counted

PathLike: TypeAlias = str | os.PathLike[str]

SYNC_EVERY = 2.0  # seconds between forced writes; kill -9 loses nothing even without them


@dataclass(slots=True)
class Log:
    """What one or more log files hold, in file order. ``problems`` are lines that were skipped."""

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
        """Take in a record; False when it was there already."""
        if isinstance(record, Header):
            return False
        key = f"{type(record).__name__}:{getattr(record, 'id', '') or identify(record)}"
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
        """The trials of one workload on one device."""
        return [t for t in self.trials if t.workload == workload and t.device == device]

    def winners(self, target: Target, keys: Collection[str] | None = None) -> dict[str, Best]:
        """The winner of each workload for a target, or for a model that has the workloads ``keys``.

        Where a workload was tuned only with another number of threads, that winner serves; where it
        was not measured at all, the best by estimate. Those that the model as a whole runs no
        faster with are left out: they get the default schedule.
        """
        found = self.best(estimates_id(target))
        for device in self._measured(target):
            found |= self.best(device)
        if keys is None:
            return found
        picks: Mapping[str, Best | None] = fitting(self.composed(target), keys)
        chosen = {**found, **picks}
        return {w: b for w, b in chosen.items() if b is not None and w in keys}

    def composed(self, target: Target) -> list[dict[str, Best | None]]:
        """What won the races of whole models for a target: a winner for each of a model's
        workloads, None for the default schedule. Oldest first.

        A race with another number of threads counts where none of its workloads was tuned with
        the target's. A verdict that picks what the log has lost is left out.
        """
        own = self.best(device_id(target)).keys()
        schedules = {b.trial: b for b in self.bests} | {
            t.id: best_trial([t]) for t in self.trials if t.ran
        }
        found = []
        for device in self._measured(target):
            for v in sorted(self.verdicts, key=lambda v: v.ts):
                keys, picks = {w for w, _ in v.picks}, [pick for _, pick in v.picks if pick]
                serves = device == device_id(target) or not keys & own
                if v.device == device and serves and all(pick in schedules for pick in picks):
                    found.append({w: schedules[pick] if pick else None for w, pick in v.picks})
        return found

    def _measured(self, target: Target) -> list[str]:
        """The devices on which the target was tuned, that with its number of threads last."""
        exact = device_id(target)
        others = {d for d in self.devices if d.rpartition("-t")[0] == target.key} - {exact}
        return [*sorted(others), exact]

    def best(self, device: str) -> dict[str, Best]:
        """The winner of each workload on a device: of the latest race, else of the plain trials."""
        winners: dict[str, Best] = {}
        for b in self.bests:
            if b.device == device and (b.workload not in winners or b.ts >= winners[b.workload].ts):
                winners[b.workload] = b
        fallback: dict[str, list[Trial]] = {}
        for t in self.trials:
            if t.device == device and t.ran and t.workload not in winners:
                fallback.setdefault(t.workload, []).append(t)
        return winners | {w: best_trial(ts) for w, ts in fallback.items()}


def schedules_of(log: Log, target: Target) -> tuple[Schedules, list[str]]:
    """What a log holds for building for a target, and the workloads whose schedule is none."""
    broken: list[str] = []

    def trace(best: Best) -> Trace | None:
        try:
            return Trace.from_json(best.trace)
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


def best_trial(trials: Sequence[Trial]) -> Best:
    """The fastest of some trials that ran; the default where nothing is clearly faster."""
    fastest = min(trials, key=lambda t: t.cost)
    default = next((t for t in trials if t.sketch == DEFAULT_SKETCH), fastest)
    winner = fastest if clearly_faster(fastest.cost, default.cost) else default
    return Best(
        winner.workload, winner.device, winner.id, winner.sketch, winner.decisions,
        winner.trace or [], winner.runs, default.runs, 0.0, winner.ts,
    )  # fmt: skip


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(line number, bytes with the line feed if there is one); over-long lines come cut short."""
    number = 0
    while line := file.readline(MAX_LINE + 2):
        number += 1
        yield number, line
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass


def log_files(*paths: PathLike) -> tuple[Path, ...]:
    """Return the log files at paths: of a folder, all ``.jsonl`` files in it and below, by name.

    ``LogError`` for what is not a path, and for a folder without a log.
    """
    found: list[Path] = []
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise LogError(f"cannot read {path!r}", "expected a path")
        place = Path(path)
        inside = sorted(place.rglob("*.jsonl")) if _is_folder(place) else [place]
        if not inside:
            raise LogError(
                f"no tuning log in {str(place)!r}", "the folder has no .jsonl file",
                hint="`nestwright tune` writes to tuning_logs/<target>/<model>.jsonl",
            )  # fmt: skip
        found += inside
    return tuple(found)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except ValueError:  # a NUL in the path, which reading reports
        return False


def read(*paths: PathLike) -> Log:
    """Return the records of logs, and of all logs in folders.

    ``LogError``: unreadable file, unknown version, a folder without logs.
    """
    log = Log(log_files(*paths))
    for path in log.paths:
        try:
            with path.open("rb") as file:
                _read_file(log, path, file)
        except ValueError as e:  # a NUL in the path
            raise LogError("cannot read the log", str(e), repr(str(path))) from None
        except OSError as e:
            raise LogError(
                "cannot read the log", e.strerror or str(e), str(path), _advice(path, e)
            ) from None
    return log


def _read_file(log: Log, path: Path, file: BinaryIO) -> None:
    known = 0
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            fields = fields_of(line.rstrip(b"\r\n"))
            record = record_of(fields)
        except UnknownVersion as e:
            raise LogError(
                "cannot use the log", str(e), f"{path}:{number}",
                "it was written by another version of nestwright; use that one, or start a new log",
            ) from None  # fmt: skip
        except BadLine as e:
            if not line.endswith(b"\n") and len(line) <= MAX_LINE and (known or _begins(line)):
                log.notes.append(f"{path}:{number}: unfinished last line ignored")
            else:
                log.problems.append(f"{path}:{number}: {e}")
            continue
        known += 1
        if record is not None and not is_unchanged(fields):
            told = f"record {fields.get('id')}: its content does not have that id"
            log.problems.append(f"{path}:{number}: {told}")
        elif record is not None and not isinstance(record, Header) and not log.add(record):
            log.notes.append(f"{path}:{number}: the same record again")
    if not known and log.problems:
        raise _not_a_log(path, "no line of it is a record")


def _begins(line: bytes) -> bool:
    """Could this be the start of a log's first line?"""
    head = b'{"k":"header"'
    return line.startswith(head) or head.startswith(line)


def _not_a_log(path: Path, why: str) -> LogError:
    hint = "a log is a .jsonl file that `nestwright tune` wrote"
    return LogError("not a tuning log", why, str(path), hint)


def _advice(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"`nestwright tune MODEL --log {path}` makes it"
    return ""


class LogWriter:
    """Appends records to a log. Use as a context manager; safe beside other writers."""

    def __init__(self, path: PathLike, tool: dict[str, str] | None = None) -> None:
        self.path = Path(path)
        self._synced = 0.0
        self._fd = self._lock = -1
        self._turn = Lock()  # of this object's threads, which share the locked file
        try:
            self._guarded(self._open, tool or {})
        except BaseException:
            self.close()
            raise

    def _open(self, tool: dict[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = open_lock(f"{self.path}.lock")
        with self._locked():
            self._fd = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
            if os.fstat(self._fd).st_size:
                self._refuse_foreign()
                self._mend()
            if not os.fstat(self._fd).st_size:
                self._write(encode(Header(tool, time.time())))

    def _refuse_foreign(self) -> None:
        """A file that is not a log must not lose its last line."""
        with open(self.path, "rb") as file:
            _, first = next(_lines(file))
        try:
            decode(first.rstrip(b"\r\n"))
        except UnknownVersion:
            read(self.path)  # says so
        except BadLine as e:
            if first.endswith(b"\n") or not _begins(first):
                raise _not_a_log(self.path, f"line 1: {e}") from None

    def _mend(self) -> None:
        """Cut off a partial last line, or finish it where only its line feed is missing."""
        size = os.fstat(self._fd).st_size
        with open(self.path, "rb") as file:
            file.seek(max(0, size - MAX_LINE - 1))
            tail = file.read().rpartition(b"\n")[2]
        if not tail:
            return
        try:
            decode(tail)
        except BadLine:
            os.ftruncate(self._fd, size - len(tail))
        else:
            os.write(self._fd, b"\n")

    def append(self, *records: Record) -> None:
        """Add records; a ``LogError`` leaves the log as it was before the call."""
        for record in records:
            self._guarded(self._append, encode(record), isinstance(record, Best | Verdict))

    def _append(self, line: str, sync: bool) -> None:
        with self._locked():
            self._mend()
            self._write(line)
        now = time.monotonic()
        if sync or now - self._synced > SYNC_EVERY:
            os.fsync(self._fd)
            self._synced = now

    def _write(self, line: str) -> None:
        data = line.encode() + b"\n"
        if len(data) > MAX_LINE:
            raise LogError("record too long for the log", f"{len(data)} bytes", str(self.path))
        before = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            with suppress(OSError):  # a device cannot be cut
                os.ftruncate(self._fd, before)
            raise

    def _guarded(self, action: Callable[..., None], *args: object) -> None:
        try:
            action(*args)
        except ValueError as e:  # a NUL in the path
            raise LogError("cannot write the log", str(e), repr(str(self.path))) from None
        except OSError as e:
            full = e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            hint = "free some space and run the same command again: it goes on where it stopped"
            raise LogError(
                "cannot write the log", e.strerror or str(e), str(self.path), hint if full else ""
            ) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among all writers; the system frees the lock of one that dies."""
        with self._turn:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Force what was written to the disk and let go of the files."""
        fd, self._fd = self._fd, -1
        lock, self._lock = self._lock, -1
        try:
            if fd >= 0:
                self._guarded(os.fsync, fd)
        finally:
            for opened in (fd, lock):
                if opened >= 0:
                    os.close(opened)

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Stamped = TypeVar("Stamped", Trial, Best, Model, Verdict)


def stamped(record: Stamped) -> Stamped:
    """The record with its id filled in, as it will be read back."""
    return replace(record, id=identify(record))


def merge(paths: Sequence[PathLike], out: PathLike) -> tuple[int, int]:
    """Concatenate logs without repeated records; returns (records kept, repeated ones dropped).

    A folder stands for all logs in it.

    Lines travel as they are, fields that this version does not know included. Written beside
    ``out`` and renamed, so ``out`` may be one of ``paths``.
    """
    read(*paths)  # refuses unknown versions and unreadable files before anything is written
    seen: set[str] = set()
    kept = dropped = 0
    try:
        with whole_file(out) as target:
            for path in log_files(*paths):
                with path.open("rb") as file:
                    for _, line in _lines(file):
                        name = _identity(line)
                        if name is None or name in seen:
                            dropped += name is not None
                            continue
                        seen.add(name)
                        kept += name != "header"
                        target.write(line.rstrip(b"\r\n") + b"\n")
    except OSError as e:
        raise LogError("cannot write the merged log", e.strerror or str(e), str(out)) from None
    return kept, dropped


def _identity(line: bytes) -> str | None:
    """What makes a line the same as another; None for lines that are no records."""
    try:
        record = decode(line.rstrip(b"\r\n"))
    except BadLine:
        return None
    match record:
        case None:
            return line.strip().decode(errors="replace")
        case Header():
            return "header"
        case _:
            return f"{type(record).__name__}:{record.id}"


def check(path: PathLike) -> list[str]:
    """What is wrong with a log: broken lines, and records that do not hang together."""
    log = read(path)
    found = list(log.problems)
    records: list[Trial | Best] = [*log.trials, *log.bests]
    for t in records:
        if t.workload not in log.workloads:
            found.append(f"{path}: record {t.id}: workload {t.workload[:16]} is not in the log")
        if t.device not in log.devices:
            found.append(f"{path}: record {t.id}: device {t.device} is not in the log")
    return found + [f"{path}: record {v.id}: {why}" for v in log.verdicts for why in _loose(log, v)]


def _loose(log: Log, v: Verdict) -> list[str]:
    """What a verdict refers to that the log does not hold."""
    trials = {t.id for t in log.trials} | {b.trial for b in log.bests}
    found = [
        f"trial {pick} is not in the log" for _, pick in v.picks if pick and pick not in trials
    ]
    if v.model not in {m.id for m in log.models}:
        found.append(f"model {v.model} is not in the log")
    return found


def stats(log: Log) -> dict[str, Json]:
    """Counts of a log: trials by status and source, and the speed-up of each winner."""
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
    """What a log holds, in one line for people."""
    models = sorted({f"{m.name} for {m.device}" for m in log.models})
    held = ", ".join(models[:6]) or "no model"
    more = f" and {len(models) - 6} more" if len(models) > 6 else ""
    trials, works = counted(len(log.trials), "trial"), counted(len(log.workloads), "workload")
    return f"{trials} of {works}; {held}{more}"
