"""The groups of a module: every computation that runs as code of its own, fused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.hlo.canonical import key
from ..ir.hlo.fuse import Fusion, Group, fuse
from ..ir.hlo.nodes import Computation, HloModule
from .sequence import called

SYMBOL_DIGITS = 24  # of the key, in a kernel's symbol


@dataclass(frozen=True)
class Groups:
    """A module's fusions, by computation, and its distinct groups by canonical key."""

    fusions: Mapping[Computation, Fusion]
    keys: Mapping[Group, str]
    distinct: Mapping[str, Group]


def fuse_module(module: HloModule) -> Groups:
    """Fuse the entry and what its control flow calls."""
    fusions: dict[Computation, Fusion] = {}
    waiting = [module.entry]
    while waiting:
        computation = waiting.pop()
        if computation not in fusions:
            fusions[computation] = fuse(computation)
            waiting += [c for i in computation.instructions for c in called(i)]
    keys = {g: key(g.computation) for f in fusions.values() for g in f.groups}
    distinct: dict[str, Group] = {}
    for group, name in keys.items():
        distinct.setdefault(name, group)
    return Groups(fusions, keys, distinct)


def symbol(name: str) -> str:
    """The symbol of the kernel of a group with this key."""
    return f"nw_{name[:SYMBOL_DIGITS]}"
