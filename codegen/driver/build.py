"""Build an executable from a module: optimize, fuse, one kernel per distinct group, plan, load."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ir.accuracy import WIDE
from ...ir.arrays import Bytes
from ...ir.errors import UnsupportedError
from ...ir.findings import Finding
from ...ir.hlo.analysis.inputs import drawable, draws
from ...ir.hlo.analysis.support import refusal, together
from ...ir.hlo.fuse.fusion import Group
from ...ir.hlo.fuse.kinds import pattern
from ...ir.hlo.layouts import entry_orders
from ...ir.hlo.limits import exhaustion_as_limit
from ...ir.hlo.nodes import HloModule
from ...ir.hlo.ops.collectives import devices
from ...ir.hlo.ops.definition import Pattern
from ...ir.hlo.ops.registry import definition, work
from ...ir.hlo.passes.prepare.freeze_parameters import freeze
from ...ir.hlo.passes.weights.narrow.report import report_facts
from ...ir.hlo.sources import source
from ...ir.hlo.text.canonical import canonical_text
from ...ir.hlo.text.content import literal_size
from ...ir.hlo.text.printer import show
from ...ir.library.functions import INTERPRETER
from ...ir.target import Target
from ...ir.targets.processor import cores
from ...schedule.language.trace import Trace
from ...te.from_hlo import lower_group
from ..plan.bundle import Bundle
from ..plan.code.kernel import KernelCode
from ..plan.compiled import Compiled
from ..plan.counters import count
from ..plan.facts import DEFAULT, LOG, TRACE, Facts, cost
from ..plan.facts import to_json as facts_json
from ..plan.groups import Groups, fuse_module, symbol
from ..plan.nodes import Plan
from ..plan.nodes import kernels as plan_kernels
from ..plan.notes import (
    ALLOWED,
    DEVICES,
    DRAWS,
    EXCESS_PRECISION,
    FACTS,
    FALLBACK,
    HLO,
    SCHEDULED,
    WEIGHTS,
)
from ..plan.saved.seal import seal
from ..plan.sequence import make_plan
from ..plan.signature import named
from ..plan.streaming import streamed_outputs
from ..runtime.executable import Executable
from ..runtime.packing import packers
from ..targets.registry import backend
from ..targets.timings import timed
from .compile_group import LoweredGroup
from .frozen_weights import FrozenWeights
from .horizontal_fusion import FusedKernels, fused_kernels
from .options import BuildOptions, OptionsLike
from .parallel import CompileJob, Helper, compile_all, started_helpers
from .schedules import for_groups
from .stages import optimized_module, stage_text

HLO_KEPT = 1 << 26  # characters of HLO text that a saved executable holds
LITERALS_KEPT = 1 << 20  # elements of constants in it: printing more takes longer than compiling


def build(
    module: HloModule,
    options: OptionsLike = "cpu",
    schedules: Mapping[str, Trace] | None = None,
    constants: Mapping[int | str, Any] | None = None,
    timings: dict[str, float] | None = None,
    passes: bool = True,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Executable:
    """Compile a module. Nothing is measured.

    ``schedules`` are traces by a group's canonical key; a group without one, or whose trace no
    longer applies (which is logged), gets the default schedule; ``Schedules`` also hold what won
    for a model as a whole. ``constants`` are parameters to freeze, by number or name. ``timings``
    is filled with seconds by stage. ``passes`` is false for a module that is optimized already.
    ``inputs`` and ``outputs`` name the arguments that are left and the results; by default the
    module's parameters do, and numbers. Raises ``UnsupportedError``, which lists everything that
    cannot be compiled, and ``LimitError`` for what asks for more than there is.
    """
    given = BuildOptions.of(options)
    spent: dict[str, float] = {} if timings is None else timings
    with started_helpers(given.target, _anchors(module)) as helpers:
        builder = PreparedModule(module, given, constants, spent, passes, inputs, outputs)
        return builder.build({} if schedules is None else schedules, helpers)


def _anchors(module: HloModule) -> int:
    """Return the number of distinct products, windows and reductions: about as many kernels."""
    return len(
        {
            (i.opcode, i.shape, *(o.shape for o in i.operands))
            for c in module.computations
            for i in c.instructions
            if pattern(i) in (Pattern.OUT_FUSABLE, Pattern.WINDOW, Pattern.REDUCTION)
        }
    )


class PreparedModule:
    """A module ready to be built under different schedules.

    The passes run once, and a group's kernel is compiled once for each schedule it is given.
    """

    def __init__(
        self,
        module: HloModule,
        options: OptionsLike = "cpu",
        constants: Mapping[int | str, Any] | None = None,
        timings: dict[str, float] | None = None,
        passes: bool = True,
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
    ) -> None:
        """Prepare a module; arguments as for ``build``, which goes on filling ``timings``."""
        self.module = module
        self.options = BuildOptions.of(options)
        self.target = self.options.target
        self.constants = constants
        self.inputs, self.outputs = inputs, outputs
        self._refused: dict[str, UnsupportedError] = {}
        self.timings: dict[str, float] = {} if timings is None else timings
        self._kernels: dict[tuple[str, str], KernelCode] = {}
        with exhaustion_as_limit(module.name):
            with timed(self.timings, "optimize"):
                self.frozen = freeze(module, constants) if constants else module
                self.optimized, self.narrowed = (
                    optimized_module(self.frozen, self.options) if passes else (self.frozen, ())
                )
            _require_exchange(self.optimized, self.target)
            with timed(self.timings, "fuse"):
                self.groups = fuse_module(
                    self.optimized, self.options.excess_precision, self.target
                )

    def build(self, schedules: Mapping[str, Trace], helpers: Sequence[Helper] = ()) -> Executable:
        """Build the executable under these schedules; raises as ``build``.

        ``helpers`` are children that were started for this.
        """
        with exhaustion_as_limit(self.module.name):
            return self._build(schedules, helpers)

    def _build(self, schedules: Mapping[str, Trace], helpers: Sequence[Helper]) -> Executable:
        spent, target, module = self.timings, self.target, self.module
        keys = [*self.groups.distinct, *self.groups.extra]
        chosen = for_groups(schedules, keys)
        library = _library(chosen, self.groups, target)
        traces = {key: trace for key, trace in chosen.items() if not trace.library}
        fused = fused_kernels(self.groups, target, traces, spent)
        kept = None if fused is None else fused.known
        kernels = self._compiled(traces, [k for k in keys if k not in library], helpers, kept)
        library |= dict.fromkeys(self._refused, INTERPRETER)
        with timed(spent, "plan"):
            used = {k: (t.record, k in library or kernels[k].traced) for k, t in chosen.items()}
            made = _as_called(self.groups, kernels, library, used)
            plan, constants, facts = self._planned(made, fused)
        made_of = self._called(plan, kernels, fused)
        codes = {name: kernel.code for name, kernel in made_of.items()}
        buffers = {name: kernel.buffers for name, kernel in made_of.items()}
        with timed(spent, "llvm"):
            code = backend(target).finish(plan, seal(plan, codes, buffers), target, codes)
        bundle = Bundle(
            name=module.name,
            target=target,
            plan=plan,
            kernels=codes,
            buffers=buffers,
            program=code.code,
            runtime=code.runtime,
            constants=constants,
            costs=_costs(plan, facts),
            notes=self._notes(schedules, facts),
        )
        count(built=1, kernels=len(kernels))
        with timed(spent, "link"):
            return Executable(bundle, lambda: module, self._stages(schedules))

    def _planned(
        self, made: Mapping[str, Compiled], fused: FusedKernels | None
    ) -> tuple[Plan, Bytes, Sequence[Facts]]:
        """Return the plan that calls compiled groups, its constants in memory, and its facts."""
        space = {key: one.workspace for key, one in made.items()}
        plan, pool, facts = make_plan(
            self.optimized,
            self.groups,
            made.__getitem__,
            entry_orders(self.frozen),
            backend(self.target).alignment,
            None if fused is None else fused.fusion(space),
        )
        return _with_names(plan, self.inputs, self.outputs), pool.memory(cores()), facts

    def _stages(self, schedules: Mapping[str, Trace]) -> Callable[[str], str]:
        """Return the function that shows a stage. It does not keep what was prepared here."""
        module, options, held = self.module, self.options, FrozenWeights(self.constants)

        def show_stage(stage: str) -> str:
            return stage_text(module, options, stage, schedules=schedules, constants=held.arrays())

        return show_stage

    def _notes(self, schedules: Mapping[str, Trace], facts: Sequence[Facts]) -> dict[str, str]:
        """Return what the bundle says of itself."""
        hlo = {} if self.constants or self.options.weights else _hlo(self.module)
        rounding = {EXCESS_PRECISION: str(int(self.options.excess_precision))}
        given = hlo | rounding | _draws(self.frozen) | _devices(self.frozen)
        made = _scheduled(self.groups, schedules) | {FACTS: facts_json(facts)}
        return given | made | self._narrow() | self._interpreted()

    def _narrow(self) -> dict[str, str]:
        """Return the note of what became of each weight, where they are narrow."""
        asked = self.options.weights
        if asked in (None, WIDE) and not self.narrowed:
            return {}
        form = asked or f"{ALLOWED}{self.target.accuracy:g}"
        return {WEIGHTS: json.dumps(report_facts(form, self.narrowed))}

    def _interpreted(self) -> dict[str, str]:
        """Return the note of the groups that the interpreter runs, and why."""
        if not self._refused:
            return {}
        groups = self.groups.distinct
        told = {groups[key].name: str(e).splitlines()[0] for key, e in self._refused.items()}
        return {FALLBACK: json.dumps(told)}

    def _compiled(
        self,
        schedules: Mapping[str, Trace],
        keys: Sequence[str],
        helpers: Sequence[Helper],
        kept: dict[str, LoweredGroup] | None,
    ) -> dict[str, KernelCode]:
        """Return the code of these groups by key, compiled where it is not cached."""
        names = {key: (key, _text(schedules.get(key))) for key in keys}
        missing = [key for key, name in names.items() if name not in self._kernels]
        if missing:
            made, refused = compile_groups(
                self.groups, self.target, schedules, self.timings, missing, helpers, kept
            )
            self._refuse(refused)
            self._kernels |= {names[key]: kernel for key, kernel in made.items()}
        return {key: self._kernels[name] for key, name in names.items() if key not in self._refused}

    def _called(
        self, plan: Plan, kernels: Mapping[str, KernelCode], fused: FusedKernels | None
    ) -> dict[str, KernelCode]:
        """Return the kernels of a plan by symbol: of groups by key, and fused ones of several."""
        alone = {symbol(key): code for key, code in kernels.items()}
        if fused is None:
            return alone
        called = plan_kernels(plan)
        joined = {name: self._fused_kernel(fused, name) for name in called if name in fused.made}
        return {name: code for name, code in alone.items() if name in called} | joined

    def _fused_kernel(self, fused: FusedKernels, name: str) -> KernelCode:
        """Return the code of a fused kernel, compiled where it is not cached."""
        keys = fused.made[name].keys
        known = name, "\n".join(_text(fused.traces.get(key)) for key in keys)
        if known not in self._kernels:
            self._kernels[known] = fused.compile(name)
        return self._kernels[known]

    def _refuse(self, refused: Mapping[str, UnsupportedError]) -> None:
        """Raise one error for the groups that cannot be compiled, unless they are interpreted."""
        guarded = {self.groups.keys[g] for g in self.groups.guards}
        helped = self.options.fallback is not None and self.target.row.place == "process"
        if refused and (not helped or guarded & set(refused)):
            raise together(list(refused.values()), self.module.name)
        self._refused.update(refused)


def _library(schedules: Mapping[str, Trace], groups: Groups, target: Target) -> dict[str, str]:
    """Return the library functions that compute groups, by a group's key.

    They run in the process, and only for groups whose kernel needs no guard.
    """
    if target.row.place != "process":
        return {}
    guarded = {groups.keys[g] for g in groups.guards}
    found = {key: trace.library for key, trace in schedules.items()}
    return {key: name for key, name in found.items() if name and key not in guarded}


def _text(trace: Trace | None) -> str:
    return "" if trace is None else json.dumps([trace.accuracy, trace.to_json()])


def _scheduled(groups: Groups, schedules: Mapping[str, Trace]) -> dict[str, str]:
    """Return the note of how many groups a log has a schedule for, used or not."""
    return {SCHEDULED: str(sum(name in schedules for name in groups.distinct))}


def _hlo(module: HloModule) -> dict[str, str]:
    if literal_size(module) > LITERALS_KEPT:
        return {}
    text = show(module)
    return {HLO: text} if len(text) <= HLO_KEPT else {}


def _require_exchange(module: HloModule, target: Target) -> None:
    """``UnsupportedError`` for collectives of devices whose memory this process does not reach."""
    if target.row.place == "process":
        return
    why = "exchanging values between GPUs needs NCCL, which this version does not use"
    found = [
        Finding(i.opcode, i.name, c.name, why, 'build it with target="cpu"', source(i))
        for c in module.computations
        for i in c.instructions
        if definition(i.opcode).collective
    ]
    if found:
        raise refusal(found, module.name)


def _devices(module: HloModule) -> dict[str, str]:
    """Return the note of the devices that a program is written for, if they are several."""
    found = devices(module)
    return {DEVICES: f"{found.replicas},{found.partitions}"} if found.count > 1 else {}


def _draws(module: HloModule) -> dict[str, str]:
    """Return the note of how to draw arguments, for an executable without its HLO."""
    if not drawable(module.entry):
        return {}
    return {DRAWS: json.dumps([[d.scale, d.positive] for d in draws(module.entry)])}


def _as_called(
    groups: Groups,
    kernels: Mapping[str, KernelCode],
    library: Mapping[str, str],
    used: Mapping[str, tuple[str, bool]],
) -> dict[str, Compiled]:
    """Return the kernels and library functions of the groups, by key.

    ``used`` has the record of each schedule that was given, and if it is in force.
    """
    found = {key: group.computation for key, group in groups.distinct.items()}
    computations = found | dict(groups.extra)

    def with_facts(key: str, made: Compiled) -> Compiled:
        record, in_force = used.get(key, ("", False))
        schedule = (LOG if record else TRACE) if in_force else DEFAULT
        return replace(made, work=work(computations[key]), schedule=schedule, record=record)

    made = {
        name: Compiled(symbol(name), name, k.workspace, k.sharing, packers(k.packs))
        for name, k in kernels.items()
    }
    for key, chosen in library.items():
        text = canonical_text(computations[key]) if chosen == INTERPRETER else ""
        made[key] = Compiled(symbol(key), key, library=chosen, text=text)
    return {key: with_facts(key, one) for key, one in made.items()}


def _with_names(plan: Plan, inputs: Sequence[str], outputs: Sequence[str]) -> Plan:
    """Return the plan with the model's own names of its arguments and results, if it has any."""
    params = named(plan.params, plan.param_tree, inputs)
    return replace(plan, params=params, results=named(plan.results, plan.result_tree, outputs))


