"""What this process has compiled so far, counted; a program that compiles too often shows here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the process began: ``built`` models were compiled, of ``kernels`` distinct groups.

    ``loaded`` models came out of the cache on disk; ``shapes`` is how often a function of
    ``nestwright.jit`` met shapes that it had not seen.
    """

    built: int = 0
    kernels: int = 0
    loaded: int = 0
    shapes: int = 0


_lock = Lock()
_now = Counters()


def counters() -> Counters:
    """The counts of this moment."""
    return _now


def count(built: int = 0, kernels: int = 0, loaded: int = 0, shapes: int = 0) -> None:
    """Add to the counts."""
    global _now
    with _lock:
        now = _now
        _now = replace(
            now, built=now.built + built, kernels=now.kernels + kernels,
            loaded=now.loaded + loaded, shapes=now.shapes + shapes,
        )  # fmt: skip
