"""The guard of a whole program: it runs, its results are tested once, and if need be it runs again.

With a guard for each group the host of a GPU waits for an answer in each. But a kernel that
multiplies a hole by a weight that is not finite gives NaN, and if whatever depends on a NaN is NaN
up to the results, then results without NaN are right. For other groups weights are tested, where
these are arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TypeAlias, TypeVar

from ....ir.dtypes import pred
from ....ir.hlo.analysis.nan import carries_nan, outputs, shown
from ....ir.hlo.fuse.fusion import Fusion, Group
from ....ir.hlo.fuse.order import in_order
from ....ir.hlo.holes import multiplies_holes
from ....ir.hlo.nodes import Computation, Instruction, Shape
from ....ir.hlo.ops.registry import definition
from ....ir.hlo.patterns.loops import trip_count
from ....ir.hlo.rewrite import assemble, make, parameter, reachable
from .group import Guard, KernelTest, without_nan

T = TypeVar("T")

Reach: TypeAlias = frozenset[int] | None
"""The results, by number, of which all elements that depend on a NaN are NaN; None if there may be
others."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramGuard:
    """Tests after a run: if one fails, the program runs again with fallbacks in all groups.

    The ``places`` of a test are numbers of results if it is ``after``, else of arguments.
    ``all_hold`` combines the answers, None where there is but one. ``covered`` are the groups that
    need no guard of their own.
    """

    covered: frozenset[Group]
    tests: tuple[KernelTest, ...]
    all_hold: Computation | None

    @property
    def computations(self) -> tuple[Computation, ...]:
        """The computations that must be compiled for it."""
        own = tuple(t.holds for t in self.tests)
        return own if self.all_hold is None else (*own, self.all_hold)

    def reads(self, test: int, arguments: Sequence[T], results: Sequence[T]) -> tuple[T, ...]:
        """Return what a test takes, by its number."""
        found = self.tests[test]
        return tuple((results if found.after else arguments)[n] for n in found.places)


def program_guard(
    entry: Computation, fusion: Fusion, guards: Mapping[Group, Guard], launches: bool
) -> ProgramGuard | None:
    """Return the guard of a program; None where guards of its groups are better.

    With ``launches``, an answer costs more than reading weights, and one guard is always better.
    """
    tested = {g: guards[g] for g in fusion.groups if g in guards and guards[g].tests}
    results = outputs(entry)
    if not tested or not all(map(_is_plain, results)) or not _may_run_again(entry):
        return None
    reach = _reach(entry, fusion)
    known = {g: r for g in tested if (r := _reached(g, _risky(g), reach)) is not None}
    seen = sorted(set(chain.from_iterable(known.values())))
    if not launches and not _is_cheaper(known, tested, [results[n] for n in seen]):
        return None
    others = {g: guards[g] for g in tested if g not in known} if launches and _ends(entry) else {}
    weights = {g: t for g, x in others.items() if (t := _of_arguments(g, x.tests[-1])) is not None}
    after = [KernelTest(without_nan([results[n]]), (n,), True) for n in seen]
    tests = (*after, *weights.values())
    covered = frozenset((*known, *weights))
    return ProgramGuard(covered, tests, _all_hold(len(tests))) if tests else None


def _is_plain(i: Instruction) -> bool:
    """True if an instruction is an array whose size is known."""
    return isinstance(i.shape, Shape) and not any(i.array.dynamic)


def _may_run_again(entry: Computation) -> bool:
    """True if a second run has no effect but its results."""
    every = [definition(i.opcode) for c in reachable(entry) for i in c.instructions]
    return not any(op.is_library or op.collective or op.side_effect for op in every)


def _ends(entry: Computation) -> bool:
    """True if a run ends whatever the values are."""
    loops = [i for c in reachable(entry) for i in c.instructions if i.opcode == "while"]
    return all(trip_count(i) is not None for i in loops)


def _risky(g: Group) -> list[Instruction]:
    return [i for i in g.computation.instructions if multiplies_holes(i)]


def _reach(entry: Computation, fusion: Fusion) -> Mapping[Instruction, Reach]:
    """Return what a NaN in the value of each instruction that a group may use reaches."""
    found: dict[Instruction, Reach] = defaultdict(frozenset)
    for n, i in enumerate(outputs(entry)):
        found[i] = _both(found[i], frozenset({n}))
    owner = {o: g for g in fusion.groups for o in g.outputs}
    for unit in reversed([*in_order(entry.root, owner)]):
        if isinstance(unit, Group):
            for i in unit.inputs:
                marked = [unit.computation.parameters[unit.inputs.index(i)]]
                found[i] = _both(found[i], _reached(unit, marked, found))
        elif unit is not entry.root or unit in outputs(entry):
            for n, i in enumerate(unit.operands):
                found[i] = _both(found[i], found[unit] if carries_nan(unit, n) else None)
    return found


def _reached(
    g: Group, marked: Collection[Instruction], reach: Mapping[Instruction, Reach]
) -> Reach:
    """Return what a NaN in these instructions of a group reaches."""
    made = shown(g.computation, marked)
    total: Reach = None if made is None else frozenset()
    for n in made or ():
        total = _both(total, reach[g.outputs[n]])
    return total


def _both(a: Reach, b: Reach) -> Reach:
    return None if a is None or b is None else a | b


def _is_cheaper(
    known: Mapping[Group, Reach], guards: Mapping[Group, Guard], results: Sequence[Instruction]
) -> bool:
    """True if testing results reads fewer bytes than testing what each group's guard does."""
    each = sum(
        (g.outputs if test.after else g.inputs)[n].array.bytes
        for g in known
        for test in guards[g].tests[:1]
        for n in test.places
    )
    return sum(i.array.bytes for i in results) < each


def _of_arguments(g: Group, test: KernelTest) -> KernelTest | None:
    """Return the test of a group's inputs with the numbers of the program's arguments; None if some
    are not arguments.
    """
    arrays = [g.inputs[n] for n in test.places]
    if test.after or not all(i.opcode == "parameter" and _is_plain(i) for i in arrays):
        return None
    return KernelTest(test.holds, tuple(int(i.attrs["number"]) for i in arrays))


def _all_hold(count: int) -> Computation | None:
    """Return the conjunction of so many answers; None for one."""
    if count < 2:
        return None
    answers = [parameter(n, Shape(pred), f"holds{n}") for n in range(count)]
    return assemble("all_hold", answers, reduce(_and, answers))


def _and(a: Instruction, b: Instruction) -> Instruction:
    return make("and", Shape(pred), (a, b))
