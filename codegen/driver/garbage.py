"""Put off the collector of reference cycles while many objects are made that stay."""

from __future__ import annotations

import gc
import os
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
            self.count = max(0, self.count - 1)
            if not self.count and self.was_enabled:
                gc.enable()

    def end_all(self) -> None:
        """Forget them, in the child of a fork: the threads that would end them are not in it."""
        self.lock = Lock()
        if self.count and self.was_enabled:
            gc.enable()
        self.count = 0


_pauses = _Pauses()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pauses.end_all)


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
