"""The disk cache in front of a build: load a cached model, or build it and cache it.

The caller passes the function that builds, so a cached model is loaded without the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...ir.target import Target
from ..plan.bundle import Bundle
from ..plan.counters import count
from ..runtime.executable import Executable
from ..targets.timings import timed
from . import store

if TYPE_CHECKING:
    from ...schedule.language.trace import Trace


def build_or_load(
    digest: bytes,
    build: Callable[[], Executable],
    load: Callable[[Bundle], Executable],
    target: Target,
    schedules: Mapping[str, Trace],
    constants: Mapping[int | str, Any] | None,
    timings: dict[str, float],
    excess_precision: bool = True,
    weights: str | None = None,
    fallback: str | None = None,
) -> Executable:
    """Load the bundle in the disk cache with ``load``, else build the executable and cache it.

    ``digest`` names the model by its content; the other arguments are those of the build.
    """
    with timed(timings, "cache"):
        key = store.key(digest, target, schedules, constants, excess_precision, weights, fallback)
        bundle = store.get(key)
    if bundle is None:
        exe = build()
        with timed(timings, "cache"):
            store.put(key, exe.bundle)
        return exe
    count(loaded=1)
    with timed(timings, "link"):
        return load(bundle)
