"""``tune``: search for faster schedules of a model, and log what is found."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from typing import Any

from ..codegen.driver.options import BuildOptions
from ..ir.frontends.registry import Shapes
from ..ir.loop.nodes import Func
from ..ir.target import Target
from ..schedule.language.schedule import Schedule
from .fleet.worker_pool import WorkerPool
from .lowered import as_arguments, lower_for
from .recipe import Constants, ImportOptions, ModelLike
from .tasks.extract import from_func
from .tuner.progress import Listener, TuneResult
from .tuner.session import Subject, TuningSession


def tune(
    model: ModelLike,
    *arguments: Any,
    target: str | Target = "cpu",
    trials: int = 500,
    seconds: float | None = None,
    log: str | os.PathLike[str] | None = None,
    seed: int = 0,
    constants: Constants | None = None,
    resume: bool = True,
    workers: int | None = None,
    strategy: str = "native",
    progress: Listener | None = None,
    simulate_cost: bool = False,
    executor: Executor | WorkerPool | None = None,
    example: Any = None,
    excess_precision: bool = True,
    weights: str | None = None,
    accuracy: float | None = None,
    denormals: str | None = None,
    freeze: bool = True,
    shapes: Shapes | None = None,
) -> TuneResult:
    """Search for faster schedules of a model's groups, and log them.

    It is ``lower(model, *example, ...).tune(...)``. ``model``, ``example``, ``constants`` and the
    other options of a build are as for ``build``; ``arguments`` by place are those of ``example``,
    after the target if that is given by place. A ``Schedule`` of the DSL is tuned by its holes
    (``sample_tile``, ``sample_choice``), or without any as its function is.

    - ``trials``: the total for this model in the log, earlier calls included; with ``resume``
      false the number of new ones.
    - ``seconds``: a limit on the wall time of the call, the final races included.
    - ``log``: the file to append to, by default one for the target and model in the working
      directory. With "auto" that one is written, and each task begins with what won for it on near
      machines, or for groups that differ in their sizes only, in all logs that are found.
    - ``seed``: of the search.
    - ``strategy``: "native", "prior" (the same without a learned model), "random" or an Optuna
      sampler, such as "optuna:tpe".
    - ``workers``: the number of processes that measure.
    - ``executor``: any ``concurrent.futures.Executor``, whose workers measure instead, on as many
      machines as it has; ``workers`` is their number, if it does not tell. Each must be of the
      target's kind and run the same nestwright, else it is left out.
    - ``progress``: is called with a ``Progress`` after every trial.
    - ``simulate_cost``: rank schedules by the analytic model only, for a machine that need not be
      present; ``build`` uses such records for workloads that were never measured.

    Raises ``TuningInterrupted`` (a ``KeyboardInterrupt``) on Ctrl-C, when no trial is lost, and
    ``FleetError`` if no worker is left.
    """
    if arguments and isinstance(arguments[0], str | Target):  # no argument of a model
        target, *rest = arguments
        arguments = tuple(rest)
    options = BuildOptions.given(target, excess_precision, weights, accuracy, denormals)
    session = TuningSession(
        target=options.target,
        trials=trials,
        seconds=seconds,
        log=log,
        seed=seed,
        resume=resume,
        workers=workers,
        strategy=strategy,
        progress=progress,
        simulate_cost=simulate_cost,
        executor=executor,
    )
    if isinstance(model, Func | Schedule):
        return session.run(lambda: _function(model, session.target))
    importing, given = ImportOptions(shapes, constants, freeze), arguments or as_arguments(example)
    return session.run(lambda: lower_for(options, importing, model, *given).subject())


def _function(model: Func | Schedule, target: Target) -> Subject:
    """Return the task of a function, or of a schedule's holes."""
    name = model.name if isinstance(model, Func) else model.func.name
    func = model.func if isinstance(model, Schedule) and not model.holes else None
    return Subject(name, from_func(model if func is None else func, target))
