"""The order of the operands of an attention's two products: rows of scores belong to queries.

The order of a product's operands is chosen by what it costs to transpose them. Scores of few
queries would be computed as ``(keys queries')``, so that nothing is done for each of their rows any
more; and a kernel for attention reads keys in the order in which they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
        if (roles := attention_roles(values)) is not None:
            found[roles.scores] = roles.keys == 0
            found[values] = roles.weights == 1
    return found


@dataclass(frozen=True, slots=True)
class Roles:
    """The product of queries and keys, and which operand is the keys; which of the second one is
    the weights.
    """

    scores: Instruction
    keys: int
    weights: int


def attention_roles(values: Instruction) -> Roles | None:
    """Return the roles of an attention's operands, by its second product; None for all else."""
    for side in (0, 1) if values.opcode == "dot" else ():
        between = _between(values.operands[side])
        scores = [i for i in between if i.opcode == "dot"]
        if len(scores) != 1 or not any(i.opcode == "exponential" for i in between):
            continue
        keys = _keys(scores[0], between)
        if keys is not None and _sums_keys(values, side, scores[0], keys, between):
            return Roles(scores[0], keys, side)
    return None


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
    for side in (1, 0):
        last = _last_free(scores, side)
        if last is not None and any(
            at in u.attrs["dimensions"]
            for u, at in _places(scores, last, between)
            if u.opcode == "reduce"
        ):
            return side
    return None


def _sums_keys(
    values: Instruction, side: int, scores: Instruction, keys: int, between: list[Instruction]
) -> bool:
    """False if the second product is known to sum over other places than those of the keys.

    So it is where heads are mixed after a softmax.
    """
    if (last := _last_free(scores, keys)) is None:
        return False
    weights = values.operands[side]
    summed = values.attrs.get(f"{('lhs', 'rhs')[side]}_contracting_dims", ())
    found = [at for u, at in _places(scores, last, between) if u is weights]
    return not found or any(at in summed for at in found)


def _last_free(scores: Instruction, side: int) -> int | None:
    """Return the last dimension of a product that comes from one operand alone; None without."""
    ranks = [
        o.array.rank
        - len(scores.attrs.get(f"{name}_batch_dims", ()))
        - len(scores.attrs.get(f"{name}_contracting_dims", ()))
        for o, name in zip(scores.operands, ("lhs", "rhs"), strict=True)
    ]
    if not ranks[side]:
        return None
    return scores.array.rank - 1 - (ranks[1] if side == 0 else 0)


def _places(
    start: Instruction, dim: int, between: list[Instruction]
) -> Iterator[tuple[Instruction, int]]:
    """Yield what follows ``start``, each with the dimension that ``dim`` has become.

    A reduction comes with that of its operand.
    """
    users = {i: [u for u in between if i in u.operands] for i in between}
    waiting, seen = [(start, dim)], set[Instruction]()
    while waiting:
        i, at = waiting.pop()
        for u in users[i]:
            if u in seen:
                continue
            seen.add(u)
            if u.opcode == "reduce":
                yield u, at
            elif (moved := _moved(u, i, at)) is not None:
                yield u, moved
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
