"""The stages of compilation, and the text of a model at each, as ``nestwright show`` prints it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ir import hlo
from ...ir.errors import ArgumentError
from ...ir.lazy import resolve
from ...ir.target import Target
from .options import BuildOptions, OptionsLike

if TYPE_CHECKING:
    from ...ir.hlo.nodes import HloModule
    from ...ir.hlo.passes.weights.narrow.report import NarrowWeight
    from ...ir.passes import Instrument
    from ...schedule.language.trace import Trace

LISTINGS = ("ptx", "asm")  # of code, as the targets here have them
STAGES = (
    *("hlo", "optimized", "fused", "te", "loop", "scheduled", "flat", "llvm"),
    *(*LISTINGS, "plan"),
)
WHOLE = ("hlo", "optimized", "fused", "plan")  # stages that show the model as one
_COMPILED = ".group_stages:compiled_text"  # with the compiler, which graphs are shown without
_BACKEND = "..targets.registry:backend"


def optimized_module(
    module: HloModule, options: BuildOptions, instruments: Sequence[Instrument[HloModule]] = ()
) -> tuple[HloModule, tuple[NarrowWeight, ...]]:
    """Return a module after its graph passes, and what became of each weight; errors as for
    ``optimize_narrow``.
    """
    return hlo.optimize_narrow(
        module,
        options.weights,
        options.target,
        excess_precision=options.excess_precision,
        instruments=instruments,
    )


def stage_text(
    module: HloModule,
    options: OptionsLike,
    stage: str,
    group: str | None = None,
    schedules: Mapping[str, Trace] | None = None,
    constants: Mapping[int | str, Any] | None = None,
) -> str:
    """Return the text of a module at a stage of ``STAGES``, other arguments as for ``build``.

    From ``te`` on it is one text per distinct group, under a heading; ``group``, a group's name or
    the start of its key, selects one. Raises ``ArgumentError`` for a stage or a group that does not
    exist.
    """
    given = BuildOptions.of(options)
    check_stage(stage, given.target, group)
    frozen = hlo.freeze(module, constants) if constants else module
    if stage == "hlo":
        return hlo.show(frozen)
    optimized, _ = optimized_module(frozen, given)
    if stage == "optimized":
        return hlo.show(optimized)
    text: str = resolve(_COMPILED, __package__)(
        optimized, frozen, given, stage, group, schedules or {}
    )
    return text


def check_stage(stage: str, target: Target, group: str | None = None) -> None:
    """Raise ``ArgumentError`` for an unknown stage, or one without groups if ``group`` is given."""
    if not isinstance(stage, str):
        known = f"one of {', '.join(STAGES)}"
        raise ArgumentError(
            f"stage={stage!r}", f"a stage is a text, not {type(stage).__name__}", hint=known
        )
    if stage in LISTINGS or stage not in STAGES:
        _check_listing(stage, target)
    if group is not None and stage in WHOLE:
        raise ArgumentError(f"stage {stage} has no groups of its own", hint="leave --group out")


def _check_listing(stage: str, target: Target) -> None:
    listings = resolve(_BACKEND, __package__)(target).listings
    if stage in LISTINGS and stage not in listings:
        raise ArgumentError(
            f"no stage {stage!r} for this target",
            f"target {target.spec!r} does not produce it",
            hint=f"its code is stage {' or '.join(listings)}",
        )
    if stage not in STAGES and stage not in listings:
        near = difflib.get_close_matches(stage, STAGES, n=1)
        hint = (f"did you mean {near[0]!r}? " if near else "") + f"stages: {', '.join(STAGES)}"
        raise ArgumentError(f"no stage {stage!r}", hint=hint)
