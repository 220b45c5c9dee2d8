"""The disk cache of built models, keyed by a hash of everything that determines them.

The key covers the model, the frozen constants, the schedules, the target, the versions of the
packages that generate code and the compiler's own source. So no entry is ever out of date: any
change changes the key. An entry contains its key, too: one that was written for another model, or
that another user owns or may write to, is not used, with a warning; the model is built again and
replaces it. So is one that is damaged. ``NESTWRIGHT_CACHE`` names the folder, or is ``off``.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.archive import Archive
from ...ir.arrays import as_array, row_major
from ...ir.errors import ArtifactError, NestwrightError, NestwrightWarning
from ...ir.files import cache_folder, distrust_reason, open_own
from ...ir.library.registry import registered
from ...ir.target import Target
from ..plan.bundle import Bundle, from_archive, write
from ..targets.registry import assembler, codec
from ..targets.workers import cores
from .schedules import identity

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

    from ...schedule.language.trace import Trace

VARIABLE = "NESTWRIGHT_CACHE"
OFF = "off"
LARGEST = 1 << 33  # bytes that the folder may hold
LARGE = 1 << 24  # bytes of constants that are written while the caller goes on
CHUNK = 1 << 23  # bytes that are hashed at a time
FREE = 8  # an entry takes at most this part of what is free on the disk
ABANDONED = 3600  # seconds after which an unfinished file is nobody's
_GENERATORS = ("llvmlite", "numpy", "ml-dtypes")
_SUFFIX = ".nw"


def folder() -> Path | None:
    """Return the folder of the cache; None if it is off."""
    named = os.environ.get(VARIABLE, "")
    if named == OFF:
        return None
    return Path(named) if named else cache_folder() / "built"


def key(
    model: bytes,
    target: Target,
    schedules: Mapping[str, Trace],
    constants: Mapping[int | str, Any] | None,
    excess_precision: bool = True,
    weights: str | None = None,
    fallback: str | None = None,
) -> str:
    """Return the cache key of a build; ``model`` is a digest of the model's own bytes."""
    digest = sha256(model)
    facts: dict[str, Any] = {
        "compiler": _compiler(),
        "target": asdict(target) | {"features": sorted(target.features)},
        "assembler": assembler(target),
        "schedules": identity(schedules),
        "excess_precision": excess_precision,
        "weights": weights,
        "fallback": fallback,
        "functions": registered(),  # a registered custom call is not expanded, nor refused
    }
    digest.update(json.dumps(facts, sort_keys=True).encode())
    _hash_constants(digest, constants or {})
    return digest.hexdigest()


def _hash_constants(digest: Hash, constants: Mapping[int | str, Any]) -> None:
    """Add the constants, each hashed in chunks, by all cores where there is much to hash."""
    chunks: list[memoryview] = []
    for name, value in sorted(constants.items(), key=lambda item: repr(item[0])):
        array = row_major(as_array(value, f"constant {name!r}"))
        digest.update(f"{name!r} {array.dtype} {array.shape}".encode())
        data = array.reshape(-1).view(np.uint8).data
        chunks += [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    if sum(map(len, chunks)) < LARGE:
        for chunk in chunks:
            digest.update(chunk)
        return
    with ThreadPoolExecutor(cores()) as pool:
        for found in pool.map(lambda chunk: sha256(chunk).digest(), chunks):
            digest.update(found)


def get(name: str) -> Bundle | None:
    """Return the cached model of a key, or None; warns about an entry that must not be used."""
    place = _path(name, warns=True)
    if place is not None and (writing := _writing.get(str(place))) is not None:
        writing.join()
    if place is None or not os.path.lexists(place):
        return None
    try:
        with os.fdopen(open_own(place), "rb") as file:
            bundle, kept_for = from_archive(
                Archive(file, str(place), "built model"), codec, mapped=True
            )
            if kept_for != name:
                _warn_unused(place, "it was stored for another model")
                return None
            with suppress(OSError):
                os.utime(place, follow_symlinks=False)  # the least recently used go first
            return bundle
    except PermissionError as error:
        _warn_unused(place, error.strerror)
    except NestwrightError:
        with suppress(OSError):
            place.unlink()
    except (OSError, MemoryError):
        pass  # it was dropped meanwhile, or is too large
    return None


def put(name: str, bundle: Bundle) -> None:
    """Cache a model. Where that is impossible, or it is too large, nothing happens.

    Large ones are written by a thread, which the interpreter waits for at its end.
    """
    where = folder()
    if where is None or bundle.constants.nbytes > LARGEST // 4:
        return
    with suppress(OSError, ArtifactError):
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (place := _path(name)) is None:  # the look-up has warned
            return
        if bundle.constants.nbytes < LARGE:
            _write(bundle, place, name)
            return
        if bundle.constants.nbytes > shutil.disk_usage(where).free // FREE:
            return
        thread = Thread(target=_write, args=(bundle, place, name))
        thread.start()
        _writing[str(place)] = thread


_writing: dict[str, Thread] = {}


def _write(bundle: Bundle, place: Path, name: str) -> None:
    with suppress(OSError, ArtifactError):
        write(bundle, place, durable=False, key=name)
        if name.startswith("0"):  # now and then
            _prune(place.parent)
    _writing.pop(str(place), None)


def _path(name: str, warns: bool = False) -> Path | None:
    """Return the path of an entry; None where others own the folder or may write to it."""
    where = folder()
    if where is None:
        return None
    try:
        why = distrust_reason(os.stat(where))
    except OSError:
        return where / f"{name}{_SUFFIX}"  # there is none yet
    if why:
        if warns:
            _warn_unused(where, why)
        return None
    return where / f"{name}{_SUFFIX}"


def _warn_unused(place: Path, why: str | None) -> None:
    text = f"cached model {place} is not used: {why}"
    if place.suffix != _SUFFIX:
        text = f"cache folder {place} is not used: {why}; {VARIABLE} names another, or says {OFF}"
    warnings.warn(text, NestwrightWarning, stacklevel=2)


def _prune(where: Path) -> None:
    """Drop the least recently used entries until at most ``LARGEST`` bytes are left, and unfinished
    files.
    """
    found = []
    for place in where.iterdir():
        with suppress(FileNotFoundError):
            found.append((place.lstat(), place))
    unfinished = [(s, p) for s, p in found if p.name.startswith(".")]
    for stat, place in unfinished:
        if stat.st_mtime < time.time() - ABANDONED:
            place.unlink(missing_ok=True)
    models = [(s, p) for s, p in found if p.suffix == _SUFFIX and (s, p) not in unfinished]
    total = sum(s.st_size for s, _ in models)
    for stat, place in sorted(models, key=lambda item: item[0].st_mtime):
        if total <= LARGEST:
            return
        place.unlink(missing_ok=True)
        total -= stat.st_size


@cache
def _compiler() -> str:
    """Return a digest of this compiler: its files by size and date, and the packages that shape its
    code.
    """
    digest = sha256()
    for path, stat in _sources(Path(__file__).parents[2]):
        digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    for package in _GENERATORS:
        with suppress(PackageNotFoundError):
            digest.update(f"{package} {version(package)}\n".encode())
    return digest.hexdigest()


_FLOORS = ("ir", "te", "schedule", "codegen")  # what takes part in a build
_ENDINGS = (".py", ".ll")


def _sources(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    for floor in _FLOORS:
        for folder_, _, files in sorted(os.walk(root / floor)):
            for file in sorted(f for f in files if f.endswith(_ENDINGS)):
                path = os.path.join(folder_, file)
                yield os.path.relpath(path, root), os.stat(path)
