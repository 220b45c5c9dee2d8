"""A folder of files that is written as a whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...ir.errors import ArtifactError
from .elf import Data

MARK = "nestwright.json"  # by which a folder is known as one of ours


def write_folder(folder: Path, files: Mapping[str, Sequence[Data]]) -> None:
    """Write files, by path, to a folder beside the one that is wanted, and rename it.

    An empty folder is replaced, and one that was written by this function. ``ArtifactError`` for
    another one, and if the files cannot be written.
    """
    try:
        place = Path(os.path.realpath(folder))
        _require_ours(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{place.name[:64]}.", dir=place.parent))
        try:
            _fill(made, files)
            _take_the_place(made, place)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ArtifactError(f"cannot write {str(folder)!r}", why) from error


def _require_ours(place: Path) -> None:
    if place.is_dir() and any(place.iterdir()) and not (place / MARK).is_file():
        raise ArtifactError(
            f"cannot write {str(place)!r}",
            "the folder has other files in it",
            hint="name a folder that does not exist yet",
        )
    if place.exists() and not place.is_dir():
        raise ArtifactError(f"cannot write {str(place)!r}", "it is not a folder")


def _fill(made: Path, files: Mapping[str, Sequence[Data]]) -> None:
    for path, pieces in files.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        with (made / path).open("wb") as file:
            for piece in pieces:
                file.write(piece)
    os.chmod(made, 0o755)


def _take_the_place(made: Path, place: Path) -> None:
    """Rename a folder; one that is in its place goes away, but not before the new one is whole."""
    old = made.with_name(f"{made.name}.old")
    if place.exists():
        place.rename(old)
    try:
        made.rename(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)
