"""Checks of a candidate: correct results, and no accesses out of bounds.

First its loops are checked for races between concurrent iterations, which runs show only sometimes.

It runs on each set of inputs in separate memory between guard pages; all memory but the inputs is
filled with a byte that is NaN for floats in one run and a huge number in another. Inputs are
compared afterwards. After timing it runs again, in the memory as timing left it.
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
"""Fill bytes: floats of them are NaN or near the largest, integers are -1 or large."""

REPEATS = 64  # runs after timing, at most
SHORT = 3e-3  # seconds after which no further run starts

RUNS = ((1, NAN, True), (0, HUGE, False), (2, NAN, True))
"""The case, the fill byte, and True if buffers end at a guard page (else they begin at one)."""

Say = Callable[[str], object]


def race_in(func: Func) -> str:
    """Return why a concurrent loop is not legal; "" if all are."""
    reason = check_loop_kinds(func, nest(func).blocks.values())
    return (
        "" if reason is None else f"its loops run in parallel what must run in order: {reason.why}"
    )


class Wrong(Exception):
    """A candidate has a wrong result or an illegal side effect."""


def check(run: Runnable, reference: Reference, say: Say, excess: float = 0.0) -> float:
    """Run on every case; raise ``Wrong`` if one fails.

    ``excess`` is the error that the candidate may add to rounding, as of ``judge``. Returns the
    largest error on ordinary values, relative to the root mean square of the output. ``say`` is
    called before each run with a description, in case the run kills the process.
    """
    worst = 0.0
    for number, pattern, upper in RUNS[: len(reference.cases)]:
        case = reference.cases[number]
        where = "end at" if upper else "begin behind"
        say(f"on {case.name} in buffers that {where} a guard page")
        trial = partial(run.trial, case.arguments, pattern, upper)
        error = _accept(trial, case, reference, case.name, excess)
        worst = error if case is reference.ordinary else worst
    return worst


def check_again(run: Runnable, reference: Reference, say: Say, excess: float = 0.0) -> None:
    """Run again after the timed runs, a short kernel many times; raise ``Wrong`` if it fails.

    Races between threads show only sometimes.
    """
    say("after it was timed")
    case, began = reference.ordinary, time.perf_counter()
    for _ in range(REPEATS):
        name = f"{case.name}, after it was timed"
        _accept(partial(run.again, NAN), case, reference, name, excess)
        if time.perf_counter() - began > SHORT:
            break


def _accept(
    run: Callable[[], CheckedRun],
    case: ReferenceCase,
    reference: Reference,
    name: str,
    excess: float,
) -> float:
    try:
        trial = run()
    except SimulationError as e:
        raise Wrong(f"{str(e).splitlines()[0]} ({name})") from None
    if trial.damage:
        raise Wrong(f"{trial.damage} ({name})")
    error, told = judge(trial.results, case, reference.outputs, excess)
    if told:
        raise Wrong(f"{told} ({name})")
    return error
