"""Results that nothing reads before they have left the caches: no need to write them there.

A store first reads its cache line and then pushes out another one. Streaming stores do neither.
They pay where a kernel moves more than the last cache holds and its result is read much later or
not at all within the model. Where it is read soon after, the reader would find it in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.hlo.fuse.fusion import Fusion, Group
from ...ir.hlo.fuse.kinds import is_part, is_view, nbytes
from ...ir.hlo.nodes import Instruction
from ...ir.target import Target
from .groups import Groups

SHARE = 4  # the part of the last cache that a result must exceed for it to matter


def streamed_outputs(groups: Groups, target: Target) -> Mapping[str, tuple[int, ...]]:
    """Return, by a group's key, the outputs that may be written past the caches, by number.

    They are those that qualify wherever the group occurs. Control flow's computations run again
    and again, so that what they write is read soon.
    """
    if not target.core.l3.size or target.row.place != "process":
        return {}
    found: dict[str, set[int]] = {}
    entry = next(iter(groups.fusions.values()))
    for fusion in groups.fusions.values():
        far = _far(fusion, target) if fusion is entry else {}
        for group in fusion.groups:
            mine, key = far.get(group, set()), groups.keys[group]
            found[key] = found.get(key, mine) & mine
    return {key: tuple(sorted(outputs)) for key, outputs in found.items() if outputs}


def _far(fusion: Fusion, target: Target) -> dict[Group, set[int]]:
    """Return the outputs of each group that no other group reads soon, and nothing else does."""
    size = target.core.l3.size
    before = [0]
    for group in fusion.groups:
        before.append(before[-1] + _traffic(group))
    place = {g: n for n, g in enumerate(fusion.groups)}
    inside = {i for g in fusion.groups for i in g.members}
    near: set[Instruction] = set()
    for i in fusion.computation.instructions:
        if i not in inside and not _is_alias(i) and i.opcode != "tuple":
            near |= {_origin(o) for o in i.operands}
    made = {o: n for g, n in place.items() for o in g.outputs}
    for reader, n in place.items():
        for i in map(_origin, reader.inputs):
            if i in made and before[n] - before[made[i] + 1] < size:
                near.add(i)
    return {
        g: {
            n
            for n, o in enumerate(g.outputs)
            if o not in near and nbytes(o) * SHARE >= size and _traffic(g) >= size
        }
        for g in fusion.groups
    }


def _traffic(group: Group) -> int:
    return sum(map(nbytes, (*group.inputs, *group.outputs)))


def _origin(i: Instruction) -> Instruction:
    """Return the instruction whose buffer ``i`` is, or a piece of."""
    while _is_alias(i):
        i = i.operands[0]
    return i


def _is_alias(i: Instruction) -> bool:
    return is_view(i) or is_part(i)
