"""The order of a computation's groups and other instructions, and what these call."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from ..nodes import Computation, Instruction
from ..ops.definition import Pattern
from .groups import Group
from .kinds import is_view, pattern

Unit: TypeAlias = Instruction | Group
"""What runs as a whole: a group, or an instruction outside of groups."""


def branch_computations(i: Instruction) -> tuple[Computation, ...]:
    """Return a conditional's branches; for two-way ones the true branch first."""
    if "branch_computations" in i.attrs:
        found: tuple[Computation, ...] = i.attrs["branch_computations"]
        return found
    return i.attrs["true_computation"], i.attrs["false_computation"]


def called(i: Instruction) -> tuple[Computation, ...]:
    """Return the computations that control flow runs as code of its own."""
    match i.opcode:
        case "while":
            return i.attrs["condition"], i.attrs["body"]
        case "conditional":
            return branch_computations(i)
        case "call":
            return (i.attrs["to_apply"],)
        case _:
            return ()


def in_order(root: Instruction, owner: Mapping[Instruction, Group]) -> Iterator[Unit]:
    """Yield the groups and other instructions that the root needs, each after its operands."""
    seen: set[Unit] = set()
    stack: list[tuple[Unit, Iterator[Instruction]]] = []

    def enter(i: Instruction) -> None:
        unit = owner.get(i, i)
        if unit not in seen:
            seen.add(unit)
            stack.append((unit, iter(_needs(unit))))

    enter(root)
    while stack:
        unit, needs = stack[-1]
        need = next(needs, None)
        if need is not None:
            enter(need)
        else:
            stack.pop()
            yield unit


def readers_first(units: Sequence[Unit], body: Computation) -> Iterator[Unit]:
    """Yield the units of a loop's body, each after its operands, else in the given order.

    What makes the next value of a part of the loop's state waits, as far as that allows, until all
    that reads the present one has run: it can then write over it.
    """
    maker = {o: u for u in units for o in (u.outputs if isinstance(u, Group) else (u,))}
    reads = {u: {n for i in _needs(u) if (n := _part(i)) is not None} for u in units}
    writes: dict[Unit, set[int]] = defaultdict(set)
    for n, made in enumerate(body.root.operands if body.root.opcode == "tuple" else ()):
        if made in maker and _part(made) is None:
            writes[maker[made]].add(n)
    missing = {u: {maker[i] for i in _needs(u) if i in maker} for u in units}
    users: dict[Unit, list[Unit]] = defaultdict(list)
    for u, others in missing.items():
        for other in others:
            users[other].append(u)
    left = Counter(n for found in reads.values() for n in found)
    place = {u: n for n, u in enumerate(units)}
    ready, held = [place[u] for u in units if not missing[u]], list[int]()
    while ready or held:
        unit = units[heappop(ready or held)]
        if ready and any(left[n] > (n in reads[unit]) for n in writes[unit]):
            heappush(held, place[unit])
            continue
        yield unit
        left.subtract(reads[unit])
        if any(not left[n] for n in reads[unit]):
            ready, held = sorted(ready + held), []
        for user in users[unit]:
            missing[user].discard(unit)
            if not missing[user]:
                heappush(ready, place[user])


def _needs(unit: Unit) -> tuple[Instruction, ...]:
    return unit.inputs if isinstance(unit, Group) else unit.operands


def _part(i: Instruction) -> int | None:
    """Return the number of the part of its computation's one tuple that ``i`` is or looks into."""
    while i.opcode != "get-tuple-element":
        if not i.operands or not (is_view(i) or pattern(i) is Pattern.ALIAS):
            return None
        i = i.operands[0]
    return int(i.attrs["index"]) if i.operands[0].opcode == "parameter" else None
