"""The circumstances of a sweep: machine, versions, logs, and why to distrust its figures."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...ir.target import HERE, Target
from ..log.contents import Log
from ..log.records import Json
from .data import LogBench

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


def log_facts(name: str, log: Log) -> LogBench:
    """Return the facts of a log: the hash of its files' contents, and what was skipped in them.

    Problems name files without their folders.
    """
    digest = sha256()
    for path in log.paths:
        digest.update(path.read_bytes())
    folders = {f"{path.parent}{os.sep}" for path in log.paths}
    problems = [_without(folders, p) for p in log.problems]
    return LogBench(name, digest.hexdigest(), len(log.trials), tuple(problems))


def _without(folders: Iterable[str], text: str) -> str:
    for folder in sorted(folders, key=len, reverse=True):
        text = text.replace(folder, "")
    return text
