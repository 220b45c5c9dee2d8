"""``build``: compile a model of any kind with the best schedules of a log; nothing is measured."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, overload

from .. import schedule
from ..codegen import driver
from ..codegen.driver.cached import build_or_load
from ..codegen.driver.frozen_weights import FrozenWeights
from ..codegen.driver.schedules import Schedules
from ..codegen.driver.stages import stage_text
from ..codegen.driver.store import folder
from ..codegen.plan.nodes import KernelThunk, walk
from ..codegen.plan.notes import SCHEDULED
from ..codegen.runtime.executable import Executable
from ..codegen.targets.timings import timed
from ..ir import hlo
from ..ir.errors import ArgumentError, NestwrightWarning
from ..ir.frontends.imported import Imported
from ..ir.frontends.load import as_model, imported, is_one_file
from ..ir.hlo.nodes import HloModule
from ..ir.loop.nodes import Func
from ..ir.target import Target, with_accuracy
from . import log as logs
from . import tasks
from .log.units import counted

if TYPE_CHECKING:
    from ..codegen.driver.kernel import Kernel
    from ..schedule.language.schedule import Schedule
    from ..schedule.language.trace import Trace

GraphLike: TypeAlias = Any
"""A path, an ``HloModule``, or an object that a row of ``ir.frontends.registry`` reads."""

ModelLike: TypeAlias = Any
"""A ``GraphLike``, or a function or schedule of the DSL."""
AUTO = "auto"
"""The log that means all logs that are found."""

Constants: TypeAlias = Mapping[int | str, Any]


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
    weights: str | None = ...,
    accuracy: float | None = ...,
    freeze: bool = ...,
) -> Kernel: ...


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
    weights: str | None = ...,
    accuracy: float | None = ...,
    freeze: bool = ...,
) -> Executable: ...


def build(
    model: ModelLike,
    target: str | Target = "cpu",
    log: str | os.PathLike[str] | None = None,
    constants: Constants | None = None,
    timings: dict[str, float] | None = None,
    cache: bool = True,
    example: Any = None,
    excess_precision: bool = True,
    weights: str | None = None,
    accuracy: float | None = None,
    freeze: bool = True,
) -> Executable | Kernel:
    """Compile a model with the best schedules of a log; never measures or tunes.

    ``model`` is a path to HLO text, an HLO proto or StableHLO text; an ``HloModule``; what JAX
    lowered, traced or exported; a JAX function, with the arguments ``example`` (a tuple of arrays,
    ``jax.ShapeDtypeStruct`` or pytrees of them: the executable takes and gives their leaves, in
    JAX's order); or a function or ``Schedule`` of the DSL.

    The weights that a model carries are frozen as ``constants`` are; with ``freeze`` false they are
    arguments of the executable, after the model's inputs.

    Groups that the log has nothing for get the default schedule; a log without a single record for
    this model and target draws a warning that says what it holds. ``log="auto"`` takes all logs of
    the user's, of the working directory and those shipped (``autotune.log.shelf``); it warns in a
    line where another processor's are used. ``timings`` is filled with the
    seconds of each stage. With ``cache`` a model that was built before, from the same content and
    schedules by the same compiler, comes from disk (``codegen.driver.store`` says where). With
    ``excess_precision`` (XLA's ``xla_allow_excess_precision``) floats of fewer than 32 bits stay
    f32 between the operations of a fused group and round where the group ends; without, after every
    operation. ``weights`` stores the constant f32 weights of dots and convolutions, 4096 elements
    or more, in a narrow form that the kernels read: "bf16", or "int8" with a scale per output
    channel; ``Executable.weights_analysis`` gives the errors. ``accuracy`` lets schedules add an
    error to plain rounding, at most this much of a result's root mean square, as 1e-5: fast
    algorithms for convolutions. It is the target's option ``-accuracy``; without it a log's
    schedules of more error are not used. What is of the DSL becomes a ``Kernel`` and computes what
    it says; ``ScheduleError`` for a schedule that exceeds the GPU or is half done.
    """
    machine = with_accuracy(target, accuracy)
    schedules = best_traces(log, machine) if log is not None else Schedules({})
    if _is_function(model):
        return _build_func(model, machine, log, schedules)
    spent: dict[str, float] = {} if timings is None else timings
    check_constants(constants)
    known = as_model(model, example)
    exe = _build_graph(
        known, machine, schedules, constants or {}, freeze, spent, cache, excess_precision, weights
    )
    _warn_of_weights(exe)
    if log == AUTO:
        if text := _told(exe, machine):
            warnings.warn(text, NestwrightWarning, stacklevel=2)
    elif log is not None and exe.bundle.notes.get(SCHEDULED) == "0":
        text = _foreign(exe.name, machine, logs.read(log))
        warnings.warn(text, NestwrightWarning, stacklevel=2)
    return exe


def _told(exe: Executable, target: Target) -> str:
    """Return a line on other processors' records in the logs found for a built model."""
    held, lent = logs.with_kin(logs.shelved(), target)
    kernels = (t for t in walk(exe.plan.thunks) if isinstance(t, KernelThunk))
    return logs.told(held, lent, {k.task for k in kernels}, target)


def _build_graph(
    model: str | os.PathLike[str] | Imported,
    target: Target,
    schedules: Schedules,
    constants: Constants,
    freeze: bool,
    timings: dict[str, float],
    cache: bool,
    excess_precision: bool,
    weights: str | None,
) -> Executable:
    """Return the executable of a model: out of the store, if it is used and has it, else built."""
    with timed(timings, "parse"):
        known = None if is_one_file(model) else imported(model)
    frozen = dict(constants) if known is None else known.constants(constants, freeze)
    held, graph = FrozenWeights(frozen), None if known is None else known.module

    def module() -> HloModule:
        with timed(timings, "parse"):
            return graph or imported(model).module

    def fresh() -> Executable:
        with timed(timings, "parse"):
            found = known or imported(model)
        return driver.build_module(
            found.module,
            target,
            schedules,
            frozen,
            timings,
            excess_precision,
            weights=weights,
            inputs=found.names(frozen),
            outputs=found.outputs,
        )

    def stage(name: str) -> str:
        return stage_text(
            module(), target, name, None, schedules, held.arrays(), excess_precision, weights
        )

    content = _content(known or model) if cache and folder() is not None else None
    if content is None:
        return fresh()
    return build_or_load(
        content,
        fresh,
        lambda bundle: Executable(bundle, module, stage),
        target,
        schedules,
        frozen,
        timings,
        excess_precision,
        weights,
    )


def _warn_of_weights(exe: Executable) -> None:
    """Warn, in a single warning, of weights that cannot be narrowed."""
    rows = exe.weights_analysis().get("weights", ())
    kept = [f"{w['name']} because {w['kept']}" for w in rows if w["kept"]]
    if kept:
        named = "; ".join(kept[:4]) + ("; .." if len(kept) > 4 else "")
        text = f"{counted(len(kept), 'weight')} of {exe.name} left f32: {named}"
        warnings.warn(text, NestwrightWarning, stacklevel=3)


def _is_function(model: ModelLike) -> TypeGuard[Func | Schedule]:
    """True for a function or schedule; decided for paths and graphs without loading the DSL."""
    if isinstance(model, str | os.PathLike | HloModule):
        return False
    return isinstance(model, Func | schedule.Schedule)


def _content(model: str | os.PathLike[str] | Imported) -> bytes | None:
    """Return a hash of a model's graph and names; None for a file that cannot be read.

    The weights that it carries are hashed with the other frozen arrays.
    """
    if isinstance(model, Imported):
        return sha256(
            hlo.digest(model.module) + repr((model.inputs, model.outputs)).encode()
        ).digest()
    try:
        return sha256(Path(model).read_bytes()).digest()
    except (OSError, ValueError):
        return None


def best_traces(log: str | os.PathLike[str], target: Target) -> Schedules:
    """Return a log's best schedules for a target, of each workload and of whole models.

    Schedules that cannot be read are left out, with a warning.
    """
    held = logs.with_kin(logs.shelved(), target)[0] if log == AUTO else logs.read(log)
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


def check_constants(constants: Constants | None) -> None:
    """Raise ``ArgumentError`` unless ``constants`` is a mapping or None."""
    if constants is not None and not isinstance(constants, Mapping):
        raise ArgumentError(
            f"constants of type {type(constants).__name__}",
            "they go by the parameters' numbers or names",
            hint="constants={1: weights}",
        )


def _build_func(
    model: Func | Schedule,
    target: Target,
    log: str | os.PathLike[str] | None,
    schedules: Mapping[str, Trace],
) -> Kernel:
    """Compile a schedule as it is, and a function with the log's schedule or the default one.

    The log's schedule also replaces a schedule with holes.
    """
    if isinstance(model, schedule.Schedule):
        model.require_decisions()
    known = tasks.from_func(model, target) if isinstance(model, Func) or model.holes else ()
    trace = schedules.get(known[0].key) if known else None
    if log not in (None, AUTO) and trace is None and (isinstance(model, Func) or model.holes):
        name = model.name if isinstance(model, Func) else model.func.name
        warnings.warn(_foreign(name, target, logs.read(log)), NestwrightWarning, stacklevel=3)
    if trace is not None:
        made = trace.replay(model if isinstance(model, Func) else model.origin)
    elif isinstance(model, Func):
        made = schedule.default_schedule(model, target)
    else:
        made = model
        schedule.require_finished(model.func, target)
    return driver.compile_func(made.func, target)


def _foreign(name: str, target: Target, log: logs.Log) -> str:
    places = ", ".join(map(str, log.paths))
    return (
        f"{places}: no record for {name} on {target.key}; default schedules are used. "
        f"The log holds {logs.describe(log)}"
    )
