"""One thread of BLAS for as long as a call runs: for batches that other threads share.

A thread of OpenBLAS waits for the others by yielding. With more threads than cores, as where the
calls come from threads already or the machine has other work, each wait may take a time slice: 8 ms
for a triangular system of 128 rows that one thread solves in .2.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import product
from threading import Lock

_AFFIXES = tuple(product(("", "scipy_"), ("", "64_", "_64")))  # of the names in OpenBLAS's builds


@dataclass(frozen=True, slots=True)
class OpenBlas:
    """The number of threads of a loaded library, which is one for the whole process."""

    get: Callable[[], int]
    set: Callable[[int], None]


@cache
def libraries() -> tuple[OpenBlas, ...]:
    """Return the OpenBLAS libraries that are loaded; none without threadpoolctl, which finds them.

    Of those on OpenMP each calling thread has a number of its own: they are not among them.
    """
    try:
        loaded = import_module("threadpoolctl").threadpool_info()
    except ImportError:
        return ()
    paths = [x["filepath"] for x in loaded if x.get("threading_layer") == "pthreads"]
    return tuple(found for path in paths if (found := _controls(ctypes.CDLL(path))) is not None)


def _controls(library: ctypes.CDLL) -> OpenBlas | None:
    for before, after in _AFFIXES:
        names = (f"{before}openblas_{verb}_num_threads{after}" for verb in ("get", "set"))
        try:
            get, put = (getattr(library, name) for name in names)
        except AttributeError:
            continue
        return OpenBlas(get, put)
    return None


_lock = Lock()
_before: list[int] = []  # the threads of each library, while there are callers inside
_inside = [0]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS start no threads in this process until the last caller has left."""
    found = libraries()
    with _lock:
        if not _inside[0]:
            _before[:] = [x.get() for x in found]
            for x in found:
                x.set(1)
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0]:
                for x, threads in zip(found, _before, strict=True):
                    x.set(threads)