def compile_groups(
    groups: Groups,
    target: Target,
    schedules: Mapping[str, Trace],
    timings: dict[str, float],
    wanted: Collection[str] | None = None,
    helpers: Sequence[Helper] = (),
    kept: dict[str, LoweredGroup] | None = None,
) -> tuple[dict[str, KernelCode], dict[str, UnsupportedError]]:
    """Compile the groups of a module and of its guards, by key; only those in ``wanted``.

    Also returns why groups cannot be compiled. ``kept`` gets groups as ``compile_all`` gives them.
    """
    known = {key: group.computation for key, group in groups.distinct.items()}
    streamed = streamed_outputs(groups, target)
    jobs = {
        key: CompileJob(canonical_text(c), symbol(key), schedules.get(key), streamed.get(key, ()))
        for key, c in (known | dict(groups.extra)).items()
        if wanted is None or key in wanted
    }
    done, errors = compile_all(jobs, target, timings, helpers, kept)
    refused: dict[str, UnsupportedError] = {}
    for key, error in errors.items():
        if not isinstance(error, UnsupportedError) or key not in groups.distinct:
            raise error
        refused[key] = _named(groups.distinct[key], error)
    return done, refused


def _named(group: Group, error: UnsupportedError) -> UnsupportedError:
    """Return the error in terms of the model's own names: canonical text has neither names nor
    sources.
    """
    try:
        lower_group(group.computation, group.name)
    except UnsupportedError as better:
        return better
    result = group.outputs[0]
    name = group.computation.name
    found = Finding(result.opcode, result.name, name, str(error), "", source(result))
    return replace(error, where=error.where or f"{found}", findings=error.findings or (found,))


def _costs(plan: Plan, facts: Sequence[Facts]) -> dict[str, float]:
    """Return the numbers of ``cost_analysis`` for one run of a plan, as ``plan.facts`` counts them.

    Conventions of XLA's HloCostAnalysis: a multiply-add counts two, an element-wise operation one
    per element, transcendental functions are counted separately. ``bytes accessed`` is read and
    written by the plan's kernels and copies, so what fusion keeps in registers does not count, and
    what it computes twice counts twice.
    """
    counted = cost(plan, facts)
    return {
        "flops": counted.flops,
        "transcendentals": counted.transcendentals,
        "bytes accessed": counted.bytes,
    }
