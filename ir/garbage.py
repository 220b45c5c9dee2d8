"""Put off the collector of reference cycles while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class _Pauses:
    """The pauses that are open, of all threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0
        self.was_enabled = False

    def enter(self) -> None:
        with self.lock:
            if not self.count:
                self.was_enabled = gc.isenabled()
                gc.disable()
            self.count += 1

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.was_enabled:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect no cycles until the end, unless another thread's pause is longer.

    The collector visits all objects that are alive again and again as a compiler adds to them: a
    tenth of the time of building a model. IR has no cycles, so what is dropped is freed all the
    same.
    """
    _pauses.enter()
    try:
        yield
    finally:
        _pauses.leave()
