"""The groups of a module: its computations that run as code of their own, fused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from ...ir.hlo.fuse.fusion import Fusion, Group, fuse
from ...ir.hlo.nodes import Computation, HloModule
from ...ir.hlo.text.canonical import key
from .compiled import Compiled, Guarded
from .guards import Guard, guard
from .sequence import called

SYMBOL_DIGITS = 24  # of the key, in a kernel's symbol


@dataclass(frozen=True)
class Groups:
    """A module's fusions, by computation, and its distinct groups by canonical key.

    ``guards`` are those of the groups that have one; ``extra`` has the computations that they call,
    by key.
    """

    fusions: Mapping[Computation, Fusion]
    keys: Mapping[Group, str]
    distinct: Mapping[str, Group]
    guards: Mapping[Group, Guard]
    extra: Mapping[str, Computation]


def fuse_module(
    module: HloModule, excess_precision: bool = True, kinds: Collection[str] = ()
) -> Groups:
    """Fuse the entry and every computation that its control flow calls.

    ``kinds`` are the kinds of groups that only some targets take (``TargetKind.groups``). With
    ``excess_precision`` a group keeps narrow floats as f32 between its operations.
    """
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
    extra = {key(c): c for found in guards.values() for c in found.computations}
    return Groups(fusions, keys, distinct, guards, extra)


def compiled(groups: Groups, made: Callable[[str], Compiled]) -> Callable[[Group], Compiled]:
    """Return a function from a group to its kernel, guard included; ``made`` maps keys to
    kernels.
    """

    def find(group: Group) -> Compiled:
        own, found = made(groups.keys[group]), groups.guards.get(group)
        if found is None:
            return own
        finite = None if found.finite is None else made(key(found.finite))
        always = made(key(found.skipping))
        return replace(own, guarded=Guarded(always, finite, found.places, found.after))

    return find


def symbol(name: str) -> str:
    """Return the symbol of the kernel of a group with this key."""
    return f"nw_{name[:SYMBOL_DIGITS]}"
