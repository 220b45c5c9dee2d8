"""``build``: compile a model of any kind with the best schedules of a log; nothing is measured."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, overload

from .. import schedule
from ..codegen import driver
from ..codegen.driver.schedules import Schedules
from ..codegen.runtime.executable import Executable
from ..ir.errors import NestwrightWarning
from ..ir.frontends.registry import Shapes
from ..ir.hlo.nodes import HloModule
from ..ir.loop.nodes import Func
from ..ir.target import Target, with_arithmetic
from . import log as logs
from . import tasks
from .log.best import AUTO, best_traces, foreign
from .lowered import as_arguments, lower
from .recipe import Constants, GraphLike, ModelLike
from .rules import OpenShapes, SizeRule, fixed, is_open
from .variants import built

if TYPE_CHECKING:
    from ..codegen.driver.kernel import Kernel
    from ..schedule.language.schedule import Schedule
    from ..schedule.language.trace import Trace
    from .sized import SizedModel


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
    denormals: str | None = ...,
    fallback: str | None = ...,
    freeze: bool = ...,
    shapes: None = ...,
    rule: SizeRule = ...,
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
    denormals: str | None = ...,
    fallback: str | None = ...,
    freeze: bool = ...,
    shapes: Shapes | None = ...,
    rule: SizeRule = ...,
) -> Executable: ...


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
    denormals: str | None = ...,
    fallback: str | None = ...,
    freeze: bool = ...,
    *,
    shapes: OpenShapes,
    rule: SizeRule = ...,
) -> SizedModel: ...


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
    denormals: str | None = None,
    fallback: str | None = None,
    freeze: bool = True,
    shapes: OpenShapes | None = None,
    rule: SizeRule = "exact",
) -> Executable | Kernel | SizedModel:
    """Compile a model with the best schedules of a log; never measures or tunes.

    ``model`` is a path to HLO text, an HLO proto or StableHLO text; an ``HloModule``; what JAX
    lowered, traced or exported; a JAX function, with the arguments ``example`` (a tuple of arrays,
    ``jax.ShapeDtypeStruct`` or pytrees of them: the executable takes and gives their leaves, in
    JAX's order); or a function or ``Schedule`` of the DSL.

    A target may name several processors, ``cpu -mcpu=x86-64-v2,x86-64-v3``: the executable is saved
    as one file with a variant for each, of which ``load`` takes the one that fits best.

    The weights that a model carries are frozen as ``constants`` are; with ``freeze`` false they are
    arguments of the executable, after the model's inputs. ``shapes`` are the sizes of inputs that
    a file leaves open, by name or place. It is ``lower(model, *example, ...).compile(log, timings,
    cache).flat``: ``lower``'s own executable takes and gives the model's trees. A size may be a
    ``range``, or None for any: ``{"input": (range(1, 65), 3)}``. Then a
    ``SizedModel`` is returned, which compiles for the sizes that it is called with: by the rule
    "exact" each of them, by "buckets" the next power of two, by a number its multiples, by a list
    the sizes in it. Smaller inputs are padded, and the padding is masked; a model in which it
    cannot be is refused at the call, by the name of the operator.

    Groups that the log has nothing for get the default schedule; a log without a single record for
    this model and target draws a warning that says what it holds. ``log="auto"`` takes all logs of
    the user's, of the working directory and those shipped (``autotune.log.automatic``); it warns in
    a line where another processor's are used. ``timings`` is filled with the seconds of each stage.
    With ``cache`` a model that was built before, from the same content and
    schedules by the same compiler, comes from disk (``codegen.driver.store`` says where). With
    ``excess_precision`` (XLA's ``xla_allow_excess_precision``) floats of fewer than 32 bits stay
    f32 between the operations of a fused group and round where the group ends; without, after every
    operation. ``weights`` stores the constant f32 weights of dots and convolutions, 4096 elements
    or more, in a narrow form that the kernels read: "bf16", "int8", "int16" or "int24" with a
    scale per output channel, or "int4", of dots, with one for each block of 32 terms;
    ``Executable.weights_analysis`` gives the errors. ``accuracy`` lets
    schedules add an error to plain rounding, at most this much of a result's root mean square, as
    1e-5: fast algorithms for products and convolutions, and the narrowest of the integers where
    weights come from memory, unless ``weights`` is given ("f32" keeps them); from 2.8e-3 on
    products of bf16, and from 1.1e-2 of bytes, where the processor has them. It is the target's
    option ``-accuracy``, at most 0.03; without it a log's schedules of more error are not used.
    ``denormals="flush"`` runs the code in the processor's mode in which an operation takes
    denormals for 0 and gives 0 in their place; "keep", the default, changes no mode. It is the
    target's option ``-denormals``.
    With ``fallback="interpreter"`` groups that cannot be compiled run in the interpreter, slowly,
    and ``Executable.fallbacks`` lists them; on a CPU only. What is of the DSL becomes a ``Kernel``
    and computes what it says; ``ScheduleError`` for a schedule that exceeds the GPU or is half
    done.
    """
    if not _is_function(model):
        options: dict[str, Any] = {
            "target": target,
            "freeze": freeze,
            "constants": constants,
            "excess_precision": excess_precision,
            "weights": weights,
            "accuracy": accuracy,
            "denormals": denormals,
            "fallback": fallback,
        }
        if shapes and is_open(shapes):
            from .sized import SizedModel  # with what else it takes to compile

            return SizedModel(model, shapes, rule, partial(lower, **options), log)
        example = as_arguments(example)
        return built(model, example, fixed(shapes), log, timings, cache, **options).flat
    machine = with_arithmetic(target, accuracy, denormals)
    schedules = best_traces(log, machine) if log is not None else Schedules({})
    return _build_func(model, machine, log, schedules)


def _is_function(model: ModelLike) -> TypeGuard[Func | Schedule]:
    """True for a function or schedule; decided for paths and graphs without loading the DSL."""
    if isinstance(model, str | os.PathLike | HloModule):
        return False
    return isinstance(model, Func | schedule.Schedule)


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
        warnings.warn(foreign(name, target, logs.read(log)), NestwrightWarning, stacklevel=3)
    if trace is not None:
        made = trace.replay(model if isinstance(model, Func) else model.origin)
    elif isinstance(model, Func):
        made = schedule.default_schedule(model, target)
    else:
        made = model
        schedule.require_finished(model.func, target)
    return driver.compile_func(made.func, target)
