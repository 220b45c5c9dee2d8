"""A model run again, beside its reference: what was computed, or how it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...ir.comparison import Comparison, compare_all
from ...ir.hlo.interp import evaluate
from ...ir.hlo.nodes import HloModule
from ...ir.hlo.passes.freeze_parameters import freeze
from ...ir.target import Target
from ...schedule.trace import Trace
from ..build import build

Values: TypeAlias = Sequence[Any]
Constants: TypeAlias = Mapping[int | str, Any]


@dataclass(frozen=True)
class Setting:
    """What decides the code: the target, the schedules by a group's key, frozen parameters."""

    target: Target
    schedules: Mapping[str, Trace] = field(default_factory=dict)
    constants: Constants | None = None


@dataclass(frozen=True)
class Outcome:
    """``rows`` compares each result; ``error`` is what building or running raised instead."""

    rows: tuple[Comparison, ...] = ()
    results: Any = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Is every result right?"""
        return self.error is None and all(r.ok for r in self.rows)

    def is_like(self, other: Outcome) -> bool:
        """Did both fail, and in the same manner?"""
        return not self.ok and not other.ok and type(self.error) is type(other.error)

    def __str__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return "\n".join(f"out{r.output}: {r}" for r in self.rows)


def replay(module: HloModule, args: Values, setting: Setting, wanted: Any = None) -> Outcome:
    """Build a module, run it, and compare it with ``wanted``, or else with the interpreter.

    What the interpreter raises is raised: without a reference there is no answer.
    """
    if wanted is None:
        constants = setting.constants
        wanted = evaluate(freeze(module, constants) if constants else module, args)
    try:
        exe = build(module, setting.target, setting.schedules, setting.constants)
        results = exe(*args)
    except Exception as error:  # a fault of any kind is what is looked for
        return Outcome(error=error)
    return Outcome(tuple(compare_all(results, wanted, setting.target.tf32)), results)
