"""The stand-in for tile registers, ``tile_registers.py``, for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def tiles() -> Iterator[Any]:
    """The module, which runs code for tile registers on any machine."""
    if sys.platform != "linux":
        pytest.skip("guard pages are made as Linux makes them")
    folders = [str(HERE), str(HERE.parents[1])]
    sys.path[:0] = folders
    try:
        yield import_module("tile_registers")
    finally:
        for folder in folders:
            sys.path.remove(folder)
