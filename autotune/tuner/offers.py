"""Library functions and rules offered for tasks: those that a tuning run measures or tries."""

from __future__ import annotations

from collections.abc import Collection

from ...ir.hlo.fuse.library_groups import matching
from ...ir.library.functions import place_of
from ...ir.target import Target
from ...schedule.sketches.sampled import PREFIX, RULES, WRITTEN, refusal
from ..log.records import LIBRARY_SKETCH
from ..log.units import counted
from ..measure.protocol import Candidate
from ..tasks.extract import Task


def offered(task: Task, target: Target) -> tuple[str, ...]:
    """Return the names of the registered functions that compute a task; they run in a process."""
    c = task.program.computation
    if c is None or target.row.place != "process":
        return ()
    return matching(c)


def candidates(task: Task, target: Target, tried: Collection[str]) -> list[Candidate]:
    """Return the functions to measure for a task, except those already ``tried``."""
    names = [n for n in offered(task, target) if n not in tried and place_of(n)]
    return [Candidate(LIBRARY_SKETCH, {"library": name}) for name in names]


def complaints(tasks: Collection[Task], target: Target) -> list[str]:
    """Return a line for each function that a child cannot import, and each rule that never fits."""
    return [*_not_importable(tasks, target), *_unfit_rules(tasks, target)]


def _unfit_rules(tasks: Collection[Task], target: Target) -> list[str]:
    open_ones = [t for t in tasks if all(s.name != WRITTEN for s in t.space.sketches)]
    fitting = {s.name for t in open_ones for s in t.space.sketches}
    return [
        f"schedule rule {name} fits none of {counted(len(open_ones), 'task')}; of {first.name} it "
        f"says: {refusal(name, first.program.func, target) or 'nothing'}"
        for first in open_ones[:1]
        for name in sorted(RULES)
        if f"{PREFIX}{name}" not in fitting
    ]


def _not_importable(tasks: Collection[Task], target: Target) -> list[str]:
    names = dict.fromkeys(name for t in tasks for name in offered(t, target))
    return [
        f"library function {name} is not measured: a child process cannot import it; "
        "define it by name in a module other than the program itself"
        for name in names
        if not place_of(name)
    ]
