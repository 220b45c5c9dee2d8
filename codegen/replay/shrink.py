"""Shrink a failing module to a small one that fails in the same manner.

Three reductions are tried in turn until none makes the module smaller: an instruction becomes the
root, dropping everything after it; instructions become parameters that hold the interpreter's
values, dropping everything before them; instructions are dropped from a tuple at the root. Every
candidate is built and run, and kept if it fails in the same manner (delta debugging, after Zeller
and Hildebrandt 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ...ir.errors import NestwrightError
from ...ir.hlo.analysis.verify import verify
from ...ir.hlo.interp.evaluate import evaluate_computation
from ...ir.hlo.interp.flushing import flushing_as
from ...ir.hlo.nodes import Computation, HloModule, Instruction, Shape
from ...ir.hlo.rewrite import assemble, parameter, post_order, with_entry, with_operands
from .run import ReplayResult, Setting, Values, replay

TRIALS = 400  # builds, at most


@dataclass(frozen=True)
class Failing:
    """A module, the arguments it fails on, and the failure."""

    module: HloModule
    arguments: Values
    outcome: ReplayResult

    @property
    def size(self) -> int:
        """Instructions of the entry and of every computation that it calls."""
        return sum(len(c.instructions) for c in self.module.computations)


@dataclass
class Shrinker:
    """One search; ``tell`` is called with every smaller module that was found."""

    setting: Setting
    tell: Callable[[Failing], None] = lambda _: None
    trials: int = TRIALS
    values: dict[Instruction, Any] = field(default_factory=dict)

    def shrink(self, module: HloModule, args: Values) -> Failing | None:
        """Return the smallest failing module that was found; None if ``module`` does not fail."""
        first = replay(module, args, self.setting)
        if first.ok:
            return None
        best = Failing(module, args, first)
        while True:
            smaller = self._first(best)
            if smaller is None:
                return best
            best = smaller
            self.tell(best)

    def _first(self, best: Failing) -> Failing | None:
        """Return the first candidate that is smaller and fails in the same manner."""
        self.values = {}
        with flushing_as(self.setting.target):
            evaluate_computation(best.module.entry, best.arguments, self.values.__setitem__)
        for module, args in self._candidates(best):
            if self.trials <= 0:
                return None
            try:
                verify(module)
                found = Failing(module, args, replay(module, args, self.setting))
                self.trials -= 1
            except NestwrightError:
                continue
            if found.size < best.size and found.outcome.is_like(best.outcome):
                return found
        return None

    def _candidates(self, best: Failing) -> Iterator[tuple[HloModule, Values]]:
        entry = best.module.entry
        yield from self._roots(best, entry)
        yield from self._smaller_tuples(best, entry)
        yield from self._parameters(best, entry)

    def _roots(self, best: Failing, entry: Computation) -> Iterator[tuple[HloModule, Values]]:
        """Yield candidates with another root: of the first half, quarter, ... then one by one."""
        inner = [i for i in entry.instructions if i.opcode != "parameter" and i is not entry.root]
        inner = [i for i in inner if isinstance(i.shape, Shape) and i.opcode != "constant"]
        for i in _spread(inner):
            yield self._with(best, entry.parameters, i)

    def _smaller_tuples(
        self, best: Failing, entry: Computation
    ) -> Iterator[tuple[HloModule, Values]]:
        if entry.root.opcode == "tuple" and len(entry.root.operands) > 1:
            for operand in entry.root.operands:
                yield self._with(best, entry.parameters, operand)

    def _parameters(self, best: Failing, entry: Computation) -> Iterator[tuple[HloModule, Values]]:
        """Yield candidates whose instructions are replaced by parameters, many at once first."""
        inner = [
            i
            for i in entry.instructions
            if i.opcode not in ("parameter", "constant", "tuple")
            and i is not entry.root
            and isinstance(i.shape, Shape)
        ]
        step = len(inner)
        while step:
            for at in range(0, len(inner), step):
                cut = {
                    i: parameter(len(entry.parameters) + n, i.shape, f"cut_{i.name}")
                    for n, i in enumerate(inner[at : at + step])
                }
                root = _rebuilt(entry.root, cut)
                yield self._with(best, (*entry.parameters, *cut.values()), root, tuple(cut))
            step //= 2

    def _with(
        self,
        best: Failing,
        parameters: tuple[Instruction, ...],
        root: Instruction,
        cut: tuple[Instruction, ...] = (),
    ) -> tuple[HloModule, Values]:
        """Return a module with this root and only the parameters that it needs."""
        known = [*best.arguments, *(self.values[i] for i in cut)]
        live = set(post_order([root]))
        kept = [(p, a) for p, a in zip(parameters, known, strict=True) if p in live]
        new = {p: parameter(n, p.shape, p.name) for n, (p, _) in enumerate(kept)}
        entry = assemble(best.module.entry.name, new.values(), _rebuilt(root, new))
        module = with_entry(replace(best.module, attrs={}, tables=""), entry)
        return module, [a for _, a in kept]


def _spread(items: list[Instruction]) -> Iterator[Instruction]:
    """Yield the middle of the list, of its first half, of the quarter, ... then all others in
    order.
    """
    seen: set[Instruction] = set()
    at = len(items) // 2
    while at:
        seen.add(items[at])
        yield items[at]
        at //= 2
    yield from (i for i in items if i not in seen)


def _rebuilt(root: Instruction, new: dict[Instruction, Instruction]) -> Instruction:
    """Return ``root`` rebuilt with some instructions replaced."""
    found = dict(new)
    for i in post_order([root]):
        if i not in found:
            found[i] = with_operands(i, tuple(found[o] for o in i.operands)) if i.operands else i
    return found[root]
