"""Locate a fault: the first graph pass, or else the first group, that changes a value.

The interpreter runs the module after every pass: the first that does not preserve the original's
results is at fault. If none is, it runs the optimized module once more, and each group is built
alone and run on the interpreter's values of its inputs, loop bodies included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...ir.comparison import Comparison, compare_all
from ...ir.errors import UnsupportedError
from ...ir.hlo.fuse.fusion import Fusion, Group
from ...ir.hlo.interp.evaluate import evaluate, evaluate_computation
from ...ir.hlo.interp.flushing import flushing_as
from ...ir.hlo.layouts import Orders, entry_orders
from ...ir.hlo.nodes import Computation, HloModule, Instruction
from ...ir.hlo.passes.pipeline import optimize
from ...ir.hlo.passes.prepare.freeze_parameters import freeze
from ...ir.hlo.rewrite import reachable
from ..driver.options import BuildOptions
from ..driver.oracle import in_memory_order
from ..plan.groups import fuse_module
from .run import ReplayResult, Setting, Values, replay

RUNS = 4  # of one group, on the first values that come: a loop body meets many


@dataclass(frozen=True)
class Fault:
    """The faulty pass or group and the deviation; ``plan``: each group alone is correct.

    For a group, ``module`` is the group alone and ``arguments`` its inputs; otherwise the whole.
    ``setting`` reproduces the failure of that module; a group alone determines by itself what is
    rounded.
    """

    kind: Literal["pass", "group", "plan"]
    name: str
    deviation: str
    module: HloModule
    arguments: Values
    setting: Setting

    def __str__(self) -> str:
        match self.kind:
            case "pass":
                return f"graph pass {self.name} changes what the model computes: {self.deviation}"
            case "group":
                return f"group {self.name} is the first that goes wrong: {self.deviation}"
            case _:
                return (
                    "each pass and each group alone is right: the fault lies in how groups are put "
                    "together (order, places in memory, control flow)"
                )


def locate(module: HloModule, args: Values, setting: Setting) -> Fault:
    """Return the first fault of a module whose replay failed."""
    with flushing_as(setting.target):
        return _located(module, args, setting)


def _located(module: HloModule, args: Values, setting: Setting) -> Fault:
    frozen = freeze(module, setting.constants) if setting.constants else module
    whole = replace(setting, constants=None)
    watch = _Watch(entry_orders(frozen), args, evaluate(frozen, args), setting.target.tf32)
    try:
        optimized = optimize(frozen, instruments=(watch,))
    except _FoundError as found:
        return Fault("pass", found.name, found.deviation, frozen, args, whole)
    try:
        groups = fuse_module(optimized, setting.options.excess_precision, setting.target)
        test = _Groups(groups.fusions, setting)
        evaluate_computation(
            optimized.entry, in_memory_order(args, watch.orders.params), test.observe
        )
    except _FoundError as found:
        assert found.module is not None
        alike = replace(whole, options=_strict(setting.options))
        return Fault("group", found.name, found.deviation, found.module, found.arguments, alike)
    except UnsupportedError:  # replay said so already
        pass
    return Fault("plan", "", "", frozen, args, whole)


class _FoundError(Exception):
    """Ends the search with its finding, and for a group the group itself."""

    def __init__(
        self, name: str, deviation: str, module: HloModule | None = None, arguments: Values = ()
    ) -> None:
        super().__init__(name)
        self.name, self.deviation, self.module, self.arguments = name, deviation, module, arguments


@dataclass(frozen=True)
class _Watch:
    """Evaluates the module after each pass that changed it.

    One of the passes makes layouts part of the program: from then on the module has no ``orders``,
    and takes and returns arrays in memory order.
    """

    orders: Orders
    args: Values
    wanted: Any
    tf32: bool

    def after(self, number: int, name: str, ir: HloModule, changed: bool, seconds: float) -> None:
        if not (number and changed):
            return
        args, wanted = self.args, self.wanted
        if not any((*entry_orders(ir).params, *entry_orders(ir).results)):
            args, wanted = (
                in_memory_order(args, self.orders.params),
                in_memory_order([wanted], self.orders.results),
            )
        bad = [r for r in compare_all(evaluate(ir, args), wanted, self.tf32) if not r.ok]
        if bad:
            raise _FoundError(f"{number}, {name}", _summary(bad))


def _summary(rows: Sequence[Comparison]) -> str:
    return "; ".join(f"out{r.output} {r}" for r in rows[:4])


@dataclass
class _Groups:
    """Tests groups while the interpreter runs; ``values`` are those of the current computation."""

    fusions: Mapping[Computation, Fusion]
    setting: Setting
    values: dict[Instruction, Any] = field(default_factory=dict)
    runs: dict[Group, int] = field(default_factory=dict)
    last_of: dict[Instruction, list[Group]] = field(init=False)

    def __post_init__(self) -> None:
        self.last_of = {}
        for computation, fusion in self.fusions.items():
            place = {i: n for n, i in enumerate(computation.instructions)}
            for g in fusion.groups:
                last = max(g.outputs, key=lambda o: place[o])
                self.last_of.setdefault(last, []).append(g)

    def observe(self, instruction: Instruction, value: Any) -> None:
        """Record a value; run the groups of which it is the last result."""
        self.values[instruction] = value
        for group in self.last_of.get(instruction, ()):
            if self.runs.get(group, 0) < RUNS:
                self.runs[group] = self.runs.get(group, 0) + 1
                self.test(group)

    def test(self, group: Group) -> None:
        """Build a group alone and compare it with the interpreter on the current values."""
        args = [self.values[i] for i in group.inputs]
        wanted = evaluate_computation(group.computation, args)
        fixed: dict[int | str, Any] = {
            n: a for n, a in enumerate(args) if group.inputs[n].opcode == "constant"
        }
        module, given = (
            single_module(group.computation),
            [a for n, a in enumerate(args) if n not in fixed],
        )
        options = _strict(self.setting.options)
        setting = replace(self.setting, constants=fixed or None, options=options)
        outcome = replay(module, given, setting, wanted)
        if not outcome.ok:
            frozen = freeze(module, fixed) if fixed else module
            raise _FoundError(group.name, _failure(outcome), frozen, given)


def _strict(options: BuildOptions) -> BuildOptions:
    """Return the options for a group alone, whose types are explicit."""
    return replace(options, excess_precision=False)


def _failure(outcome: ReplayResult) -> str:
    if outcome.error is not None:
        return str(outcome)
    return _summary([r for r in outcome.rows if not r.ok])


def single_module(computation: Computation) -> HloModule:
    """Return a module of one computation and everything it calls."""
    return HloModule(computation.name, reachable(computation), computation)
