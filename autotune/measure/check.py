"""Whether a candidate computes what it should, and touches nothing that it should not.

First its loops are looked at: iterations that run at once must not meet, which a run shows only
now and then.

It runs on each set of inputs in memory of its own, between guard pages, everything but the inputs
filled with a byte that is NaN for floats in one run and a huge number in another. Inputs are
compared afterwards. Once it has been timed it runs again, where those runs left their traces.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from ...ir.errors import SimulationError
from ...ir.loop.nodes import Func
from ...schedule.concurrent import check_loop_kinds
from ...schedule.cursor import nest
from .machine import CheckedRun, Runnable
from .reference import Reference, ReferenceCase, judge

NAN, HUGE = 0xFF, 0x7F
"""Bytes of which a float is NaN or near the largest; integers of them are -1 or large."""

REPEATS = 64  # runs after timing, at most
SHORT = 3e-3  # seconds after which one more run is the last of them

RUNS = ((1, NAN, True), (0, HUGE, False), (2, NAN, True))
"""The case, what unwritten memory holds, and whether buffers end at a guard page or begin there."""

Say = Callable[[str], object]


def racing(func: Func) -> str:
    """Why iterations of some loop must not run at once, as they do; "" where all may."""
    reason = check_loop_kinds(func, nest(func).blocks.values())
    return (
        "" if reason is None else f"its loops run in parallel what must run in order: {reason.why}"
    )


class Wrong(Exception):
    """A candidate's result, or what it did besides, is wrong."""


def check(run: Runnable, reference: Reference, say: Say) -> float:
    """Run on every case; ``Wrong`` where one fails.

    Returns the largest error on ordinary values, relative to the root mean square of the output.
    ``say`` is told beforehand what is about to run, for whoever finds it dead.
    """
    worst = 0.0
    for number, pattern, upper in RUNS[: len(reference.cases)]:
        case = reference.cases[number]
        where = "end at" if upper else "begin behind"
        say(f"on {case.name} in buffers that {where} a guard page")
        trial = partial(run.trial, case.arguments, pattern, upper)
        error = _accept(trial, case, reference, case.name)
        worst = error if case is reference.ordinary else worst
    return worst


def check_again(run: Runnable, reference: Reference, say: Say) -> None:
    """Run again after the timed runs, a short one often; ``Wrong`` if it fails now.

    Threads that get into each other's way do so now and then.
    """
    say("after it was timed")
    case, began = reference.ordinary, time.perf_counter()
    for _ in range(REPEATS):
        _accept(partial(run.again, NAN), case, reference, f"{case.name}, after it was timed")
        if time.perf_counter() - began > SHORT:
            break


def _accept(
    run: Callable[[], CheckedRun], case: ReferenceCase, reference: Reference, name: str
) -> float:
    try:
        trial = run()
    except SimulationError as e:
        raise Wrong(f"{str(e).splitlines()[0]} ({name})") from None
    if trial.damage:
        raise Wrong(f"{trial.damage} ({name})")
    error, told = judge(trial.results, case, reference.outputs)
    if told:
        raise Wrong(f"{told} ({name})")
    return error
