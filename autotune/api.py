"""The public face of tuning: ``tune`` searches and logs, ``build`` applies what a log holds."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias, overload

from ..codegen.build import Builder, build_or_load
from ..codegen.build import build as build_module
from ..codegen.device_kernel import DeviceKernel, compile_device
from ..codegen.kernel import Kernel, compile_func
from ..codegen.runtime.executable import Executable
from ..codegen.schedules import Schedules
from ..codegen.stages import stage_text as _stage_text
from ..codegen.store import folder
from ..codegen.timings import timed
from ..ir.errors import ArgumentError, NestwrightWarning, TargetError
from ..ir.frontends.jax import JaxModel
from ..ir.hlo.content import digest
from ..ir.hlo.nodes import HloModule
from ..ir.load import as_model, as_module
from ..ir.loop.nodes import Func
from ..ir.target import Target
from ..schedule.limits import require_limits
from ..schedule.schedule import Schedule
from ..schedule.sketches.generate import default_schedule
from ..schedule.trace import Trace
from .budget import Budget
from .journal import Log, Writer, describe, read, schedules_of
from .measure.estimate import Estimator
from .measure.pool import Pool
from .progress import Listener, TuneResult
from .tasks import Task, extract, from_func
from .tune import Plan, Tuner

GraphLike: TypeAlias = str | os.PathLike[str] | HloModule | JaxModel
ModelLike: TypeAlias = GraphLike | Func | Schedule
Constants: TypeAlias = Mapping[int | str, Any]
LOGS = Path("tuning_logs")


def tune(
    model: ModelLike,
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
    example: Any = None,
    excess_precision: bool = True,
) -> TuneResult:
    """Search for faster schedules of a model's groups; what is found goes into a log.

    ``model``, ``example`` and ``excess_precision`` are as for ``build``; of a ``Schedule`` only the
    function counts.
    ``trials`` is the total for this model in the log, trials of earlier calls included, unless
    ``resume`` is false: then they are new ones. ``seconds`` limits the wall time of the call, the
    final races included. ``constants`` maps parameter numbers or names to arrays that are known
    already. ``workers`` is the number of
    measuring children, ``strategy`` native, random or optuna:tpe. ``progress`` is called with a
    ``Progress`` after every trial. With ``simulate_cost`` nothing is measured: schedules are ranked
    by the analytic model alone, for a machine that need not be here. Their records say so;
    ``build`` uses them for what was never measured.

    Raises ``TuningInterrupted`` (a ``KeyboardInterrupt``) on Ctrl-C, with nothing lost.
    """
    budget = Budget(seconds)
    machine = Target.parse(target) if simulate_cost else _runnable(Target.parse(target))
    name, tasks, builder = _tasks(model, machine, constants, example, excess_precision)
    path = Path(log) if log is not None else default_log(name, machine)
    _check_budget(trials, seconds)
    tool = _tool()
    with (
        Writer(path, tool) as writer,
        Estimator() if simulate_cost else Pool(machine.threads, workers) as measurer,
    ):
        before = read(path)
        _warn_of(before)
        known = {t.key for t in tasks}
        if not resume:
            trials += sum(t.workload in known for t in before.trials)
        plan = Plan(
            name, machine, tasks, trials, seconds, seed, strategy, workers, tuple(tool.items()),
            simulate_cost,
        )  # fmt: skip
        tuner = Tuner(plan, writer, before, measurer, progress, builder, budget)
        try:
            return tuner.run()
        finally:
            tuner.close()


@overload
def build(
    model: GraphLike,
    target: str | Target = ...,
    log: str | os.PathLike[str] | None = ...,
    constants: Constants | None = ...,
    timings: dict[str, float] | None = ...,
    cache: bool = ...,
    example: Any = ...,
    excess_precision: bool = ...,
) -> Executable: ...


@overload
def build(
    model: Func | Schedule,
    target: str | Target = ...,
    log: str | os.PathLike[str] | None = ...,
    constants: Constants | None = ...,
    timings: dict[str, float] | None = ...,
    cache: bool = ...,
    example: Any = ...,
    excess_precision: bool = ...,
) -> Kernel | DeviceKernel: ...


def build(
    model: ModelLike,
    target: str | Target = "cpu",
    log: str | os.PathLike[str] | None = None,
    constants: Constants | None = None,
    timings: dict[str, float] | None = None,
    cache: bool = True,
    example: Any = None,
    excess_precision: bool = True,
) -> Executable | Kernel | DeviceKernel:
    """Compile a model with the best schedules of a log; never measures, never tunes.

    ``model`` is a path to HLO text, an HLO proto or StableHLO text; an ``HloModule``; what JAX
    lowered, traced or exported; a JAX function, with the arguments ``example`` (a tuple of arrays,
    ``jax.ShapeDtypeStruct`` or pytrees of them: the executable takes and gives their leaves, in
    JAX's order); or a function or ``Schedule`` of the DSL.

    Groups that the log has nothing for get the default schedule; a log without a single record for
    this model and target draws a warning that says what it holds. ``timings`` is filled with the
    seconds of each stage. With ``cache`` a model that was built before, from the same content and
    schedules by the same compiler, comes from disk (``codegen.store`` says where). With
    ``excess_precision`` (XLA's ``xla_allow_excess_precision``) floats of fewer than 32 bits stay
    f32 between the operations of a fused group and round where the group ends; without, after every
    operation. What is of the DSL becomes a ``Kernel``, on a GPU a ``DeviceKernel``, and computes
    what it says; ``ScheduleError`` for a schedule that exceeds the GPU or is half done.
    """
    machine = Target.parse(target)
    schedules = best_traces(log, machine) if log is not None else Schedules({})
    if isinstance(model, Func | Schedule):
        return _build_func(model, machine, log, schedules)
    spent: dict[str, float] = {} if timings is None else timings
    _check_constants(constants)
    known = as_model(model, example)

    def module() -> HloModule:
        with timed(spent, "parse"):
            return as_module(known)

    content = _content(known) if cache and folder() is not None else None
    if content is None:
        exe = build_module(module(), machine, schedules, constants, spent, excess_precision)
    else:
        exe = build_or_load(content, module, machine, schedules, constants, spent, excess_precision)
    if log is not None and exe.bundle.notes.get("scheduled") == "0":
        text = _foreign(exe.name, machine, read(log))
        warnings.warn(text, NestwrightWarning, stacklevel=2)
    return exe


def _content(model: str | os.PathLike[str] | HloModule) -> bytes | None:
    """What names a model by its content; None for a file that cannot be read."""
    if isinstance(model, HloModule):
        return digest(model)
    try:
        return sha256(Path(model).read_bytes()).digest()
    except (OSError, ValueError):
        return None


def stage_text(
    model: ModelLike,
    stage: str,
    group: str | None = None,
    target: str | Target = "cpu",
    log: str | os.PathLike[str] | None = None,
    constants: Constants | None = None,
    example: Any = None,
    excess_precision: bool = True,
) -> str:
    """The text of a model at a stage of compilation, under the schedules of a log.

    ``group`` asks for one group, by its name or the start of its key.
    """
    if isinstance(model, Func | Schedule):
        raise ArgumentError("stages are those of models", "this is a function of the DSL")
    machine = Target.parse(target)
    schedules = best_traces(log, machine) if log is not None else Schedules({})
    module = as_module(model, example)
    return _stage_text(module, machine, stage, group, schedules, constants, excess_precision)


def best_traces(log: str | os.PathLike[str], target: Target) -> Schedules:
    """The best schedule of each workload that a log holds for a target, and of whole models.

    Those that cannot be read are left out, with a warning.
    """
    held = read(log)
    _warn_of(held)
    schedules, broken = schedules_of(held, target)
    if broken:
        named = ", ".join(key[:16] for key in broken[:4]) + (", .." if len(broken) > 4 else "")
        text = f"{len(broken)} schedules in {log} cannot be read and are not used; workload {named}"
        warnings.warn(text, NestwrightWarning, stacklevel=3)
    return schedules


def _warn_of(log: Log) -> None:
    """Tell of lines that were skipped, as one warning."""
    if log.problems:
        places = ", ".join(map(str, log.paths))
        text = f"{len(log.problems)} lines of {places} are no records, or changed, and were skipped"
        advice = f"`nestwright log check {places}` lists them"
        warnings.warn(f"{text}; {advice}", NestwrightWarning, stacklevel=3)


def default_log(name: str, target: Target) -> Path:
    """Where ``tune`` writes unless told otherwise: under the working directory."""
    return LOGS / target.key / f"{name}.jsonl"


def _tasks(
    model: ModelLike,
    target: Target,
    constants: Constants | None,
    example: Any,
    excess_precision: bool,
) -> tuple[str, tuple[Task, ...], Builder | None]:
    """The model's name, its tasks, and what builds it as a whole (None for a single function)."""
    _check_constants(constants)
    if isinstance(model, Func | Schedule):
        func = model if isinstance(model, Func) else model.func
        return func.name, from_func(func, target), None
    known = as_model(model, example)
    module = as_module(known)
    name = module.name if isinstance(known, HloModule) else Path(known).stem
    frozen = dict(constants) if constants else None
    builder = Builder(module, target, frozen, excess_precision=excess_precision)
    return name, extract(builder.optimized, target, groups=builder.groups), builder


def _runnable(target: Target) -> Target:
    if target.kind == "cuda-sim":
        raise TargetError(
            f"cannot tune for {target.spec}", "a simulator's time says nothing of a GPU's",
            hint="simulate_cost=True (--simulate-cost) ranks schedules without measuring",
        )  # fmt: skip
    if not target.is_host:
        raise TargetError(
            f"cannot tune for {target.spec}", "this machine cannot run its code",
            hint="tune on such a machine; simulate_cost=True (--simulate-cost) ranks schedules "
            "without measuring",
        )  # fmt: skip
    return target


def _check_constants(constants: Constants | None) -> None:
    if constants is not None and not isinstance(constants, Mapping):
        raise ArgumentError(
            f"constants of type {type(constants).__name__}", "they go by the parameters' numbers "
            "or names", hint="constants={1: weights}",
        )  # fmt: skip


def _check_budget(trials: int, seconds: float | None) -> None:
    if not isinstance(trials, int) or trials < 1:
        raise ArgumentError(f"trials={trials}", "at least one trial is needed")
    if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
        raise ArgumentError(f"seconds={seconds}", "a positive time is needed")


def _build_func(
    model: Func | Schedule,
    target: Target,
    log: str | os.PathLike[str] | None,
    schedules: Mapping[str, Trace],
) -> Kernel | DeviceKernel:
    """A schedule as it is; a function with the log's schedule for it, else the default one."""
    if isinstance(model, Schedule):
        if target.is_gpu:
            require_limits(model.func, target.gpu)
        return _kernel(model.func, target)
    tasks = from_func(model, target)
    trace = schedules.get(tasks[0].key) if tasks else None
    if log is not None and trace is None:
        text = _foreign(model.name, target, read(log))
        warnings.warn(text, NestwrightWarning, stacklevel=3)
    chosen = default_schedule(model, target) if trace is None else trace.replay(model)
    return _kernel(chosen.func, target)


def _kernel(func: Func, target: Target) -> Kernel | DeviceKernel:
    if target.kind == "cuda":
        return DeviceKernel(compile_device(func, target))
    return compile_func(func, target)


def _foreign(name: str, target: Target, log: Log) -> str:
    places = ", ".join(map(str, log.paths))
    return (
        f"{places}: no record for {name} on {target.key}; default schedules are used. "
        f"The log holds {describe(log)}"
    )


def _tool() -> dict[str, str]:
    """Versions that decide what code comes out, for the log."""
    found = {}
    for package in ("nestwright", "llvmlite"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # a source tree that is not installed
            continue
    return found
