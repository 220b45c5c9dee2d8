"""Where a model goes wrong: the first graph pass, or else the first group, that changes a value.

The interpreter runs the module after every pass: the first that does not give the original's
results is at fault. If none is, it runs the optimized module once more, and each group is built
alone and run on the very values that the interpreter has for its inputs, loop bodies included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...ir.comparison import Comparison, compare_all
from ...ir.errors import UnsupportedError
from ...ir.hlo.fuse.fusion import Fusion, Group
from ...ir.hlo.interp.evaluate import evaluate, evaluate_computation
from ...ir.hlo.layouts import Orders, entry_orders
from ...ir.hlo.nodes import Computation, HloModule, Instruction
from ...ir.hlo.passes.pipeline import optimize
from ...ir.hlo.passes.prepare.freeze_parameters import freeze
from ...ir.hlo.rewrite import reachable
from ..driver.oracle import stored
from ..plan.groups import fuse_module
from .run import ReplayResult, Setting, Values, replay

RUNS = 4  # of one group, on the first values that come: a loop body meets many


@dataclass(frozen=True)
class Fault:
    """Which pass or group is wrong, and how far; ``plan``: each group alone is right.

    For a group, ``module`` is the group alone and ``arguments`` what it got; for others, the whole.
    ``setting`` is how that module fails; a group alone says by itself what is rounded.
    """

    kind: Literal["pass", "group", "plan"]
    name: str
    told: str
    module: HloModule
    arguments: Values
    setting: Setting

    def __str__(self) -> str:
        match self.kind:
            case "pass":
                return f"graph pass {self.name} changes what the model computes: {self.told}"
            case "group":
                return f"group {self.name} is the first that goes wrong: {self.told}"
            case _:
                return (
                    "each pass and each group alone is right: the fault lies in how groups are put "
                    "together (order, places in memory, control flow)"
                )


def locate(module: HloModule, args: Values, setting: Setting) -> Fault:
    """The first fault of a module whose replay failed."""
    frozen = freeze(module, setting.constants) if setting.constants else module
    whole = replace(setting, constants=None)
    watch = _Watch(entry_orders(frozen), args, evaluate(frozen, args), setting.target.tf32)
    try:
        optimized = optimize(frozen, instruments=(watch,))
    except _FoundError as found:
        return Fault("pass", found.name, found.told, frozen, args, whole)
    try:
        groups = fuse_module(optimized, setting.excess_precision)
        test = _Groups(groups.fusions, setting)
        evaluate_computation(optimized.entry, stored(args, watch.orders.params), test.observe)
    except _FoundError as found:
        assert found.module is not None
        alike = replace(whole, excess_precision=False)
        return Fault("group", found.name, found.told, found.module, found.arguments, alike)
    except UnsupportedError:  # replay said so already
        pass
    return Fault("plan", "", "", frozen, args, whole)


class _FoundError(Exception):
    """Ends the search: what was found, and for a group the work itself."""

    def __init__(
        self, name: str, told: str, module: HloModule | None = None, arguments: Values = ()
    ) -> None:
        super().__init__(name)
        self.name, self.told, self.module, self.arguments = name, told, module, arguments


@dataclass(frozen=True)
class _Watch:
    """Evaluates the module after each pass that changed it.

    One of the passes makes layouts part of the program: from then on the module has no ``orders``,
    and takes and gives arrays as they lie in memory.
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
            args, wanted = stored(args, self.orders.params), stored([wanted], self.orders.results)
        bad = [r for r in compare_all(evaluate(ir, args), wanted, self.tf32) if not r.ok]
        if bad:
            raise _FoundError(f"{number}, {name}", _told(bad))


def _told(rows: Sequence[Comparison]) -> str:
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
        """Keep a value; run the groups of which it is the last result."""
        self.values[instruction] = value
        for group in self.last_of.get(instruction, ()):
            if self.runs.get(group, 0) < RUNS:
                self.runs[group] = self.runs.get(group, 0) + 1
                self.test(group)

    def test(self, group: Group) -> None:
        args = [self.values[i] for i in group.inputs]
        wanted = evaluate_computation(group.computation, args)
        fixed: dict[int | str, Any] = {
            n: a for n, a in enumerate(args) if group.inputs[n].opcode == "constant"
        }
        module, given = alone(group.computation), [a for n, a in enumerate(args) if n not in fixed]
        setting = replace(self.setting, constants=fixed or None, excess_precision=False)
        outcome = replay(module, given, setting, wanted)
        if not outcome.ok:
            frozen = freeze(module, fixed) if fixed else module
            raise _FoundError(group.name, _failure(outcome), frozen, given)


def _failure(outcome: ReplayResult) -> str:
    return (
        str(outcome) if outcome.error is not None else _told([r for r in outcome.rows if not r.ok])
    )


def alone(computation: Computation) -> HloModule:
    """A module of one computation and what it calls."""
    return HloModule(computation.name, reachable(computation), computation)
