"""Whether a candidate computes what it should, and touches nothing that it should not.

It runs on each set of inputs in memory of its own, between guard pages, everything but the inputs
filled with a byte that is NaN for floats in one run and a huge number in another. Inputs are
compared afterwards. Once it has been timed it runs again, in a workspace as all those runs left it.
"""

from __future__ import annotations

from collections.abc import Callable

from .machine import Runnable, Trial
from .standard import Case, Standard, judge

NAN, HUGE = 0xFF, 0x7F
"""Bytes of which a float is NaN or near the largest; integers of them are -1 or large."""

RUNS = ((1, NAN, True), (0, HUGE, False), (2, NAN, True))
"""The case, what unwritten memory holds, and whether buffers end at a guard page or begin there."""

Say = Callable[[str], object]


class Wrong(Exception):
    """A candidate's result, or what it did besides, is wrong."""


def check(run: Runnable, standard: Standard, say: Say) -> float:
    """Run on every case; ``Wrong`` where one fails.

    Returns the largest error on ordinary values, relative to the root mean square of the output.
    ``say`` is told beforehand what is about to run, for whoever finds it dead.
    """
    worst = 0.0
    for number, pattern, upper in RUNS:
        case = standard.cases[number]
        where = "end at" if upper else "begin behind"
        say(f"on {case.name} in buffers that {where} a guard page")
        error = _accept(run.trial(case.arguments, pattern, upper), case, standard, case.name)
        worst = error if case is standard.ordinary else worst
    return worst


def check_again(run: Runnable, standard: Standard, say: Say) -> None:
    """Run once more, after the timed runs; ``Wrong`` if it fails now."""
    say("after it was timed")
    case = standard.ordinary
    _accept(run.again(NAN), case, standard, "ordinary values after it was timed")


def _accept(trial: Trial, case: Case, standard: Standard, name: str) -> float:
    if trial.damage:
        raise Wrong(f"{trial.damage} ({name})")
    error, told = judge(trial.results, case, standard.outputs)
    if told:
        raise Wrong(f"{told} ({name})")
    return error
