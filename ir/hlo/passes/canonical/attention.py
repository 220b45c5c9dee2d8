"""The order of the operands of an attention's two products: rows of scores belong to queries.

The order of a product's operands is chosen by what it costs to transpose them. Scores of few
queries would be computed as ``(keys queries')``, so that nothing is done for each of their rows any
more; and a kernel for attention reads keys in the order in which they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...nodes import Computation, Instruction
from ...ops.registry import definition
from ...patterns.match import is_pointwise

STEPS = 64
"""Most instructions between two products that are looked at."""

_MOVES = ("reshape", "transpose", "broadcast")


def attention_orders(computation: Computation) -> dict[Instruction, bool]:
    """Return the products of attentions, with whether their operands are to change places.

    The first product of each then has the queries on its left, the second one the weights.
    """
    found: dict[Instruction, bool] = {}
    for values in computation.instructions:
        if values.opcode != "dot":
            continue
        for side in (0, 1):
            between = _between(values.operands[side])
            scores = [i for i in between if i.opcode == "dot"]
            if len(scores) != 1 or not any(i.opcode == "exponential" for i in between):
                continue
            keys = _keys(scores[0], between)
            if keys is not None:
                found[scores[0]] = keys == 0
                found[values] = side == 1
                break
    return found


def _between(weights: Instruction) -> list[Instruction]:
    """Return what ``weights`` are made of, up to products and inputs; nothing if it is too much."""
    seen: dict[Instruction, None] = {}
    waiting = [weights]
    while waiting:
        i = waiting.pop()
        if i in seen or not (i.opcode in ("dot", "reduce", *_MOVES) or is_pointwise(i)):
            continue
        seen[i] = None
        if len(seen) > STEPS:
            return []
        if i.opcode != "dot":
            waiting += i.operands
    return list(seen)


def _keys(scores: Instruction, between: list[Instruction]) -> int | None:
    """Return which operand of the first product the softmax reduces; None if neither."""
    ranks = [
        o.array.rank
        - len(scores.attrs.get(f"{side}_batch_dims", ()))
        - len(scores.attrs.get(f"{side}_contracting_dims", ()))
        for o, side in zip(scores.operands, ("lhs", "rhs"), strict=True)
    ]
    last = (scores.array.rank - ranks[1] - 1, scores.array.rank - 1)
    for side in (1, 0):
        if ranks[side] and any(_reduced(scores, last[side], between)):
            return side
    return None


def _reduced(start: Instruction, dim: int, between: list[Instruction]) -> Iterator[bool]:
    """Say of each reduction that follows whether it is over a dimension of ``start``."""
    users = {i: [u for u in between if i in u.operands] for i in between}
    waiting, seen = [(start, dim)], set[Instruction]()
    while waiting:
        i, at = waiting.pop()
        for u in users[i]:
            if u in seen:
                continue
            seen.add(u)
            if u.opcode == "reduce":
                yield at in u.attrs["dimensions"]
            elif (moved := _moved(u, i, at)) is not None:
                waiting.append((u, moved))


def _moved(user: Instruction, operand: Instruction, at: int) -> int | None:
    """Return the dimension of ``user`` that dimension ``at`` of its operand becomes."""
    if definition(user.opcode).permutes:
        return int(user.attrs["dimensions"].index(at))
    if user.opcode == "reshape":
        before, after = operand.array.dims, user.array.dims
        rest = len(before) - at
        return len(after) - rest if before[at:] == after[len(after) - rest :] else None
    return at if user.opcode not in ("dot", "broadcast") else None
