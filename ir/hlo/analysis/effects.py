"""Instructions with side effects: custom calls that say so, and what calls them."""

from __future__ import annotations

from collections.abc import Mapping

from ..nodes import Computation, Instruction
from ..ops.registry import definition
from ..rewrite import called, needs, post_order, reachable
from .custom_calls import meaning


def unneeded(entry: Computation) -> Mapping[Computation, tuple[Instruction, ...]]:
    """Return the instructions with an effect that the root of their computation does not need.

    In program order, for every computation that ``entry`` reaches and that has any.
    """
    acting: set[Computation] = set()
    found: dict[Computation, tuple[Instruction, ...]] = {}
    for c in reachable(entry):
        effects = [i for i in c.instructions if _acts(i) or not acting.isdisjoint(called(i))]
        if not effects:
            continue
        acting.add(c)
        needed = set(post_order([c.root], needs))
        if rest := tuple(i for i in effects if i not in needed):
            found[c] = rest
    return found


def _acts(i: Instruction) -> bool:
    if i.opcode == "custom-call":
        return i.attrs.get("custom_call_has_side_effect") is True and meaning(i) is None
    return definition(i.opcode).side_effect
