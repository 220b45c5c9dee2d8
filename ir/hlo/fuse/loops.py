"""FuseOps, last phase: what is left joins the group that uses it, or starts one of its own.

Users come before producers here, so that when an instruction is looked at, all who need it have a
group. If that is one group, the group holds the instruction's post-dominator and takes it.
"""

from __future__ import annotations

from ..nodes import Instruction
from ..ops.definition import Pattern
from ..ops.registry import definition
from .kinds import dims, flops, is_inlinable, is_unit_view, is_view, nbytes, pattern, size
from .rows import stage_key
from .state import ACCESSES, CLONE_FLOPS, OUTPUTS, SMALL, Growing, Key, State, takes_elements

AGAIN = 1.5
"""Most times that a group computes the elements of a producer that is work, in the mean."""

MOVED = 8
"""Most instructions that do arithmetic in a group around an in-fusable one."""


def fuse_loops(state: State) -> None:
    """Place every instruction that no anchor and no reduction has taken."""
    for i in reversed(state.computation.instructions):
        if not state.is_free_to_join(i) or i in state.parts:
            continue
        if i in state.clones and not state.is_stored(i):
            continue
        if not is_inlinable(i):
            _start_opaque(state, i)
        elif not _join_users(state, i) and not is_view(i):
            state.start("elementwise", i)


def _start_opaque(state: State, i: Instruction) -> None:
    g = state.start("opaque", i)
    for u in state.users[i]:
        if u.opcode == "get-tuple-element":
            state.put(g, u, {"result"})


def _join_users(state: State, i: Instruction) -> bool:
    """Put ``i`` into a group that uses it, or copy it into all; False if it must be alone."""
    groups = list({id(g): g for u in state.needed_by[i] if (g := state.group_of.get(u))}.values())
    alone = len(groups) == 1 and not state.is_stored(i)
    alone = alone and all(u in state.group_of for u in state.needed_by[i])
    for g in sorted(groups, key=lambda g: state.position(g.anchor)):
        why = _refusal(state, g, i, extra_output=not alone)
        if not why:
            state.put(g, i, _keys(state, g, i))
            return True
        for u in state.needed_by[i]:
            if state.group_of.get(u) is g:
                state.reasons.setdefault((i, u), why)
    return False


def _keys(state: State, g: Growing, i: Instruction) -> set[Key]:
    stage = stage_key(g, i)
    if stage == "row" and (pattern(i) is Pattern.ELEMENTWISE or is_unit_view(i)):
        return {"row"}
    return state.keys(g, i)


def _refusal(state: State, g: Growing, i: Instruction, *, extra_output: bool) -> str:
    """Why ``g`` does not take its producer ``i``; empty if it does."""
    if g.kind == "opaque" and pattern(g.anchor) is not Pattern.IN_FUSABLE:
        return f"{g.anchor.opcode} reads whole arrays"
    if g.kind == "opaque" and g.work + (flops(i) > 0) > MOVED:
        return f"group has {g.work} instructions, between which squares would not be transposed"
    for u in state.needed_by[i]:
        if state.group_of.get(u) is g and (why := _operand_refusal(u, i)):
            return why
    keys = state.keys(g, i)
    if extra_output and (why := _no_extra_output(state, g, i, keys)):
        return why
    if len(keys) > ACCESSES:
        return f"would be computed at {len(keys)} places for each element of the result"
    times = state.evaluations(g, i)
    if times > AGAIN and flops(i) > 2 and size(i) > SMALL:
        return f"each element would be computed {times:.3g} times"
    return state.refusal(g, i)


def _operand_refusal(user: Instruction, i: Instruction) -> str:
    """Why ``user``, a member, cannot have its operand ``i`` computed in place."""
    match pattern(user):
        case Pattern.OUT_FUSABLE:
            return f"feeds a {user.opcode}: it would be recomputed for every tile of the result"
        case Pattern.IN_FUSABLE if not takes_elements(user, i):
            return f"{user.opcode} reads its buffer"
        case Pattern.WINDOW:
            return "feeds overlapping windows: it would be recomputed for each of them"
        case Pattern.INJECTIVE if definition(user.opcode).gaps:
            if flops(i) > CLONE_FLOPS * 2 and size(i) > SMALL:
                return f"feeds a {user.opcode} that would compute it for elements it does not use"
        case Pattern.BROADCAST if size(i) * 4 > size(user) and flops(i) > CLONE_FLOPS:
            return "would be recomputed by the broadcast"
        case _:
            pass
    return ""


def _no_extra_output(state: State, g: Growing, i: Instruction, keys: set[Key]) -> str:
    """Why ``i``, which others need too, cannot be one more result of ``g``; empty if it can."""
    if g.kind not in ("elementwise", "reduction"):
        return "is needed elsewhere too"
    if g.kind == "reduction":
        full = stage_key(g, i) == "full" and keys == {"full"}
        if not full or len(g.space) - 1 not in g.axes:
            return "is needed elsewhere too, and not row by row here"
    elif dims(i) != g.space or keys != {"result"}:
        return "is needed elsewhere too, at other places"
    if len(state.outputs(g)) >= OUTPUTS:
        return f"group has {OUTPUTS} results"
    if nbytes(i) <= 64:
        return "is needed elsewhere too, and small"
    return ""
