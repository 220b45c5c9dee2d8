"""The ledger of the cache: the keys of the models that were built, so that a miss is explained.

A file of JSON lines beside the entries, the oldest of which go when it becomes large. What cannot
be read in it is ignored, and where it cannot be written a build goes on without.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...ir.files import distrust_reason, open_own, whole_file
from .build_key import MODEL, BuildKey, FieldChange
from .store import LARGEST, OFF, VARIABLE, folder, problem

FILE = "ledger.jsonl"
LONGEST = 1 << 22  # bytes; then the older half of the lines goes
VERSION = 1


@dataclass(frozen=True, slots=True)
class BuiltBefore:
    """A model that was built: its name, its key, and when (seconds since 1970)."""

    model: str
    key: BuildKey
    when: float


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    """The cache's answer for a model: if it has it, why not, or why it had to be built.

    ``changes`` are the fields in which its key differs from that of the nearest earlier build,
    which was at ``when`` (0: none is known). ``reason`` is never empty.
    """

    used: bool
    reason: str
    changes: tuple[FieldChange, ...] = ()
    when: float = 0.0


def record(key: BuildKey, model: str) -> None:
    """Note that a model was built for this key, if the cache is on and its folder is ours."""
    where = folder()
    if where is None:
        return
    row = {"v": VERSION, "model": model, "when": time.time(), "fields": dict(key.fields)}
    line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
    with suppress(OSError):
        if distrust_reason(os.stat(where)):
            return
        fd = open_own(where / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            os.write(fd, line)
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        if size > LONGEST:
            _shorten(where / FILE)


def _shorten(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    with whole_file(path, durable=False, private=True) as file:
        file.writelines(lines[len(lines) // 2 :])


def history() -> tuple[BuiltBefore, ...]:
    """Return the builds that are known, oldest first; nothing of a file that is not ours."""
    where = folder()
    if where is None:
        return ()
    try:
        with os.fdopen(open_own(where / FILE), "rb") as file:
            return tuple(_read(file.read().splitlines()))
    except OSError:
        return ()


def _read(lines: list[bytes]) -> Iterator[BuiltBefore]:
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        match row:
            case {"v": 1, "model": str(model), "when": float(when), "fields": dict(fields)}:
                if all(isinstance(text, str) for text in fields.values()):
                    yield BuiltBefore(model, BuildKey(fields), when)


def ask(key: BuildKey, model: str) -> CacheAnswer:
    """Return whether the cache has the model of a key, and why it was or is to be built.

    ``model`` is its name, by which builds of other content are found to compare with.
    """
    where = folder()
    if where is None:
        return CacheAnswer(False, f"the cache is off: {VARIABLE}={OFF}")
    if why := _distrust(where):
        return CacheAnswer(False, f"the cache in {where} is not used: {why}")
    known = history()
    number = next((n for n, b in reversed([*enumerate(known)]) if b.key.name == key.name), None)
    nearest = _nearest(key, model, known if number is None else known[:number])
    changes = () if nearest is None else key.changes_from(nearest.key)
    when = 0.0 if nearest is None else nearest.when
    trouble = problem(key.name)
    if trouble is None:
        return CacheAnswer(True, "it is in the cache", changes, when)
    if trouble:
        return CacheAnswer(False, trouble, changes, when)
    if number is not None:
        kept = f"at most {LARGEST >> 30} GiB are kept, the least recently used go first"
        return CacheAnswer(False, f"it was built, but its entry is gone: {kept}", changes, when)
    if nearest is None:
        return CacheAnswer(False, f"no build of {model} is known to the cache in {where}")
    return CacheAnswer(False, "it was built before with another key", changes, when)


def _distrust(where: Path) -> str:
    try:
        return distrust_reason(os.stat(where))
    except OSError:
        return ""  # there is none yet


def _nearest(key: BuildKey, model: str, known: tuple[BuiltBefore, ...]) -> BuiltBefore | None:
    """The build of the same model, by name or content, with the fewest changes, then the latest."""
    same = [
        b
        for b in known
        if b.key.name != key.name
        and (b.model == model or b.key.fields.get(MODEL) == key.fields.get(MODEL))
    ]
    return min(same, key=lambda b: (len(key.changes_from(b.key)), -b.when), default=None)
