"""The groups of a module: its computations that run as code of their own, fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...ir.hlo.fuse.fusion import Fusion, Group, fuse
from ...ir.hlo.fuse.order import called
from ...ir.hlo.nodes import Computation, HloModule
from ...ir.hlo.text.canonical import key
from ...ir.target import Target
from .compiled import Compiled, CompiledTest, Guarded
from .guards.group import Guard, guard
from .guards.program import ProgramGuard, program_guard

SYMBOL_DIGITS = 24  # of the key, in a kernel's symbol


@dataclass(frozen=True)
class Groups:
    """A module's fusions, by computation, and its distinct groups by canonical key.

    ``guards`` are those of the groups that have one; ``extra`` has the computations that they call,
    by key. ``whole`` is the guard of the entry, which covers some of them.
    """

    fusions: Mapping[Computation, Fusion]
    keys: Mapping[Group, str]
    distinct: Mapping[str, Group]
    guards: Mapping[Group, Guard]
    extra: Mapping[str, Computation]
    whole: ProgramGuard | None = None


def fuse_module(
    module: HloModule, excess_precision: bool = True, target: Target | None = None
) -> Groups:
    """Fuse the entry and every computation that its control flow calls.

    Some kinds of groups are only for some targets (``TargetKind.groups``). With
    ``excess_precision`` a group keeps narrow floats as f32 between its operations.
    """
    kinds = () if target is None else target.row.groups
    fusions: dict[Computation, Fusion] = {}
    waiting = [module.entry]
    while waiting:
        computation = waiting.pop()
        if computation not in fusions:
            fusions[computation] = fuse(computation, kinds, excess_precision)
            waiting += [c for i in computation.instructions for c in called(i)]
    keys = {g: key(g.computation) for f in fusions.values() for g in f.groups}
    distinct: dict[str, Group] = {}
    for group, name in keys.items():
        distinct.setdefault(name, group)
    guards = {g: found for g in keys if (found := guard(g)) is not None}
    launches = target is not None and target.row.work == "launches"
    whole = program_guard(module.entry, fusions[module.entry], guards, launches)
    covered = whole.covered if whole is not None else frozenset()
    guards = {g: replace(x, covered=g in covered) for g, x in guards.items()}
    beside = [c for x in guards.values() for c in x.computations]
    extra = {key(c): c for c in (*beside, *(whole.computations if whole is not None else ()))}
    return Groups(fusions, keys, distinct, guards, extra, whole)


def compiled(groups: Groups, made: Callable[[str], Compiled]) -> Callable[[Group], Compiled]:
    """Return a function from a group to its kernel, guard included; ``made`` maps keys to
    kernels.
    """

    def find(group: Group) -> Compiled:
        own, found = made(groups.keys[group]), groups.guards.get(group)
        if found is None:
            return own
        always, test = made(key(found.skipping)), found.test
        tested = (
            None if test is None else CompiledTest(made(key(test.holds)), test.places, test.after)
        )
        return replace(own, guarded=Guarded(always, tested, found.covered))

    return find


def symbol(name: str) -> str:
    """Return the symbol of the kernel of a group with this key."""
    return f"nw_{name[:SYMBOL_DIGITS]}"
