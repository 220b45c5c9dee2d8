"""Saved executables: ``load`` reads a file that ``Executable.save`` wrote, and compiles nothing."""

from __future__ import annotations

import os

from ...ir.archive import opened
from ...ir.errors import ArtifactError
from ..plan.saved.read import TrustedKey, read
from ..runtime.executable import Executable
from ..targets.registry import codec


def load(path: str | os.PathLike[str], trusted: TrustedKey | None = None) -> Executable:
    """Return the executable in a file. ``ArtifactError`` if it is damaged or of another machine.

    Of a file for several processors it is the variant that fits this one best. Weights are mapped
    from the file: replace it, as ``save`` does, rather than write to it. With ``trusted``, a public
    key (the path or the bytes of a PEM), only a file that was signed with its private key is
    loaded.
    """
    if not isinstance(path, str | os.PathLike):
        raise ArtifactError(f"cannot load {path!r}", "it is not a path")
    return Executable(read(path, codec, trusted))


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """True if this file is a saved executable (and not, say, HLO text)."""
    try:
        with opened(path) as archive:
            return "manifest.json" in archive
    except ArtifactError:
        return False
