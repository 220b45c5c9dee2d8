"""Idle threads of OpenMP, which torch's own operators leave spinning where compiled code runs next.

After a parallel operator the threads of libgomp wait for the next one in a loop of milliseconds.
With as many threads as processors, compiled code between two such operators has half of one of
them: a training step of ViT whose loss is eager took 40 ms instead of 31. So they are released
before longer calls, by ``omp_pause_resource_all`` of OpenMP 5.0; the next parallel operator starts
them again, which takes some 50 us.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import CDLL, c_int
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from ...codegen.runtime.executable import Executable

Call: TypeAlias = Callable[..., Sequence[Any]]

LONG = 5e7
"""Operations or bytes of a call from which on threads are released before it: some 100 us."""

_SOFT = 1  # omp_pause_soft: threads end, and data of theirs may be kept
_ASKED = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # say how threads wait
_MAPS = Path("/proc/self/maps")


def undisturbed(exe: Executable, call: Call) -> Call:
    """Return ``call``, which runs an executable, with idle threads released before long ones.

    The same call where OpenMP's threads do not spin for long, or cannot be released.
    """
    cost = exe.cost_analysis()
    release = _release()
    if release is None or max(cost.get("flops", 0), cost.get("bytes accessed", 0)) < LONG:
        return call

    def after(*args: Any) -> Sequence[Any]:
        release(_SOFT)
        return call(*args)

    return after


@cache
def _release() -> Callable[[int], Any] | None:
    """Return the function that ends the calling thread's idle ones; None without it."""
    if any(name in os.environ for name in _ASKED) or not _MAPS.exists():
        return None
    for path in _loaded(_MAPS.read_text()):
        with suppress(OSError):  # a file that was replaced since
            found = getattr(CDLL(path), "omp_pause_resource_all", None)
            if found is not None:
                found.argtypes, found.restype = [c_int], c_int
                return found  # type: ignore[no-any-return]
    return None


def _loaded(maps: str) -> list[str]:
    """Return the paths of libgomp in a process's memory map, the sixth column of its lines."""
    places = (line.split(maxsplit=5) for line in maps.splitlines())
    found = {columns[5] for columns in places if len(columns) > 5}
    return sorted(path for path in found if "libgomp" in os.path.basename(path))
