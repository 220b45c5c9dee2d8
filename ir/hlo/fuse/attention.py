"""FuseOps, before the other phases: attention, from the product of queries and keys to the values.

A product whose left operand is a softmax of another product, with whatever is computed on the
scores in between, is one group of kind ``attention``. Its kernel computes some rows of scores at a
time, which never go to memory. The rows of the result are scaled late: each of them once by the
reciprocal of its sum, instead of each weight by a division. Only where the largest score of a row
is subtracted: sums of other exponentials may be too large to multiply, or have no reciprocal.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...dtypes import bf16, f16, f32
from ..meaning.values import simple_op
from ..nodes import Instruction, Shape
from ..ops.definition import Pattern
from ..patterns import build
from ..patterns.match import is_splat, nonunit
from ..rewrite import constant, make, rebuild, with_operands
from .anchors import grow_epilogue, take_widened
from .groups import Fusion, Group
from .kinds import dims, flops, is_unit_view, pattern
from .state import LIMIT, State
from .views import FEW_ROWS, take_final_views, take_moved, take_transposed

KIND = "attention"


class _NotFusableError(Exception):
    """Why scores and values are not one group."""


def fuse_attention(state: State, strided: bool = False) -> None:
    """Start a group for each product with values; take softmax, scores and epilogue into it.

    With ``strided`` it reads operands, and writes its result, in place in any order of dimensions.
    """
    for i in reversed(state.computation.instructions):
        if i.opcode != "dot" or not state.is_free_to_join(i) or not _may_be_weights(i.operands[0]):
            continue
        try:
            members = _between(state, i)
        except _NotFusableError as why:
            state.reasons[i.operands[0], i] = f"is not one group with the scores: {why}"
            continue
        if not members:
            continue
        g = state.start(KIND, i)
        for m in members:
            state.take_inside(g, m)
        read = take_moved if strided else take_transposed
        read(state, g, members[-1], i)
        if dims(i)[-2] <= FEW_ROWS and not strided:
            for product in members[-1], i:
                take_widened(state, g, product, 1)
        for u in _scaling(state, i) - state.clones.keys():
            state.put(g, u, {"result"})
        grow_epilogue(state, g)
        take_final_views(state, g, rows=strided)


def _may_be_weights(i: Instruction) -> bool:
    """True if ``i`` may be a softmax: element-wise work on rows, no parameter and no product."""
    while is_unit_view(i):
        i = i.operands[0]
    return pattern(i) is Pattern.ELEMENTWISE and len(dims(i)) >= 2 and len(i.operands) > 0


def _between(state: State, values: Instruction) -> list[Instruction]:
    """Return what is between two products, the first one included, in reverse program order.

    Nothing if there is no softmax; raises ``_NotFusableError`` if it cannot be one group.
    """
    weights = dims(values.operands[0])
    rank = len(weights)
    found = _depending(state, values, weights)
    scores = [m for m in found if m.opcode == "dot"]
    if not scores or not {"exponential", "reduce"} <= {m.opcode for m in found}:
        return []
    if len(scores) != 1:
        raise _NotFusableError(f"they are made of {len(scores)} products")
    if tuple(values.attrs.get("lhs_contracting_dims", ())) != (rank - 1,):
        raise _NotFusableError("the product is not over the rows of its left operand")
    if dims(values)[:-1] != weights[:-1] or len(dims(values)) != rank:
        raise _NotFusableError("the result has other rows")
    if dims(values)[-1] < 2:
        raise _NotFusableError("its result has no columns to be lanes")
    if dims(scores[0]) != weights:
        raise _NotFusableError("the scores have other dimensions")
    scaling = _scaling(state, values)
    found = _with_sums(state, found, scaling)
    for m in found:
        _check_member(state, m, {*found, values, *scaling}, weights)
    if sum(flops(m) > 0 for m in found) >= LIMIT // 2:
        raise _NotFusableError(f"{len(found)} instructions are too many")
    return found


def _depending(state: State, values: Instruction, weights: tuple[int, ...]) -> list[Instruction]:
    """Return what depends on the scores and makes the weights, in reverse program order."""
    space = nonunit(weights)
    seen: set[Instruction] = set()
    waiting = [values.operands[0]]
    while waiting:
        i = waiting.pop()
        if i in seen or not _on_rows(i, space):
            continue
        seen.add(i)
        if i.opcode != "dot":
            waiting += i.operands
        if len(seen) > LIMIT:
            raise _NotFusableError(f"more than {LIMIT} instructions are involved")
    depends: set[Instruction] = set()
    for i in sorted(seen, key=state.position):
        if i.opcode == "dot" or any(o in depends for o in i.operands):
            depends.add(i)
    return sorted(depends, key=state.position, reverse=True)


def _on_rows(i: Instruction, space: tuple[int, ...]) -> bool:
    """True if ``i`` has the shape of the scores, or one element for each of their rows."""
    if i.opcode in ("parameter", "constant") or not isinstance(i.shape, Shape):
        return False
    return nonunit(dims(i)) in (space, space[:-1])


def _scaling(state: State, values: Instruction) -> set[Instruction]:
    """Return the division of the result, if it follows at once, and the clones it reads."""
    if len(state.users[values]) != 1 or values is state.computation.root:
        return set()
    (u,) = state.users[values]
    if u.opcode != "divide" or dims(u) != dims(values) or u.operands[0] is not values:
        return set()
    if not state.is_free_to_join(u):
        return set()
    return {u, *(o for o in u.operands if o in state.clones and len(state.users[o]) == 1)}


def _with_sums(
    state: State, members: list[Instruction], scaling: set[Instruction]
) -> list[Instruction]:
    """Return the members and the sums over them that only scale the result."""
    users = {u for m in members for u in state.users[m] if u.opcode == "reduce"}
    sums = (u for u in users if all(x in scaling for x in state.users[u]))
    return sorted({*members, *sums}, key=state.position, reverse=True)


def _check_member(
    state: State, m: Instruction, inside: set[Instruction], weights: tuple[int, ...]
) -> None:
    """Raise ``_NotFusableError`` unless ``m`` works row by row and is used only inside."""
    if m is state.computation.root or any(u not in inside for u in state.users[m]):
        raise _NotFusableError(f"`{m.name}` is used elsewhere")
    if not state.is_free_to_join(m):
        raise _NotFusableError(f"`{m.name}` is in another group")
    if m.array.dtype not in (f32, f16, bf16) and m.array.dtype.kind != "pred":
        raise _NotFusableError(f"`{m.name}` is computed in {m.array.dtype.name}")
    rows = tuple(range(len(weights) - 1))
    match pattern(m):
        case Pattern.ELEMENTWISE | Pattern.OUT_FUSABLE:
            return
        case Pattern.REDUCTION if tuple(m.attrs["dimensions"]) == (len(rows),):
            return
        case Pattern.BROADCAST if _spreads(m, rows):
            return
        case _ if is_unit_view(m) and dims(m)[:-1] == weights[:-1]:
            return
        case _ if is_unit_view(m) and all(u.opcode == "broadcast" for u in state.users[m]):
            return
    raise _NotFusableError(f"`{m.name}` does not work row by row")


def _spreads(broadcast: Instruction, rows: tuple[int, ...]) -> bool:
    """True if a broadcast repeats one element for each row along the row."""
    (source,), to = broadcast.operands, broadcast.attrs["dimensions"]
    steps = [d for d, n in zip(to, dims(source), strict=True) if n != 1]
    return steps == [d for d in rows if dims(broadcast)[d] != 1]


def scale_late(fusion: Fusion) -> Fusion:
    """Return the fusion with each row of an attention's result scaled once, by a reciprocal."""
    groups = tuple(map(_scaled_late, fusion.groups))
    if all(a is b for a, b in zip(groups, fusion.groups, strict=True)):
        return fusion
    return replace(fusion, groups=groups)


