"""The groups of a module: every computation that runs as code of its own, fused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.errors import UnsupportedError
from ..ir.hlo.canonical import key
from ..ir.hlo.fuse import Fusion, Group, fuse
from ..ir.hlo.nodes import Computation, HloModule, Instruction
from ..ir.hlo.support import together
from ..te.from_hlo.scalars import refuse
from .sequence import called, needs_kernel

SYMBOL_DIGITS = 24  # of the key, in a kernel's symbol


@dataclass(frozen=True)
class Groups:
    """A module's fusions, by computation, and its distinct groups by canonical key."""

    fusions: Mapping[Computation, Fusion]
    keys: Mapping[Group, str]
    distinct: Mapping[str, Group]


def fuse_module(module: HloModule) -> Groups:
    """Fuse the entry and what its control flow calls. ``UnsupportedError`` lists what cannot be."""
    fusions: dict[Computation, Fusion] = {}
    waiting = [module.entry]
    while waiting:
        computation = waiting.pop()
        if computation not in fusions:
            fusions[computation] = fuse(computation)
            waiting += [c for i in computation.instructions for c in called(i)]
    problems: list[UnsupportedError] = []
    for computation, fusion in fusions.items():
        problems += _unfused(computation, fusion)
    if problems:
        raise together(problems, module.name)
    keys = {g: key(g.computation) for f in fusions.values() for g in f.groups}
    distinct: dict[str, Group] = {}
    for group, name in keys.items():
        distinct.setdefault(name, group)
    return Groups(fusions, keys, distinct)


def symbol(name: str) -> str:
    """The symbol of the kernel of a group with this key."""
    return f"nw_{name[:SYMBOL_DIGITS]}"


def _unfused(computation: Computation, fusion: Fusion) -> list[UnsupportedError]:
    """Instructions that need a kernel and stand in no group."""
    inside: set[Instruction] = {o for g in fusion.groups for o in g.outputs}
    wanted = [computation.root, *(o for g in fusion.groups for o in g.inputs)]
    problems: list[UnsupportedError] = []
    seen: set[Instruction] = set()
    while wanted:
        i = wanted.pop()
        if i in seen or i in inside:
            continue
        seen.add(i)
        wanted += i.operands
        if needs_kernel(i):
            try:
                refuse(i, computation, "this version has no code for it")
            except UnsupportedError as error:
                problems.append(error)
    return problems
