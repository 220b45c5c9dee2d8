"""Inputs from outside: how a broken one is made and read, and the files that they begin from."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from nestwright.ir.errors import NestwrightError

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
SEED_BYTES = 5000  # of a seed, at most

Make = Callable[[Random], bytes]
Read = Callable[[bytes], object]


@dataclass(frozen=True)
class Format:
    """``make`` draws a broken input, ``read`` takes it as a user's."""

    name: str
    make: Make
    read: Read

    def data(self, seed: int, number: int) -> bytes:
        """Return the input of a number."""
        return self.make(Random(f"{self.name} {seed} {number}"))

    def case(self, seed: int, number: int) -> str:
        """One input: ``read``, ``refused``, or what escaped."""
        return self.outcome(self.data(seed, number))

    def outcome(self, data: bytes) -> str:
        """Read an input and return "read" or "refused"; an unexpected exception is raised."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.read(data)
            except NestwrightError as error:
                return "refused" if error.what and str(error) else "BAD error without a message"
        return "read"


def corpus(pattern: str, many: int = 60) -> list[bytes]:
    """Small files of ours and of the corpus, if it is there, the same every time."""
    own = [*(ROOT / "examples").glob(pattern), *(Path(__file__).parent / "seeds").glob(pattern)]
    far = sorted(p for p in CORPUS.rglob(pattern) if p.stat().st_size <= SEED_BYTES)
    chosen = [*sorted(own), *far[:: max(1, len(far) // many)]]
    return [p.read_bytes() for p in chosen if p.stat().st_size <= SEED_BYTES]


def file_of_process(ending: str) -> Callable[[], Path]:
    """Return a file for each process: readers run in forked children, side by side."""
    folder = tempfile.TemporaryDirectory(prefix="nestwright-fuzz-")
    _held.append(folder)
    return lambda: Path(folder.name) / f"{os.getpid()}{ending}"


_held: list[tempfile.TemporaryDirectory[str]] = []