def _scaled_late(group: Group) -> Group:
    if group.kind != KIND or not any(map(_is_largest, group.computation.instructions)):
        return group
    c = rebuild(group.computation, _rule)
    return group if c is group.computation else replace(group, computation=c)


def _is_largest(i: Instruction) -> bool:
    """True for the largest scores of rows: less those, no sum of exponentials is small or large."""
    return i.opcode == "reduce" and simple_op(i.attrs["to_apply"]) == "maximum"


def _rule(i: Instruction) -> Instruction | None:
    """Move what is done to rows behind a product; a division by sums becomes a multiplication."""
    if i.opcode == "dot" and (guarded := _guarded_by_row(i.operands[0])) is not None:
        hidden, weights = guarded
        product = with_operands(i, (weights, *i.operands[1:]))
        zero = build.full(0, i.array.dtype, dims(i))
        rows = build.reshape(hidden, dims(i)[:-1])
        shown = build.broadcast(rows, tuple(range(len(dims(i)) - 1)), dims(i))
        return make("select", i.array, (shown, zero, _rule(product) or product))
    if i.opcode == "dot" and (sums := _divided_by_sums(i.operands[0])) is not None:
        product = with_operands(i, (i.operands[0].operands[0], *i.operands[1:]))
        return _times_reciprocal(product, sums)
    if i.opcode == "divide" and i.operands[0].opcode == "dot":
        sums = _sums(i.operands[1])
        return None if sums is None else _times_reciprocal(i.operands[0], sums)
    return None


