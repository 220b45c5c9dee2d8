"""A way of a race in its own process: opens a model, then times calls as it is told.

It reads commands as JSON lines and answers each with one. A call is from NumPy arrays to NumPy
arrays, by the wall clock.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, TypeAlias

from ....ir.errors import NestwrightError
from ....ir.lazy import resolve
from ....ir.library.functions import adopt
from ...measure.child import isolate, private_output
from ...measure.host.placement import preferred
from ...measure.protocol import LIBRARIES
from ..peers.table import Given, Open, Opened
from .arrays import read_arrays, write_arrays

WARM = 1e-3  # seconds of calls before timed ones: threads wake, caches fill
LEAST = 2  # of them
SINGLY = 2e-5  # seconds from which each call of a turn is timed by itself
SAMPLES = 50  # calls of a turn that are timed singly otherwise

Json: TypeAlias = dict[str, Any]


def opened(told: Mapping[str, Any]) -> tuple[Opened, float]:
    """Open a model and call it once; return it, and the seconds that took."""
    keep_to(told["cores"])
    names, arrays = told["names"], read_arrays(Path(told["arguments"])) if told["names"] else []
    given = Given(
        Path(told["file"]), dict(zip(names, arrays, strict=True)), told["threads"], told["seed"]
    )
    began = time.perf_counter()
    make: Open = resolve(told["open"], told["package"])
    model = make(given)
    model.call()
    return model, time.perf_counter() - began


def keep_to(cores: list[int]) -> None:
    """Limit all threads of this process, and those that they start, to some cores."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        return
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it ended, or the system does not allow it
            os.sched_setaffinity(int(task.name), cores)


def turn(call: Callable[[], object], calls: int) -> Json:
    """Time calls in a row, after some that are not timed.

    ``seconds`` are those of a call in a plain loop, ``each`` those of calls timed one by one.
    """
    now = time.perf_counter
    with preferred():
        began, done = now(), 0
        while done < LEAST or now() - began < WARM:
            call()
            done += 1
        single = (now() - began) / done >= SINGLY
        if not single:
            began = now()
            for _ in range(calls):
                call()
            whole = (now() - began) / calls
        each = []
        for _ in range(calls if single else SAMPLES):
            began = now()
            call()
            each.append(now() - began)
    return {"seconds": sum(each) / len(each) if single else whole, "each": each}


def many(opens: list[Opened], seconds: float) -> Json:
    """Call models from a thread each, all at once; return their calls and the seconds they took.

    The time begins with the first call of any and ends with the last. Raises what a call raises.
    """
    counts, ends, failed = [0] * len(opens), [0.0] * len(opens), list[Exception]()
    starts: list[float] = []
    ready = threading.Barrier(len(opens))

    def caller(number: int) -> None:
        call, now = opens[number].call, time.perf_counter
        try:
            call()
            ready.wait()
            starts.append(now())
            until = starts[0] + seconds
            while now() < until and not failed:
                call()
                counts[number] += 1
            ends[number] = now()
        except threading.BrokenBarrierError:
            return  # another failed
        except Exception as e:
            failed.append(e)
            ready.abort()

    threads = [threading.Thread(target=caller, args=(n,)) for n in range(len(opens))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]
    return {"calls": sum(counts), "seconds": max(ends) - min(starts)}


class Serving:
    """The commands of a race on one model."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told
        self._model, self.first = opened(told)
        self._others: list[Opened] = []

    @property
    def detail(self) -> str:
        """The description of what runs, with its version."""
        return self._model.detail

    def answer(self, command: Json) -> Json:
        """Do what a command says; return its answer."""
        match command:
            case {"do": "turn", "calls": int(calls)}:
                return turn(self._model.call, calls)
            case {"do": "results", "to": str(to)}:
                write_arrays(Path(to), self._model.arrays(self._model.call()))
                return {}
            case {"do": "callers", "callers": int(n), "shared": bool(shared), **rest}:
                return self._callers(n, shared, float(rest["seconds"]))
            case _:
                raise ValueError(f"command {command}")

    def _callers(self, count: int, shared: bool, seconds: float) -> Json:
        """Time several callers; with an executable each unless ``shared``."""
        if shared and not self._model.shared:
            return {"problem": "it serves one caller at a time"}
        while not shared and len(self._others) < count - 1:
            self._others.append(opened(self._told)[0])
        models = [self._model] * count if shared else [self._model, *self._others]
        cores, threads = self._told["cores"], self._told["threads"]
        fits = not cores or count * threads <= len(cores)
        with preferred() if fits else nullcontext():  # those with priority do not take turns
            return many(models, seconds)


def main() -> None:
    """Open the model that the first line names, then serve commands until the input ends."""
    isolate()
    out = private_output()
    adopt(os.environ.get(LIBRARIES, ""))
    serving: Serving | None = None
    for line in sys.stdin.buffer:
        told = json.loads(line)
        try:
            if serving is None:
                serving = Serving(told)
                reply = {"first": serving.first, "detail": serving.detail}
            else:
                reply = serving.answer(told)
        except Exception as e:  # other people's code: the row says what it said
            lines = str(e).strip().splitlines() or [""]
            kind = "" if isinstance(e, NestwrightError) else f"{type(e).__name__}: "
            reply = {"problem": f"{kind}{lines[0]}"[:300]}
        out.write(json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main()
