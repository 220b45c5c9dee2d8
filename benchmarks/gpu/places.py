"""Places that what runs on a GPU reads from: the kit, and the folders of small models."""

from __future__ import annotations

import os
from pathlib import Path

from checkout import ROOT

NAME = ".kit"  # in the checkout's root; git ignores it
VARIABLE = "NESTWRIGHT_GPU_KIT"


def kit() -> Path:
    """Return the kit's folder: the variable's, else the one in the checkout; it need not exist."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else ROOT / NAME


def case_folders() -> tuple[Path, ...]:
    """Return the folders of small models: examples, and the kit's corpus or else the shared one."""
    packed = kit() / "corpus"
    return (ROOT / "examples", packed if packed.is_dir() else corpus())


def corpus() -> Path:
    """Return the models beside the checkout; they need not be there."""
    return ROOT.parent / "shared" / "corpus" / "models"
