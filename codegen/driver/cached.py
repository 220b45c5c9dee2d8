"""The disk cache in front of a build: load a cached model, or build it and cache it.

The caller passes the function that builds, so a cached model is loaded without the compiler.
"""

from __future__ import annotations

from collections.abc import Callable

from ..plan.bundle import Bundle
from ..plan.counters import count
from ..runtime.executable import Executable
from ..targets.timings import timed
from . import store
from .build_key import BuildKey


def build_or_load(
    key: BuildKey,
    name: str,
    build: Callable[[], Executable],
    load: Callable[[Bundle], Executable],
    timings: dict[str, float],
) -> Executable:
    """Load the bundle in the disk cache with ``load``, else build the executable and cache it.

    A build is noted in the ledger under the model's ``name``, by which a later miss is explained.
    """
    with timed(timings, "cache"):
        bundle = store.get(key.name)
    if bundle is None:
        from .ledger import record  # a model that is loaded needs none

        exe = build()
        with timed(timings, "cache"):
            store.put(key.name, exe.bundle)
            record(key, name)
        return exe
    count(loaded=1)
    with timed(timings, "link"):
        return load(bundle)
