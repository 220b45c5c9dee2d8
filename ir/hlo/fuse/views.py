"""FuseOps: an attention reads its operands, and writes its result, through views of them.

Transposes, reshapes and slices of queries, keys and values are index maps of the kernel that reads
them, and those of the result are of the kernel that writes it, where what it reads or writes at a
time stays contiguous in memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from ..nodes import Instruction
from ..ops.definition import Pattern
from ..ops.registry import definition
from ..patterns.match import nonunit
from .kinds import dims, is_unit_view, is_view, pattern
from .state import Growing, State

FEW_ROWS = 16
"""With up to so many queries a head is bound by reading its keys, which are read as they lie."""


def take_transposed(state: State, g: Growing, scores: Instruction, values: Instruction) -> None:
    """Read keys and values through their transposes, in place, where there are few queries.

    To transpose a cache takes longer than all that such queries do with it. The terms of a key and
    the columns of a value must be neighbors in memory.
    """
    for product, last in ((scores, -2), (values, -1)):
        _take_transposed(state, g, product, last)


def _take_transposed(state: State, g: Growing, product: Instruction, last: int) -> None:
    moved, used, chain = product.operands[1], product, list[Instruction]()
    while is_unit_view(moved) and state.users[moved] == (used,):
        chain.append(moved)
        moved, used = moved.operands[0], moved
    if not definition(moved.opcode).permutes or dims(product)[-2] > FEW_ROWS:
        return
    if moved.attrs["dimensions"][last] != len(dims(moved)) - 1 or state.users[moved] != (used,):
        return
    for i in (*chain, moved) if state.is_free_to_join(moved) else ():
        if state.refusal(g, i):
            return
        state.clones.pop(i, None)  # a member of this group alone
        state.take_inside(g, i)


def take_moved(state: State, g: Growing, scores: Instruction, values: Instruction) -> None:
    """Read queries, keys and values through what moves them, in place.

    The terms of queries, the terms or the keys, and the columns of values must be neighbors in
    memory: tiles are copied along them.
    """
    rank = len(dims(values))
    sides = {rank - 1, rank - 2}
    _take_moved(state, g, scores, 0, scores.attrs["lhs_contracting_dims"])
    _take_moved(state, g, scores, 1, sides)
    _take_moved(state, g, values, 1, sides - {*values.attrs["rhs_contracting_dims"]})


def _take_moved(
    state: State, g: Growing, product: Instruction, n: int, along: Collection[int]
) -> None:
    """Take the moves of operand ``n`` if one of its dimensions ``along`` is contiguous before."""
    x, used = product.operands[n], product
    chain, end = list[Instruction](), 0
    if product.operands[1 - n] is x:
        return
    places: list[int] = sorted(along)
    while state.users[x] == (used,) and x not in state.parts and state.is_free_to_join(x):
        moves = definition(x.opcode).permutes or "slice" in x.attrs
        if not (moves or is_view(x)):
            break
        places = [p for d in places if (p := _before(x, d)) is not None]
        chain.append(x)
        x, used = x.operands[0], x
        last = max((d for d, extent in enumerate(dims(x)) if extent != 1), default=-1)
        stored = dims(product)[-2] <= FEW_ROWS or _is_in_memory(state, x)
        if moves and last in places and stored:
            end = len(chain)
    for i in chain[:end]:
        if i in state.clones and not state.is_stored(i):
            continue  # the group makes its own
        if state.refusal(g, i):
            return
        state.take_inside(g, i)
        if i in state.clones:
            state.put(g, i, {"full"})


def _before(move: Instruction, d: int) -> int | None:
    """Return the dimension of the operand that holds neighbors along dimension ``d`` of a move."""
    if definition(move.opcode).permutes:
        return int(move.attrs["dimensions"][d])
    if not is_view(move):
        cut = move.attrs["slice"][d]
        return d if cut.stride == 1 else None
    before, after = dims(move.operands[0]), dims(move)
    inner = math.prod(after[d + 1 :])
    for n, extent in enumerate(before):
        if extent != 1 and math.prod(before[n + 1 :]) == inner:
            return n if extent % after[d] == 0 else None
    return None


def _is_in_memory(state: State, x: Instruction) -> bool:
    """True if ``x`` is in memory in its own order anyway: no kernel stores it for this one alone.

    A product, or element-wise work, that only this attention uses is transposed as it is stored.
    """
    if x.opcode == "constant" or x in state.clones:
        return False
    if x in state.parts:
        return True
    made = x
    while is_view(made) and len(state.users[made]) == 1:
        made = made.operands[0]
    alone = len(state.users[made]) == 1 and made is not state.computation.root
    kinds = (Pattern.ELEMENTWISE, Pattern.OUT_FUSABLE, Pattern.INJECTIVE, Pattern.BROADCAST)
    return not alone or pattern(made) not in kinds


def take_final_views(state: State, g: Growing, rows: bool = False) -> None:
    """A transpose of the batches and rows of the one result ends the group.

    ``rows`` allows it to take rows apart, as where those of several heads share keys.
    """
    results = state.outputs(g)
    if len(results) != 1:
        return
    tail, chain, end = results[0], list[Instruction](), 0
    roles = _BATCH * len(nonunit(dims(tail)[:-2])) + _ROW + _COLUMN
    if len(roles) != len(nonunit(dims(tail))):
        return
    while len(state.users[tail]) == 1 and tail is not state.computation.root:
        (u,) = state.users[tail]
        moves = bool(definition(u.opcode).permutes)
        if not (is_view(u) or moves) or not state.is_free_to_join(u):
            break
        after = _permuted(roles, u) if moves else _reshaped(roles, dims(tail), dims(u), rows)
        if after is None or after[-1] != _COLUMN:
            break
        roles = after
        chain.append(u)
        tail = u
        end = len(chain) if moves else end
    for i in chain[:end]:
        if state.refusal(g, i):
            break
        state.put(g, i, {"result"})


_BATCH, _ROW, _COLUMN = "brc"


def _permuted(roles: str, transpose: Instruction) -> str | None:
    """Return the roles of the dimensions, none of size 1, after a transpose."""
    before = dims(transpose.operands[0])
    if len(roles) != len(nonunit(before)):
        return None
    given = iter(roles)
    old = [next(given) if d != 1 else "" for d in before]
    return "".join(old[k] for k in transpose.attrs["dimensions"])


def _reshaped(
    roles: str, before: tuple[int, ...], after: tuple[int, ...], rows: bool
) -> str | None:
    """Return the roles after a reshape; None if it takes columns apart, or joins roles.

    Rows are taken apart if ``rows`` allows it.
    """
    old, new = list(zip(nonunit(before), roles, strict=False)), list(nonunit(after))
    found = ""
    while old and new:
        (extent, role), mine = old.pop(0), [new.pop(0)]
        roles_here = role
        while extent != math.prod(mine):
            if extent < math.prod(mine) and old:
                more, role = old.pop(0)
                extent, roles_here = extent * more, roles_here + role
            elif extent > math.prod(mine) and new:
                mine.append(new.pop(0))
            else:
                return None
        apart = roles_here == _ROW and rows
        if len(mine) + len(roles_here) > 2 and set(roles_here) != {_BATCH} and not apart:
            return None
        found += roles_here[0] * len(mine)
    return None if old or new else found
