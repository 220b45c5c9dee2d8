"""A line on stderr about work that takes long, so that a first call does not seem to hang."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

LONG = 2.0
"""Seconds after which a call that compiles says so."""


@contextmanager
def told_if_long(what: str) -> Iterator[None]:
    """Say once on stderr what is being done, if it takes longer than ``LONG``."""
    timer = Timer(LONG, lambda: print(f"nestwright: {what}", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
