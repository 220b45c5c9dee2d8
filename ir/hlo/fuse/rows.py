"""FuseOps, second phase: reductions and what works on the same rows.

A reduction group has one *row space*: the dimensions kept by its reductions. Each member works on
whole rows (the shape before reduction) or has one element per row, so that a kernel can take one
row after the other through all stages: softmax is maximum, subtract, exponential, sum, divide,
and no stage waits for another row.
"""

from __future__ import annotations

import math

from ..nodes import Instruction
from ..ops.definition import Pattern
from ..patterns.match import nonunit
from .anchors import take_elements_of_tuple
from .kinds import dims, is_unit_view, pattern
from .state import LIMIT, OUTPUTS, Growing, Key, State

ROW_BYTES = 1 << 18
"""A row of up to this many bytes stays in cache between the stages that go over it."""

FEW_ROWS = 8
"""With fewer rows than this, rows cannot be spread over cores, and only small arrays are joined."""


def fuse_rows(state: State) -> None:
    """Start a group for each reduction, let it grow forward, unite groups of the same rows."""
    earlier: list[Growing] = []
    for i in state.computation.instructions:
        if pattern(i) is Pattern.REDUCTION and state.is_free_to_join(i):
            space, axes = _space(i)
            g = state.start("reduction", i, axes, space)
            g.members[i] = {"row"}
            take_elements_of_tuple(state, g)
            _grow(state, g)
            _unite(state, g, earlier)
            earlier = [x for x in earlier if state.group_of[x.anchor] is x] + [g]


def _space(reduce: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape before reduction and reduced dimensions, both without dimensions of size 1."""
    before = dims(reduce.operands[0])
    kept = [k for k, d in enumerate(before) if d != 1]
    axes = tuple(kept.index(k) for k in sorted(reduce.attrs["dimensions"]) if before[k] != 1)
    return nonunit(before), axes


def row_dims(g: Growing) -> tuple[int, ...]:
    """Return the dimensions that the reductions of a group keep, none of size 1."""
    return tuple(d for k, d in enumerate(g.space) if k not in g.axes)


def stage_key(g: Growing, i: Instruction) -> Key | None:
    """``full`` for work on whole rows, ``row`` for one element per row, None for anything else."""
    if g.kind != "reduction" or not g.axes:
        return None
    if nonunit(dims(i)) == g.space:
        return "full"
    return "row" if nonunit(dims(i)) == row_dims(g) else None


def several_stages(g: Growing) -> str:
    """Why work on whole rows cannot follow the reduction in one kernel; empty if it can."""
    if len(g.space) - 1 not in g.axes:
        return "the reduction is over outer dimensions: its rows are not contiguous"
    row = math.prod(g.space[k] for k in g.axes) * 4
    if row > ROW_BYTES:
        return f"a row takes {row} bytes and would leave the cache between the stages"
    if math.prod(row_dims(g)) < FEW_ROWS and row * math.prod(row_dims(g)) > ROW_BYTES // 4:
        return f"only {math.prod(row_dims(g))} rows: the stages would run on one core"
    return ""


def _grow(state: State, g: Growing) -> None:
    """Take users of members, in program order, as long as they are stages on the same rows."""
    refused: set[Instruction] = set()
    while True:
        waiting = {
            u: m
            for m in g.members
            for u in state.needed_by[m]
            if u not in g.members and u not in refused and state.is_free_to_join(u)
        }
        if not waiting:
            return
        u = min(waiting, key=state.position)
        why = _not_a_stage(state, g, u) or state.refusal(g, u)
        if why:
            state.reasons[waiting[u], u] = why
            refused.add(u)
            continue
        state.put(g, u, {"row" if pattern(u) is Pattern.REDUCTION else stage_key(g, u)})
        if pattern(u) is Pattern.REDUCTION:
            for e in state.users[u]:
                if e.opcode == "get-tuple-element":
                    state.put(g, e, {"row"})


def _not_a_stage(state: State, g: Growing, u: Instruction) -> str:
    """Why ``u``, a user of a member, is not a stage on the rows of ``g``; empty if it is one."""
    if pattern(u) is Pattern.REDUCTION:
        same = _space(u) == (g.space, g.axes)
        return several_stages(g) if same else "reduces other dimensions: its rows are others"
    if pattern(u) is not Pattern.ELEMENTWISE and not is_unit_view(u):
        return f"{u.opcode} does not work row by row"
    key = stage_key(g, u)
    if key is None:
        return "has neither the rows of the group nor one element per row"
    if not all(_reads_by_row(state, g, o) for o in u.operands):
        return "reads the rows of the group in another order"
    if key == "row":
        return ""
    full = len(state.outputs(g)) >= 2 * OUTPUTS
    return several_stages(g) or (f"group has {2 * OUTPUTS} results" if full else "")


def _reads_by_row(state: State, g: Growing, o: Instruction) -> bool:
    """True if ``o`` finds members' values in its own row alone, clones seen through."""
    if o in g.members:
        return True
    if o not in state.clones or not any(source in g.members for source in state.needs[o]):
        return True
    if is_unit_view(o):
        return _reads_by_row(state, g, o.operands[0])
    if pattern(o) is Pattern.BROADCAST and o.operands and nonunit(dims(o)) == g.space:
        row = o.operands[0]
        to = [k for k, d in enumerate(dims(o)) if d != 1]
        mapped = [to.index(k) for k in o.attrs["dimensions"] if dims(o)[k] != 1]
        kept = [k for k in range(len(g.space)) if k not in g.axes]
        return nonunit(dims(row)) == row_dims(g) and mapped == kept
    straight = pattern(o) is Pattern.ELEMENTWISE
    return straight and all(_reads_by_row(state, g, x) for x in o.operands)


def _unite(state: State, g: Growing, earlier: list[Growing]) -> None:
    """Take into ``g`` every earlier group over the same rows that feeds it or shares an input."""
    reads = _full_inputs(state, g)
    for other in earlier:
        if _may_unite(state, g, other, reads):
            state.unite(g, other)
            reads |= _full_inputs(state, g)


def _full_inputs(state: State, g: Growing) -> set[Instruction]:
    """The arrays of the size of all rows together that a group reads or will read."""
    found: set[Instruction] = set()
    waiting = [o for m in g.members for o in state.needs[m]]
    seen: set[Instruction] = set()
    while waiting:
        o = waiting.pop()
        if o in seen or o in g.members or nonunit(dims(o)) != g.space:
            continue
        seen.add(o)
        if pattern(o) is Pattern.ELEMENTWISE and state.is_free_to_join(o):
            waiting += state.needs[o]
        else:
            found.add(o)
    return found


def _may_unite(state: State, g: Growing, other: Growing, reads: set[Instruction]) -> bool:
    """True if ``other`` works on the rows of ``g`` and feeds it, or shares one of its ``reads``."""
    if (other.space, other.axes) != (g.space, g.axes) or not g.axes:
        return False
    if g.work + other.work > LIMIT:
        return False
    if state.clusters.cycle(g.anchor, other.anchor) is not None:
        return False
    feeds = state.clusters.reaches(other.anchor, g.anchor) or state.clusters.reaches(
        g.anchor, other.anchor
    )
    if not feeds and reads.isdisjoint(_full_inputs(state, other)):
        return False
    return not (feeds and several_stages(g) and not _meet_by_row(g, other))


def _meet_by_row(g: Growing, other: Growing) -> bool:
    """True if two groups have per-row results alone, so that no row is gone over twice."""
    return all("full" not in keys for x in (g, other) for keys in x.members.values())
