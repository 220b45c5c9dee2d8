"""The best schedules of a log for a target, and the warnings that go with them."""

from __future__ import annotations

import os
import warnings

from ...codegen.driver.schedules import Schedules
from ...codegen.plan.nodes import KernelThunk, walk
from ...codegen.plan.notes import SCHEDULED
from ...codegen.runtime.executable import Executable
from ...ir.errors import NestwrightWarning
from ...ir.target import Target
from .. import log as logs
from .units import counted

AUTO = "auto"
"""The log that means all logs that are found."""


def best_traces(log: str | os.PathLike[str], target: Target) -> Schedules:
    """Return a log's best schedules for a target, of each workload and of whole models.

    Schedules that cannot be read are left out, with a warning.
    """
    held = (
        logs.with_related(logs.automatic_log(), target)[0]
        if isinstance(log, str) and log == AUTO
        else logs.read(log)
    )
    warn_of(held)
    if absent := logs.absent_functions(held):
        text = f"library functions that won in {log} are not registered: {', '.join(absent)}"
        warnings.warn(f"{text}; the best kernels are used", NestwrightWarning, stacklevel=3)
    schedules, broken = logs.schedules_of(held, target)
    if broken:
        named = ", ".join(key[:16] for key in broken[:4]) + (", .." if len(broken) > 4 else "")
        text = f"{len(broken)} schedules in {log} cannot be read and are not used; workload {named}"
        warnings.warn(text, NestwrightWarning, stacklevel=3)
    return schedules


def warn_of(log: logs.Log) -> None:
    """Warn of skipped lines, in a single warning."""
    if log.problems:
        places = ", ".join(map(str, log.paths))
        text = f"skipped {counted(len(log.problems), 'line')} of {places}: not valid records"
        advice = f"`nestwright log check {places}` lists them"
        warnings.warn(f"{text}; {advice}", NestwrightWarning, stacklevel=3)


def warn_of_use(exe: Executable, log: str | os.PathLike[str] | None, target: Target) -> None:
    """Warn where a model was built with another processor's schedules, or with none of the log."""
    if log == AUTO:
        if text := _told(exe, target):
            warnings.warn(text, NestwrightWarning, stacklevel=4)
    elif log is not None and exe.bundle.notes.get(SCHEDULED) == "0":
        held = logs.read(log)
        if not _lost_races(exe, held, target):
            warnings.warn(foreign(exe.name, target, held), NestwrightWarning, stacklevel=4)


def _lost_races(exe: Executable, log: logs.Log, target: Target) -> bool:
    """True if defaults won a race of whole models with one of a built model's workloads."""
    tasks = _tasks(exe)
    races = log.composed(target)
    return any(w in tasks and best is None for picks in races for w, best in picks.items())


def _told(exe: Executable, target: Target) -> str:
    """Return a line on other processors' records in the logs found for a built model."""
    held, lent = logs.with_related(logs.automatic_log(), target)
    return logs.origin_note(held, lent, _tasks(exe), target)


def _tasks(exe: Executable) -> set[str]:
    """Return the workloads of a built model's kernels."""
    return {t.task for t in walk(exe.plan.thunks) if isinstance(t, KernelThunk)}


def foreign(name: str, target: Target, log: logs.Log) -> str:
    """Return the warning that a log has no schedule for a model or function."""
    places = ", ".join(map(str, log.paths))
    return (
        f"{places}: no record for {name} on {target.key}; default schedules are used. "
        f"The log holds {logs.describe(log)}"
    )
