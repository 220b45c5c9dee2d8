"""The circumstances of a sweep: the machine, its load, the versions of what ran."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...ir.target import HERE, Target
from ..log.records import Json

PACKAGES = ("nestwright", "llvmlite", "numpy")


def machine_facts() -> dict[str, Json]:
    """Return the facts of this machine that decide figures; no host, user or path is named."""
    here = Target.parse(HERE)
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "model": _processor(),
        "cpu": here.cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else here.cores,
        "vector_bits": here.vector_bits,
        "l1": here.l1,
        "l2": here.l2,
        "l3": here.l3,
    }


def _processor() -> str:
    """Return the processor's name as its maker gives it; "" where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")


def load_now() -> float:
    """Return the one-minute load average; 0 where the system has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def versions(further: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of Python, of what makes our code, and of ``further`` packages."""
    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *further):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # a source tree that is not installed
            continue
    return found


def without_folders(text: str, files: Iterable[Path]) -> str:
    """Return a text that names these files, without their folders."""
    folders = {f"{folder}{os.sep}" for f in files for folder in (f.parent, f.absolute().parent)}
    for folder in sorted(folders - {f".{os.sep}"}, key=len, reverse=True):
        text = text.replace(folder, "")
    return text
