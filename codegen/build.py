"""A module becomes an executable: optimize, fuse, one kernel per distinct group, plan, load."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..ir.errors import Finding, UnsupportedError
from ..ir.hlo.canonical import canonical_text
from ..ir.hlo.content import literal_size
from ..ir.hlo.fuse import Group
from ..ir.hlo.inputs import draws
from ..ir.hlo.layouts import Orders, entry_orders
from ..ir.hlo.limits import exhaustion
from ..ir.hlo.nodes import HloModule, Shape
from ..ir.hlo.passes.freeze_parameters import freeze
from ..ir.hlo.passes.pipeline import optimize
from ..ir.hlo.printer import show
from ..ir.hlo.sources import source
from ..ir.hlo.support import together
from ..ir.target import Target
from ..schedule.trace import Trace
from ..te.from_hlo import lower_group
from . import store
from .backend import backend
from .code import KernelCode
from .compiled import Compiled
from .constants import Constants
from .costs import costs
from .counters import count
from .groups import Groups, compiled, fuse_module, symbol
from .memory import alignment
from .packing import packers
from .parallel import Job, compile_all
from .plan import Plan
from .runtime.bundle import EXCESS_PRECISION, Bundle
from .runtime.executable import Executable
from .seal import seal
from .sequence import make_plan
from .stages import stage_text
from .timings import timed

HLO_KEPT = 1 << 26  # characters of HLO text that a saved executable holds
LITERALS_KEPT = 1 << 20  # elements of constants in it: printing more takes longer than compiling


def build(
    module: HloModule,
    target: Target | str = "cpu",
    schedules: Mapping[str, Trace] | None = None,
    constants: Mapping[int | str, Any] | None = None,
    timings: dict[str, float] | None = None,
    excess_precision: bool = True,
) -> Executable:
    """Compile a module. Nothing is measured.

    ``schedules`` are traces by a group's canonical key; a group without one, or whose trace no
    longer applies (which is logged), gets the default schedule. ``constants`` are parameters to
    freeze, by number or name. ``timings`` is filled with seconds by stage. With
    ``excess_precision`` floats of fewer than 32 bits stay f32 between the operations of a group;
    without, every operation rounds. Raises ``UnsupportedError``, which lists everything that cannot
    be compiled, and ``LimitError`` for what asks for more than there is.
    """
    spent: dict[str, float] = {} if timings is None else timings
    with exhaustion(module.name):
        machine = Target.parse(target)
        return _build(module, machine, schedules or {}, constants, spent, excess_precision)


def _build(
    module: HloModule,
    machine: Target,
    chosen: Mapping[str, Trace],
    constants: Mapping[int | str, Any] | None,
    spent: dict[str, float],
    excess_precision: bool,
) -> Executable:
    with timed(spent, "optimize"):
        frozen = freeze(module, constants) if constants else module
        optimized = optimize(frozen)
    with timed(spent, "fuse"):
        groups = fuse_module(optimized, excess_precision)
    kernels = compile_groups(groups, machine, chosen, spent, module.name)
    with timed(spent, "plan"):
        plan, pool = _plan(optimized, groups, kernels, machine, entry_orders(frozen))
    codes = {symbol(k): kernels[k].code for k in kernels}
    buffers = {symbol(k): kernels[k].buffers for k in kernels}
    with timed(spent, "llvm"):
        code = backend(machine).finish(plan, seal(plan, codes, buffers), machine, codes)
    bundle = Bundle(
        name=module.name,
        target=machine,
        plan=plan,
        kernels=codes,
        buffers=buffers,
        program=code.code,
        runtime=code.runtime,
        constants=pool.memory(),
        costs=costs(optimized, plan),
        notes=_draws(frozen)
        | ({} if constants else _hlo(module))
        | _scheduled(groups, chosen)
        | {EXCESS_PRECISION: str(int(excess_precision))},
    )
    count(built=1, kernels=len(kernels))
    with timed(spent, "link"):
        return _executable(bundle, lambda: module, chosen, constants, excess_precision)


def build_or_load(
    digest: bytes,
    module: Callable[[], HloModule],
    target: Target,
    schedules: Mapping[str, Trace],
    constants: Mapping[int | str, Any] | None,
    timings: dict[str, float],
    excess_precision: bool = True,
) -> Executable:
    """What ``build`` makes, out of the store on disk if it is there, else kept there.

    ``digest`` names the model by its content; ``module`` reads it, and is called where it must be.
    """
    with timed(timings, "cache"):
        key = store.key(digest, target, schedules, constants, excess_precision)
        bundle = store.get(key)
    if bundle is None:
        exe = build(module(), target, schedules, constants, timings, excess_precision)
        with timed(timings, "cache"):
            store.put(key, exe.bundle)
        return exe
    count(loaded=1)
    with timed(timings, "link"):
        return _executable(bundle, module, schedules, constants, excess_precision)


def _executable(
    bundle: Bundle,
    module: Callable[[], HloModule],
    schedules: Mapping[str, Trace],
    constants: Mapping[int | str, Any] | None,
    excess_precision: bool,
) -> Executable:
    def stages(stage: str) -> str:
        return stage_text(
            module(), bundle.target, stage, None, schedules, constants, excess_precision
        )

    return Executable(bundle, module, stages)


def _scheduled(groups: Groups, schedules: Mapping[str, Trace]) -> dict[str, str]:
    """How many groups have a schedule out of a log."""
    return {"scheduled": str(sum(name in schedules for name in groups.distinct))}


def _hlo(module: HloModule) -> dict[str, str]:
    if literal_size(module) > LITERALS_KEPT:
        return {}
    text = show(module)
    return {"hlo": text} if len(text) <= HLO_KEPT else {}


def _draws(module: HloModule) -> dict[str, str]:
    """How to draw arguments, for an executable that does not hold its HLO."""
    if not all(isinstance(p.shape, Shape) for p in module.entry.parameters):
        return {}
    return {"draws": json.dumps([[d.scale, d.positive] for d in draws(module.entry)])}


def _plan(
    module: HloModule,
    groups: Groups,
    kernels: Mapping[str, KernelCode],
    target: Target,
    orders: Orders,
) -> tuple[Plan, Constants]:
    made = {
        name: Compiled(symbol(name), name, k.workspace, k.sharing, packers(k.packs))
        for name, k in kernels.items()
    }

    find = compiled(groups, made.__getitem__)
    return make_plan(module, groups.fusions, find, orders, alignment(target))


def compile_groups(
    groups: Groups,
    target: Target,
    schedules: Mapping[str, Trace],
    timings: dict[str, float],
    name: str,
) -> dict[str, KernelCode]:
    """The code of every distinct group of module ``name`` and of its guards, by key."""
    wanted = {key: group.computation for key, group in groups.distinct.items()}
    jobs = {
        key: Job(canonical_text(c), symbol(key), schedules.get(key))
        for key, c in (wanted | dict(groups.extra)).items()
    }
    done, errors = compile_all(jobs, target, timings)
    problems: list[UnsupportedError] = []
    for key, error in errors.items():
        if not isinstance(error, UnsupportedError) or key not in groups.distinct:
            raise error
        problems.append(_named(groups.distinct[key], error))
    if problems:
        raise together(problems, name)
    return done


def _named(group: Group, error: UnsupportedError) -> UnsupportedError:
    """The error in terms of the model's own names: canonical text has neither names nor sources."""
    try:
        lower_group(group.computation, group.name)
    except UnsupportedError as better:
        return better
    result = group.outputs[0]
    name = group.computation.name
    found = Finding(result.opcode, result.name, name, str(error), "", source(result))
    return replace(error, where=error.where or f"{found}", findings=error.findings or (found,))
