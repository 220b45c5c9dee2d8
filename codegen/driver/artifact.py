"""Saved executables: ``load`` reads a file that ``Executable.save`` wrote, and compiles nothing."""

from __future__ import annotations

import os
from pathlib import Path

from ...ir.archive import opened
from ...ir.errors import ArtifactError
from ..plan.bundle import read
from ..runtime.executable import Executable
from ..targets.registry import codec


def load(path: str | os.PathLike[str]) -> Executable:
    """Return the executable in a file. ``ArtifactError`` if it is damaged or of another machine."""
    if not isinstance(path, str | os.PathLike):
        raise ArtifactError(f"cannot load {path!r}", "it is not a path")
    return Executable(read(Path(path), codec))


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """True if this file is a saved executable (and not, say, HLO text)."""
    try:
        with opened(path) as archive:
            return "manifest.json" in archive
    except ArtifactError:
        return False
