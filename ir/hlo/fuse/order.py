"""The order of a computation's groups and other instructions, and what these call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..nodes import Computation, Instruction
from .groups import Group


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


def in_order(
    root: Instruction, owner: Mapping[Instruction, Group]
) -> Iterator[Instruction | Group]:
    """Yield the groups and other instructions that the root needs, each after its operands."""
    seen: set[Instruction | Group] = set()
    stack: list[tuple[Instruction | Group, Iterator[Instruction]]] = []

    def enter(i: Instruction) -> None:
        unit = owner.get(i, i)
        if unit not in seen:
            seen.add(unit)
            needs = unit.operands if isinstance(unit, Instruction) else unit.inputs
            stack.append((unit, iter(needs)))

    enter(root)
    while stack:
        unit, needs = stack[-1]
        need = next(needs, None)
        if need is not None:
            enter(need)
        else:
            stack.pop()
            yield unit
