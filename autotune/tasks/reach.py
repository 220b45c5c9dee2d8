"""Reuse distances of a group's inputs: the bytes that the model moves between two uses.

The contents of the caches decide how fast a kernel is, so a trial should find them as they are in
the model. A weight was last used a whole run ago; the previous group's result is hot.
"""

from __future__ import annotations

from itertools import accumulate

from ...codegen.plan.groups import Groups
from ...ir.hlo.fuse.fusion import Fusion
from ...ir.hlo.nodes import Instruction
from ...ir.hlo.ops.registry import definition
from .counting import moved


def reaches(groups: Groups) -> dict[str, tuple[float, ...]]:
    """Return for each distinct group, by key, the reuse distance of each input in bytes.

    That is the bytes that the model reads and writes between the last access to the input and the
    group, averaged over the group's occurrences. A computation's parameters and constants were last
    accessed one run of it ago; a loop's body is such a run.
    """
    found: dict[str, list[tuple[float, ...]]] = {}
    for fusion in groups.fusions.values():
        for group, distances in zip(fusion.groups, _distances(fusion), strict=True):
            found.setdefault(groups.keys[group], []).append(distances)
    return {
        key: tuple(sum(column) / len(column) for column in zip(*rows, strict=True))
        for key, rows in found.items()
    }


def _distances(fusion: Fusion) -> list[tuple[float, ...]]:
    passed = [0.0, *accumulate(moved(g.computation) for g in fusion.groups)]
    made = {o: n for n, g in enumerate(fusion.groups) for o in g.outputs}

    def distance(i: Instruction, at: int) -> float:
        while i not in made and (i.opcode == "get-tuple-element" or definition(i.opcode).alias):
            i = i.operands[0]
        return passed[at] - passed[made[i] + 1] if i in made else passed[-1]

    return [tuple(distance(i, n) for i in g.inputs) for n, g in enumerate(fusion.groups)]
