"""Races of whole built models, called as a user would call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...codegen.plan.saved.read import read
from ...codegen.runtime.executable import Executable
from ...codegen.targets.registry import codec
from ...ir.target import Target
from .compare import settled
from .host.lock import MachineLock
from .machine import meter
from .protocol import Job, Outcome
from .timing import Call, compare


def race_models(job: Job, enter: Callable[[str], object], lock: MachineLock) -> tuple[Outcome, ...]:
    """Time the built models of a job's candidates in turns; the first one is the baseline.

    ``job.fill`` limits the seconds of timing. Arguments are random, drawn from the seed.
    """
    enter("wait")
    with lock.building():
        enter("load")
        models = [Executable(read(Path(c.bundle), codec)) for c in job.candidates]
        arguments = models[0].random_arguments(job.seed)
        calls = [_call(m, arguments) for m in models]
        enter("run")
        for call in calls:
            call(1)
    enter("wait")
    target = Target.parse(job.target)
    found = meter(target)
    clock = found.clock(target)
    with lock.timing(), found.alone(target):
        enter("run")
        runs = compare(calls, clock, job.fill, settled, found.regain(target))
    return tuple(Outcome("ok", tuple(r)) for r in runs)


def _call(model: Executable, arguments: Sequence[Any]) -> Call:
    near = [_put(model, a) for a in arguments]

    def call(times: int) -> None:
        for _ in range(times):
            model(*near)

    return call


def _put(model: Executable, value: Any) -> Any:
    """Copy an argument, including the arrays in its tuples, to where the model runs."""
    if isinstance(value, tuple):
        return tuple([_put(model, part) for part in value])
    return model.put(value)