def _guarded_by_row(i: Instruction) -> tuple[Instruction, Instruction] | None:
    """Return which rows ``i`` makes zeros, and what it is in the others; None if it does not.

    A softmax of rows that may be hidden wholly is written like this. Values are taken to be finite.
    """
    if i.opcode != "select" or not is_splat(i.operands[1], 0):
        return None
    hidden, _, weights = i.operands
    rows = tuple(range(len(dims(i)) - 1))
    if pattern(hidden) is not Pattern.BROADCAST or not _spreads(hidden, rows):
        return None
    return hidden.operands[0], weights


def _divided_by_sums(i: Instruction) -> Instruction | None:
    """Return the sums of rows that ``i`` divides by; None unless they are those of its rows."""
    if i.opcode != "divide":
        return None
    sums = _sums(i.operands[1])
    return sums if sums is not None and sums.operands[0] is i.operands[0] else None


def _sums(i: Instruction) -> Instruction | None:
    """Return the sums of rows that ``i`` repeats along its last dimension; None if it is not so."""
    if pattern(i) is not Pattern.BROADCAST or not i.operands:
        return None
    if not _spreads(i, tuple(range(len(dims(i)) - 1))):
        return None
    (source,) = i.operands
    while is_unit_view(source):
        source = source.operands[0]
    whole = source.opcode == "reduce" and dims(source) == dims(i)[:-1]
    return source if whole and source.array.dtype == f32 else None


def _times_reciprocal(product: Instruction, sums: Instruction) -> Instruction:
    """Return a product times the reciprocals of f32 sums of rows, rounded to its own type once."""
    wide = Shape(f32, dims(product))
    if product.array.dtype != f32:
        rest = {"name": product.name, "metadata": product.metadata, **product.attrs}
        whole = make("dot", wide, product.operands, **rest)
    else:
        whole = product
    one = constant(np.array(1, np.float32))
    ones = make("broadcast", sums.shape, (one,), dimensions=())
    reciprocal = make("divide", sums.shape, (ones, sums), name="reciprocal")
    rows = tuple(range(len(dims(sums))))
    spread = make("broadcast", wide, (reciprocal,), dimensions=rows)
    scaled = make("multiply", wide, (whole, spread), name="scaled")
    return build.convert(scaled, product.array.dtype)
