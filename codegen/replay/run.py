"""Build and run a model again and compare it with a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...ir.accuracy import rounds_products
from ...ir.comparison import Comparison, compare_all
from ...ir.hlo.nodes import HloModule
from ...ir.hlo.passes.prepare.freeze_parameters import freeze
from ...ir.target import Target
from ...schedule.language.trace import Trace
from ..driver.build import build
from ..driver.options import BuildOptions
from ..driver.oracle import Oracle

Values: TypeAlias = Sequence[Any]
Constants: TypeAlias = Mapping[int | str, Any]


@dataclass(frozen=True)
class Setting:
    """All that determines the code beside the graph: the build's options, schedules by group
    key, and frozen parameters.
    """

    options: BuildOptions
    schedules: Mapping[str, Trace] = field(default_factory=dict)
    constants: Constants | None = None

    @property
    def target(self) -> Target:
        """The machine that code is made for."""
        return self.options.target


@dataclass(frozen=True)
class ReplayResult:
    """``rows`` compares each result; ``error`` is the exception that building or running raised
    instead.
    """

    rows: tuple[Comparison, ...] = ()
    results: Any = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """True if every result is correct."""
        return self.error is None and all(r.ok for r in self.rows)

    def is_like(self, other: ReplayResult) -> bool:
        """True if both failed, and in the same manner."""
        return not self.ok and not other.ok and type(self.error) is type(other.error)

    def __str__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return "\n".join(f"out{r.output}: {r}" for r in self.rows)


def replay(module: HloModule, args: Values, setting: Setting, wanted: Any = None) -> ReplayResult:
    """Build a module, run it, and compare it with ``wanted``, or else with the interpreter.

    Exceptions of the interpreter are raised: without a reference there is no comparison.
    """
    options = setting.options
    frozen = freeze(module, setting.constants) if setting.constants else module
    oracle = Oracle.of(frozen, args, options) if wanted is None else None
    try:
        exe = build(module, options, setting.schedules, setting.constants)
        results = exe(*args)
    except Exception as error:  # a fault of any kind is what is looked for
        return ReplayResult(error=error)
    if oracle is not None:
        return ReplayResult(tuple(oracle.judge(results)), results)
    rounded = rounds_products(options.target, options.weights)
    return ReplayResult(tuple(compare_all(results, wanted, rounded)), results)
