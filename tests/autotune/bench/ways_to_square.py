"""Ways to square an array, some of which fail; a race's processes import them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from nestwright.autotune.bench.peers.table import Given, Opened, listed
from nestwright.ir.errors import UnsupportedError


def way(call: Callable[[Any], Any], given: Given, shared: bool = True) -> Opened:
    x = given.arguments["x"]
    return Opened(lambda: call(x), listed, "NumPy's product", shared)


def plain(given: Given) -> Opened:
    return way(lambda x: x * x, given)


def alone(given: Given) -> Opened:
    return way(lambda x: x * x, given, shared=False)


def slow(given: Given) -> Opened:
    return way(lambda x: (time.sleep(2e-3), x * x)[1], given)


def off_by_one(given: Given) -> Opened:
    return way(lambda x: x * x + 1, given)


def refuses(given: Given) -> Opened:
    raise UnsupportedError("UnsupportedError is not written out", "this says why")


def dies(given: Given) -> Opened:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def exits(given: Given) -> Opened:
    os._exit(3)


def hangs(given: Given) -> Opened:
    time.sleep(3600)
    sys.exit()


def fails_later(given: Given) -> Opened:
    left = [5]

    def call(x: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("no more")
        return x * x

    return way(call, given)
