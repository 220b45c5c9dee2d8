"""The tuning log as a file: reading, crash-safe appending, merging, checking.

Appending a line is atomic for readers: a partial last line is ignored when reading and cut off
before the next append. Writers take turns with a lock file beside the log, which the system
releases when its holder dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import BinaryIO, TypeAlias, TypeVar

from ...ir.errors import LogError
from ...ir.files import open_lock, whole_file
from .contents import Log, name_of, winning
from .encoding import (
    MAX_LINE,
    BadLine,
    UnknownVersion,
    decode,
    encode,
    fields_of,
    identify,
    is_unchanged,
    record_of,
)
from .records import Best, Header, Model, Record, Trial, Verdict

PathLike: TypeAlias = str | os.PathLike[str]

SYNC_EVERY = 2.0  # seconds between forced writes; kill -9 loses nothing even without them


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, bytes with the line feed if present); over-long lines are truncated."""
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
                f"no tuning log in {str(place)!r}",
                "the folder has no .jsonl file",
                hint="`nestwright tune` writes to tuning_logs/<target>/<model>.jsonl",
            )
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
                "cannot use the log",
                str(e),
                f"{path}:{number}",
                "it was written by another version of nestwright; use that one, or start a new log",
            ) from None
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
        raise _not_a_log(path, "none of its lines is a record")


def _begins(line: bytes) -> bool:
    """True if a line could be a prefix of a log's first line, or begins like one."""
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
    """Appends records to a log, as a context manager; several processes may write concurrently."""

    def __init__(self, path: PathLike, tool: dict[str, str] | None = None) -> None:
        self.path = Path(path)
        self._synced = 0.0
        self._fd = self._lock = -1
        self._turn = Lock()  # this object's threads share the locked file
        try:
            self._guarded(self._open, tool or {})
        except BaseException:
            self.close()
            raise

    def _open(self, tool: dict[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._tool = tool
        self._lock = open_lock(f"{self.path}.lock")
        with self._locked():
            self._open_file()

    def _open_file(self) -> None:
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if os.fstat(self._fd).st_size:
            self._refuse_foreign()
            self._mend()
        if not os.fstat(self._fd).st_size:
            self._write(encode(Header(self._tool, time.time())))

    def _follow(self) -> None:
        """Open the file that is at the path now, if ``merge`` or somebody else has replaced it."""
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except FileNotFoundError:
            same = False
        if not same:
            os.close(self._fd)
            self._fd = -1
            self._open_file()

    def _refuse_foreign(self) -> None:
        """Raise ``LogError`` if the file is not a log, whose last line must not be cut."""
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
        """Cut off a partial last line, or complete it if only its line feed is missing."""
        size = os.fstat(self._fd).st_size
        with open(self.path, "rb") as file:
            file.seek(max(0, size - 1))
            if file.read(1) in (b"", b"\n"):
                return
            file.seek(max(0, size - MAX_LINE - 1))
            tail = file.read().rpartition(b"\n")[2]
        try:
            decode(tail)
        except BadLine:
            os.ftruncate(self._fd, size - len(tail))
        else:
            os.write(self._fd, b"\n")

    def append(self, *records: Record) -> None:
        """Append records; on ``LogError`` the log is unchanged."""
        for record in records:
            self._guarded(self._append, encode(record), isinstance(record, Best | Verdict))

    def _append(self, line: str, sync: bool) -> None:
        with self._locked():
            self._follow()
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
            with suppress(OSError):  # a device cannot be truncated
                os.ftruncate(self._fd, before)
            raise

    def _guarded(self, action: Callable[..., None], *args: object) -> None:
        try:
            action(*args)
        except ValueError as e:  # a NUL in the path
            raise LogError("cannot write the log", str(e), repr(str(self.path))) from None
        except OSError as e:
            full = e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            hint = "free some space and run the same command again: it resumes where it stopped"
            raise LogError(
                "cannot write the log", e.strerror or str(e), str(self.path), hint if full else ""
            ) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of all writers; the system releases it if this process dies."""
        with self._turn:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Sync the log to disk and close the files."""
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
    """Return the record with its id, as it is read back."""
    return replace(record, id=identify(record))


def merge(paths: Sequence[PathLike], out: PathLike, winners: bool = False) -> tuple[int, int]:
    """Concatenate logs without duplicate records; return (records kept, records dropped).

    A folder means all logs in it. Lines are copied unchanged, including fields that this version
    does not know. With ``winners`` only what builds need is kept. The result is written to a
    temporary file and renamed, so ``out`` may be one of ``paths``, even while it is appended to.
    """
    if not os.path.isfile(out):
        return _merge(paths, out, winners)
    try:
        lock = open_lock(f"{os.fspath(out)}.lock")
    except OSError as e:
        raise LogError("cannot write the merged log", e.strerror or str(e), str(out)) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _merge(paths, out, winners)
    finally:
        os.close(lock)


def _merge(paths: Sequence[PathLike], out: PathLike, winners: bool) -> tuple[int, int]:
    log = read(*paths)  # refuses unknown versions and unreadable files before anything is written
    wanted = {name_of(r) for r in winning(log)} | {"header"} if winners else None
    seen: set[str] = set()
    kept = dropped = 0
    try:
        with whole_file(out) as target:
            for name, line in _named_lines(paths):
                if name in seen or (wanted and name not in wanted):
                    dropped += 1
                    continue
                seen.add(name)
                kept += name != "header"
                target.write(line.rstrip(b"\r\n") + b"\n")
    except OSError as e:
        raise LogError("cannot write the merged log", e.strerror or str(e), str(out)) from None
    return kept, dropped


def _named_lines(paths: Sequence[PathLike]) -> Iterator[tuple[str, bytes]]:
    """Yield the records of logs, in order, each with the key by which duplicates are found."""
    for path in log_files(*paths):
        with path.open("rb") as file:
            for _, line in _lines(file):
                if (name := _identity(line)) is not None:
                    yield name, line


def _identity(line: bytes) -> str | None:
    """Return the key by which duplicate lines are found; None for lines that are not records, and
    for changed ones, whose id may be that of a good one.
    """
    try:
        fields = fields_of(line.rstrip(b"\r\n"))
        record = record_of(fields)
    except BadLine:
        return None
    if record is not None and not is_unchanged(fields):
        return None
    match record:
        case None:
            return line.strip().decode(errors="replace")
        case Header():
            return "header"
        case _:
            return name_of(record)


def check(path: PathLike) -> list[str]:
    """Return the problems of a log: malformed lines and inconsistent records."""
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
    """Return the references of a verdict that are missing from the log."""
    trials = {t.id for t in log.trials} | {b.trial for b in log.bests}
    found = [
        f"trial {pick} is not in the log" for _, pick in v.picks if pick and pick not in trials
    ]
    if v.model not in {m.id for m in log.models}:
        found.append(f"model {v.model} is not in the log")
    return found
