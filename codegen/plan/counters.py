"""Counts of what this process has compiled; a program that compiles too often shows here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the process began: ``built`` models compiled, of ``kernels`` distinct groups.

    ``loaded`` models came from the cache on disk; ``shapes`` counts how often a function of
    ``nestwright.jit`` met new shapes.
    """

    built: int = 0
    kernels: int = 0
    loaded: int = 0
    shapes: int = 0


_lock = Lock()
_now = Counters()


def counters() -> Counters:
    """Return the current counts."""
    return _now


def count(built: int = 0, kernels: int = 0, loaded: int = 0, shapes: int = 0) -> None:
    """Add to the counts."""
    global _now
    with _lock:
        now = _now
        _now = replace(
            now,
            built=now.built + built,
            kernels=now.kernels + kernels,
            loaded=now.loaded + loaded,
            shapes=now.shapes + shapes,
        )
