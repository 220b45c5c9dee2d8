"""``build``: compile a model of any kind with the best schedules of a log; nothing is measured."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeGuard, Unpack, overload

from .. import schedule
from ..codegen import driver
from ..codegen.driver.options import BuildOptions
from ..codegen.driver.schedules import Schedules
from ..codegen.runtime.executable import Executable
from ..ir.errors import ArgumentError, NestwrightWarning
from ..ir.frontends.registry import Shapes
from ..ir.hlo.nodes import HloModule
from ..ir.loop.nodes import Func
from ..ir.target import Target, with_arithmetic
from . import log as logs
from . import tasks
from .log.best import AUTO, best_traces, foreign
from .lowered import Lowered, as_arguments, lower_for
from .recipe import Constants, GraphLike, ImportOptions, ModelLike
from .rules import OpenShapes, SizeRule, checked, fixed, is_open, read_rule
from .variants import built

if TYPE_CHECKING:
    from ..codegen.driver.kernel import Kernel
    from ..schedule.language.schedule import Schedule
    from ..schedule.language.trace import Trace
    from .sized import SizedModel


class _Others(TypedDict, total=False):
    """The arguments of ``build`` that do not decide what it returns."""

    timings: dict[str, float] | None
    cache: bool
    example: Any
    excess_precision: bool
    weights: str | None
    accuracy: float | None
    denormals: str | None
    fallback: str | None
    freeze: bool
    rule: SizeRule
    checks: bool


@overload
def build(
    model: Func | Schedule,
    target: str | Target = ...,
    log: str | os.PathLike[str] | None = ...,
    constants: Constants | None = ...,
    *,
    shapes: None = ...,
    **others: Unpack[_Others],
) -> Kernel: ...


@overload
def build(
    model: GraphLike,
    target: str | Target = ...,
    log: str | os.PathLike[str] | None = ...,
    constants: Constants | None = ...,
    *,
    shapes: Shapes | None = ...,
    **others: Unpack[_Others],
) -> Executable: ...


@overload
def build(
    model: GraphLike,
    target: str | Target = ...,
    log: str | os.PathLike[str] | None = ...,
    constants: Constants | None = ...,
    *,
    shapes: OpenShapes,
    **others: Unpack[_Others],
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
    checks: bool = False,
) -> Executable | Kernel | SizedModel:
    """Compile a model with the best schedules of a log; nothing is measured or tuned.

    Returns an ``Executable``, a ``SizedModel`` if a size in ``shapes`` is open, or a ``Kernel`` for
    a function or ``Schedule`` of the DSL. ``lower(model, *example, ...).compile(...)`` gives an
    executable that takes and returns the model's own trees; here they are flat.

    What is compiled:

    - ``model``: the path of a file, an ``HloModule``, an object of a framework
      (``ir.frontends.registry`` has all), or a function or ``Schedule`` of the DSL.
    - ``example``: the arguments that a function or module is lowered for, one or a tuple: arrays,
      pytrees of them, or anything with ``shape`` and ``dtype``.
    - ``shapes``: sizes of inputs that a file leaves open, by name or place. A ``range``, or None
      for any size, as in ``{"input": (range(1, 65), 3)}``, makes a ``SizedModel``, which compiles
      for the sizes that it is called with.
    - ``rule``: the sizes that it compiles for: "exact", "buckets" (powers of two), a number for its
      multiples, or a list. Smaller inputs are padded and the padding is masked; a model in which
      it cannot be is refused at the call, by the name of the operator.
    - ``freeze``: the weights that a model carries become constants; if false, they are arguments
      after the model's inputs.
    - ``constants``: further parameters to freeze, arrays by number or name.

    For what, and how it computes:

    - ``target``: "cpu", "cuda" or a spec. One with several processors, such as
      ``cpu -mcpu=x86-64-v2,x86-64-v3``, makes a variant for each, of which ``load`` takes the best.
    - ``excess_precision``: floats of fewer than 32 bits stay f32 inside a fused group and are
      rounded at its end (XLA's ``xla_allow_excess_precision``); if false, after every operation.
    - ``weights``: the form in which constant f32 weights of dots and convolutions are stored, from
      4096 elements on: "bf16"; "int8", "int16" or "int24" with a scale per output channel; "int4",
      for dots, with one for each block of 32 terms; "f32" keeps them.
      ``Executable.weights_analysis`` has the errors.
    - ``accuracy``: the error that schedules and the forms of weights may add to plain rounding, at
      most 0.03 of a result's root mean square (``docs/building.md`` says what is done from which
      value on). A log's schedules of more error are not used. The target's option ``-accuracy``.
    - ``denormals``: "flush" lets operations take denormals for 0 and give 0 in their place; "keep",
      the default, changes no mode of the processor. The target's option ``-denormals``.
    - ``fallback``: "interpreter" runs groups that cannot be compiled in the interpreter, slowly,
      on a CPU; ``Executable.fallbacks`` lists them.
    - ``checks``: a model of torch's raises ``PlaceError``, an ``IndexError``, for places beyond
      arrays, and ``DivisionError``, a ``ZeroDivisionError``, for whole numbers divided by 0, with
      the operator's name and line; if false, such places are moved into the array.

    With what:

    - ``log``: a tuning log; "auto" takes all that are shipped or found for this user and in the
      working directory, and tells in a line where another processor's are used. Other groups get
      default schedules. ``NestwrightWarning`` for a log without a record for model and target.
    - ``cache``: a model that was built before, from the same content and schedules by the same
      compiler, is read from disk (``codegen.driver.store``).
    - ``timings``: a dictionary to fill with the seconds of each stage.

    Raises ``ScheduleError`` for a schedule of the DSL that is unfinished or exceeds the GPU.
    """
    if not _is_function(model):
        options_for = partial(
            BuildOptions.given,
            excess_precision=excess_precision,
            weights=weights,
            accuracy=accuracy,
            denormals=denormals,
            fallback=fallback,
        )
        shapes = checked(shapes)
        read_rule(rule)
        if shapes and is_open(shapes):
            _require_exact(checks, rule)
            from .sized import SizedModel  # with what else it takes to compile

            importing = ImportOptions(None, constants, freeze, checks)
            lowered = partial(lower_for, options_for(target), importing)
            return SizedModel(model, shapes, rule, lowered, log)
        importing = ImportOptions(fixed(shapes), constants, freeze, checks)

        def lowered_for(options: BuildOptions) -> Lowered:
            return lower_for(options, importing, model, *as_arguments(example))

        variants = [options_for(each) for each in Target.several(target)]
        return built(lowered_for, variants, log, timings, cache).flat
    machine = with_arithmetic(target, accuracy, denormals)
    schedules = best_traces(log, machine) if log is not None else Schedules({})
    return _build_func(model, machine, log, schedules)


def _require_exact(checks: bool, rule: SizeRule) -> None:
    if checks and rule != "exact":
        why = "padding would be checked, too"
        raise ArgumentError(f"checks=True with rule={rule!r}", why, hint='rule="exact"')


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
