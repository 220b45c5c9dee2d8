"""Calibrations as files: one per machine, number of threads and version, as JSON text.

A file contains its full key and is used only for that, if it belongs to this user and nobody else
may write to it, and if its figures do not contradict each other. ``NESTWRIGHT_CALIBRATION`` names
the folder, or is ``off``: then nothing is measured or kept, and the rows of ``ir/cores.py`` hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...ir.files import OFF as OFF
from ...ir.files import named_folder, open_own, whole_file
from ...ir.target import Target
from ..log.records import Json
from .readings import Calibration, Name, contradiction

VARIABLE = "NESTWRIGHT_CALIBRATION"
FORMAT = 1
LONGEST = 1 << 16  # bytes of a file


def folder() -> Path | None:
    """Return the folder of calibrations; None if there are to be none."""
    return named_folder(VARIABLE, "calibration")


def key(target: Target) -> dict[str, Json]:
    """Return what a calibration depends on: the machine, the threads, our version."""
    core = target.core
    caches: list[Json] = [f"{c.size}/{c.ways}/{c.line}" for c in (core.l1, core.l2, core.l3)]
    return {
        "processor": _processor(),
        "target": _machine(target),
        "cores": target.cores,
        "threads": target.threads,
        "caches": caches,
        "version": _version(),
    }


def _machine(target: Target) -> str:
    """Return the name of the machine, whatever error its schedules may add."""
    return replace(target, accuracy=0.0).key


def path(target: Target) -> Path | None:
    """Return the file of this machine's calibration; None if there are to be none."""
    where = folder()
    if where is None:
        return None
    digest = hashlib.sha256(json.dumps(key(target), sort_keys=True).encode()).hexdigest()
    return where / f"{_machine(target)}-t{target.threads}-{digest[:12]}.json"


def save(found: Calibration, target: Target) -> Path | None:
    """Keep a calibration of this machine; return its file, or None if there are to be none."""
    place = path(target)
    if place is None:
        return None
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    rates = [
        {"what": w, "level": v, "threads": n, "rate": r} for (w, v, n), r in found.rates.items()
    ]
    text = json.dumps({"format": FORMAT, "key": key(target), "rates": rates}, indent=1)
    with whole_file(place, private=True) as file:
        file.write(text.encode() + b"\n")
    return place


def load(target: Target) -> Calibration | None:
    """Return the calibration that is known of this machine; None without a usable one."""
    place = path(target)
    if place is None:
        return None
    try:
        with os.fdopen(open_own(place), "rb") as file:
            known = json.loads(file.read(LONGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(known, dict) or (known.get("format"), known.get("key")) != (
        FORMAT,
        key(target),
    ):
        return None
    found = _rates(known.get("rates"))
    return None if found is None or contradiction(found, target) else found


def _rates(rows: Json) -> Calibration | None:
    """Return the rates of a file; None if a row is not one."""
    rates: dict[Name, float] = {}
    for row in rows if isinstance(rows, list) else [None]:
        match row:
            case {"what": str(what), "level": str(level), "threads": int(n), "rate": float(rate)}:
                rates[what, level, n] = rate
            case _:
                return None
    return Calibration(rates)


@cache
def _processor() -> str:
    """Return the processor's name, as Linux tells it, or the platform."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "CPU part"):
                return value.strip()
    return platform.processor() or platform.machine()


def _version() -> str:
    try:
        return version("nestwright")
    except PackageNotFoundError:  # a source tree that is not installed
        return ""
