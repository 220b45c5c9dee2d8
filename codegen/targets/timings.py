"""Stage timings of a build: seconds by stage name, in a dict of the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

STAGES = (
    "cache",
    "parse",
    "optimize",
    "fuse",
    "te",
    "schedule",
    "lower",
    "emit",
    "llvm",
    "ptxas",
    "plan",
    "link",
)
"""The stages in the order in which ``--timings`` prints them."""


@contextmanager
def timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    """Add the time of the block to a stage."""
    start = perf_counter()
    try:
        yield
    finally:
        timings[stage] = timings.get(stage, 0.0) + perf_counter() - start
