"""What the simulator's runtime and the code it runs agree on: offsets, states, kinds of fault.

All fields are 8 bytes wide. A kernel's module describes each launch and each of its buffers in
constants; the runtime keeps a record of every buffer while the launch runs, tells the threads
their numbers through ``%sim``, and leaves what went wrong in one report that Python reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from ...ir.loop.nodes import THREADS


def _offsets(*names: str) -> Mapping[str, int]:
    return MappingProxyType({name: 8 * i for i, name in enumerate(names)})


SIM = _offsets(*THREADS, "args", "shared", "buffers")
"""What a thread sees: its numbers, the kernel's arguments, the block's memory, the records."""

LAUNCH = _offsets(
    "name", "body", "grid.x", "grid.y", "grid.z", "block.x", "block.y", "block.z", "suspends",
    "shared_bytes", "granule", "count", "buffers", "slots", "sites",
)  # fmt: skip
"""A launch. ``granule`` is the logarithm of the bytes that the shadow of shared memory counts in;
``slots`` are the operands that one thread deposits at most."""

BUFFER = _offsets("name", "arg", "offset", "bytes", "shift", "shadowed")
"""A buffer: ``arg`` is the number of the argument it lies in, -1 for shared memory."""

RECORD = _offsets("base", "bytes", "cells", "shift", "static", "others")
"""A buffer of the launch that runs. ``others`` points to the time since which threads of other
blocks count as unordered."""
RECORD_BYTES = 8 * len(RECORD)

SITE = _offsets("name", "scope", "action")
"""A place where threads wait for each other: ``scope`` is one of ``WARP`` and ``BLOCK``."""
WARP, BLOCK, BARRIER = 0, 1, 2  # BARRIER is added where memory is ordered too

STOPPED = "nw_sim_stopped"  # a function of the runtime: whether the call was interrupted

DONE, READY, FIRST_SITE = 0, 1, 2  # states of a thread; from FIRST_SITE on it waits at a site

REPORT = _offsets(
    "kind", "launch", "subject", "element", "thread", "block", "other", "other_block", "write",
    "other_write", "elements", "other_site",
)  # fmt: skip


class Kind(IntEnum):
    """What went wrong."""

    RACE = 1
    UNWRITTEN = 2
    BOUNDS = 3
    PENDING = 4
    DIVERGED = 5
    MISALIGNED = 6


def constants() -> dict[str, str]:
    """Every offset and number under the name that the runtime's text calls it by."""
    tables = {"sim": SIM, "launch": LAUNCH, "buffer": BUFFER, "record": RECORD, "site": SITE}
    tables["report"] = REPORT
    found = {
        f"{table}_{name.replace('.', '_')}": str(offset)
        for table, offsets in tables.items()
        for name, offset in offsets.items()
    }
    found |= {kind.name: str(kind.value) for kind in Kind}
    return found | {"first_site": str(FIRST_SITE), "record_size": str(RECORD_BYTES)}
