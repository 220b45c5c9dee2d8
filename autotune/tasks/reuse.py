"""Reuse distances of a group's buffers: the bytes that the model moves between two uses.

The contents of the caches decide how fast a kernel is, so a trial should find them as they are in
the model. A weight was last used a whole run ago; the previous group's result is hot.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate

from ...codegen.plan.groups import Groups
from ...ir.hlo.fuse.fusion import Fusion, Group
from ...ir.hlo.nodes import Instruction
from ...ir.hlo.ops.registry import definition
from .counting import moved


def reuse_distances(groups: Groups) -> dict[str, tuple[float, ...]]:
    """Return for each distinct group, by key, the reuse distance of each parameter in bytes.

    For inputs that is the bytes that the model reads and writes between the last access to it and
    the group, averaged over the group's occurrences. A computation's parameters and constants were
    last accessed one run of it ago; a loop's body is such a run. So were its results; other outputs
    lie in an arena, where the group before has just read what it needed, and count as 0. The last
    number is the bytes of a whole run.
    """
    found: dict[str, list[tuple[float, ...]]] = {}
    for computation, fusion in groups.fusions.items():
        kept = _results(computation.root)
        for group, distances in zip(fusion.groups, _distances(fusion, kept), strict=True):
            found.setdefault(groups.keys[group], []).append(distances)
    return {
        key: tuple(sum(column) / len(column) for column in zip(*rows, strict=True))
        for key, rows in found.items()
    }


def _results(root: Instruction) -> set[Instruction]:
    """Return the values that a computation returns."""
    if root.opcode == "tuple":
        return {r for o in root.operands for r in _results(o)}
    return {_origin(root)}


def _origin(i: Instruction, known: Collection[Instruction] = ()) -> Instruction:
    """Return the instruction whose memory a value lies in; the first of ``known`` on the way."""
    while i not in known and (i.opcode == "get-tuple-element" or definition(i.opcode).alias):
        i = i.operands[0]
    return i


def _distances(fusion: Fusion, results: Collection[Instruction]) -> list[tuple[float, ...]]:
    passed = [0.0, *accumulate(moved(g.computation) for g in fusion.groups)]
    made = {o: n for n, g in enumerate(fusion.groups) for o in g.outputs}

    def distance(i: Instruction, at: int) -> float:
        source = _origin(i, made.keys())
        return passed[at] - passed[made[source] + 1] if source in made else passed[-1]

    def row(n: int, g: Group) -> tuple[float, ...]:
        outputs = (passed[-1] if o in results else 0.0 for o in g.outputs)
        return (*(distance(i, n) for i in g.inputs), *outputs, passed[-1])

    return [row(n, g) for n, g in enumerate(fusion.groups)]
