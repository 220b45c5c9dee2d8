"""FuseOps, first phase: dots, convolutions and windows take the element-wise work on their result.

The latest anchor in program order is served first: where two results are added, the later product
has the sum in its epilogue and finds the earlier one in memory.
"""

from __future__ import annotations

import math

from ..nodes import Instruction
from ..ops.definition import Pattern
from ..ops.registry import definition
from ..passes.canonical.dot import is_canonical
from .kinds import dims, is_unit_view, is_view, pattern
from .runs import keeps_lanes
from .state import OUTPUTS, Growing, State

PLANES = "planes"
"""The name of convolutions that read planes among the groups that only some targets take."""

TRANSPOSED = "transposed"
"""The name of dots that transpose an operand panel by panel, likewise."""

STRIDED = "strided"
"""The name of dots that read any operand through its transpose while they copy tiles of it."""

LEAST_SIDE = 16
"""Extent of each dimension of a dot, from which its kernel transposes an operand in tiles."""

NEAR = 1 << 20
"""Bytes of a left operand, up to which its columns are read at their distance: it stays in L2."""


def fuse_anchors(state: State, scattered: bool = False) -> None:
    """Start a group for each dot, convolution and reduce-window, and grow its epilogue.

    With ``scattered`` a final transpose may break up columns into runs of any length.
    """
    for i in reversed(state.computation.instructions):
        if pattern(i) in (Pattern.OUT_FUSABLE, Pattern.WINDOW) and state.is_free_to_join(i):
            g = state.start("reduction" if pattern(i) is Pattern.WINDOW else i.opcode, i)
            take_elements_of_tuple(state, g)
            grow_epilogue(state, g)
            if pattern(i) is Pattern.OUT_FUSABLE:
                _take_final_view(state, g, scattered)


def fuse_planes(state: State) -> None:
    """Let convolutions read an image that comes in as planes without transposing it first.

    A tile of neighbors in a row of the image is read side by side in any order of the dimensions.
    Not where a feature group has one channel: then channels are lanes and must be neighbors.
    """
    anchors = {g.anchor: None for g in state.group_of.values()}
    for i in (a for a in anchors if pattern(a) is Pattern.OUT_FUSABLE and "window" in a.attrs):
        image, *rest = i.operands
        if not definition(image.opcode).permutes or image.operands[0].opcode != "parameter":
            continue
        alone = state.users[image] == (i,) and image not in rest and state.is_free_to_join(image)
        if alone and i.attrs.get("feature_group_count", 1) == 1:
            state.take_inside(state.group_of[i], image)


def fuse_pixels(state: State) -> None:
    """Let convolutions read a kernel whose taps are pixels of several images where it is.

    The kernel of a weight's gradient is the gradient of an image: its features, the lanes of a
    tile, are neighbors already, and in which order the taps and inputs are far apart is the same.
    """
    anchors = {g.anchor: None for g in state.group_of.values()}
    for i in (a for a in anchors if pattern(a) is Pattern.OUT_FUSABLE and "window" in a.attrs):
        image, kernel = i.operands
        if not _is_read_once(state, i, kernel, image):
            continue
        if kernel.attrs["dimensions"][-1] == len(dims(kernel)) - 1:
            state.take_inside(state.group_of[i], kernel)


def fuse_transposed(state: State) -> None:
    """Let dots read transposed operands without a copy of the whole.

    A kernel packs the right operand anyway, in panels; of the left one it reads a few neighbors of
    a column in each step. Where the processor multiplies several narrow terms at once, they must be
    neighbors in memory.
    """
    anchors = {g.anchor: None for g in state.group_of.values()}
    for i in (a for a in anchors if is_canonical(a)):
        left, right = i.operands
        if min(*dims(i)[-2:], dims(left)[-1]) < LEAST_SIDE:
            continue
        if _is_transposed(state, i, right, left):
            state.take_inside(state.group_of[i], right)
        size = left.array.dtype.bytes * math.prod(dims(left)[-2:])
        if left.array.dtype.bytes >= 4 and size <= NEAR and _is_transposed(state, i, left, right):
            state.take_inside(state.group_of[i], left)


def fuse_strided(state: State) -> None:
    """Let dots read both operands through their transposes, in place.

    A GPU's kernel copies tiles along whichever dimension is contiguous in memory, so this may be
    the rows or the depth of the product, with the batches anywhere.
    """
    anchors = {g.anchor: g for g in state.group_of.values() if g.kind == g.anchor.opcode}
    for i, g in anchors.items():
        for x, other in (i.operands, i.operands[::-1]) if is_canonical(i) else ():
            for moved in _strided(state, i, x, other):
                if state.refusal(g, moved):
                    break
                state.take_inside(g, moved)


def fuse_widened(state: State, strided: bool = False) -> None:
    """Let dots of a few rows read their wide operand in its narrow form, and widen it themselves.

    Each element of it is used a few times, so that a pass over it would cost more than the dot.
    Kernels that are not ``strided`` transpose it where its columns are not neighbors in memory and
    it has several rows to multiply; they do that in f32.
    """
    anchors = {g.anchor: g for g in state.group_of.values() if g.kind == g.anchor.opcode}
    for i, g in anchors.items():
        if not is_canonical(i) or min(rows_columns := dims(i)[-2:]) >= LEAST_SIDE:
            continue
        n = int(rows_columns[0] <= rows_columns[1])
        if strided or n == 1 or rows_columns[1] == 1:
            take_widened(state, g, i, n)


def take_widened(state: State, g: Growing, product: Instruction, n: int) -> None:
    """Let a group read operand ``n`` of its product in the narrow form that is in memory."""
    x, user, views = product.operands[n], product, list[Instruction]()
    while x in g.members or (is_unit_view(x) and state.users[x] == (user,)):
        if not x.operands:
            return
        views += [] if x in g.members else [x]
        x, user = x.operands[0], x
    if state.users[x] != (user,) or not state.is_free_to_join(x) or not _widens(x):
        return
    for i in (*views, x):
        if state.refusal(g, i):
            return
        state.clones.pop(i, None)  # a member of this group alone
        state.take_inside(g, i)


def _widens(x: Instruction) -> bool:
    """True if ``x`` is a float of more bits than what it converts, which is in memory."""
    op = definition(x.opcode)
    if not (op.view and op.pattern is Pattern.ELEMENTWISE and x.array.dtype.is_float):
        return False
    source = x.operands[0]
    return source.opcode == "parameter" and source.array.dtype.bits < x.array.dtype.bits


def _strided(
    state: State, i: Instruction, x: Instruction, other: Instruction
) -> tuple[Instruction, ...]:
    """Return the transpose that is a dot's operand, behind the view of it if there is one.

    Empty where a tile of it would not be contiguous along one of its sides.
    """
    if not is_view(x):
        return (x,) if _is_read_once(state, i, x, other) and _is_contiguous(x, 2) else ()
    moved, last = x.operands[0], dims(x)[-1]
    alone = state.users[x] == (i,) and x is not other and state.is_free_to_join(x)
    if not alone or dims(moved)[-1:] != (last,) or not _is_read_once(state, x, moved, other):
        return ()
    sides = 2 if dims(x)[-2:] == dims(moved)[-2:] else 1
    return (x, moved) if _is_contiguous(moved, sides) else ()


def _is_contiguous(transpose: Instruction, sides: int) -> bool:
    """True if what is contiguous in memory is one of the last ``sides`` dimensions."""
    order, before = transpose.attrs["dimensions"], dims(transpose.operands[0])
    wide = [d for d, n in enumerate(before) if n != 1]
    return bool(wide) and wide[-1] in order[-sides:]


def _is_transposed(state: State, i: Instruction, x: Instruction, other: Instruction) -> bool:
    """True if ``x`` swaps the rows and the columns of an array, for this dot alone."""
    rank = len(dims(x))
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return _is_read_once(state, i, x, other) and x.attrs["dimensions"] == swapped


def _is_read_once(state: State, i: Instruction, x: Instruction, other: Instruction) -> bool:
    """True if ``x`` is a transpose, for this dot alone, of an array that is in memory anyway."""
    if not definition(x.opcode).permutes or state.users[x] != (i,) or x is other:
        return False
    source = x.operands[0]
    if source.opcode == "constant" or source in state.clones or source is other:
        return False
    return state.is_free_to_join(x)


def take_elements_of_tuple(state: State, g: Growing) -> None:
    """The ``get-tuple-element`` users of a tuple-shaped anchor belong to its group."""
    for u in state.users[g.anchor]:
        if u.opcode == "get-tuple-element":
            state.put(g, u, {"result"})


def grow_epilogue(state: State, g: Growing) -> None:
    """Take element-wise work on the result until there is no more."""
    while _grow(state, g):
        pass


def _grow(state: State, g: Growing) -> bool:
    """Take one more epilogue instruction, or one region up to a post-dominator."""
    grew = False
    for tail in [i for i in g.members if state.is_output(g, i)]:
        if region := _region(state, g, tail):
            for i in region:
                if why := state.refusal(g, i):
                    state.reasons[tail, i] = why
                    break
                state.put(g, i, {"result"})
                grew = True
        elif _take_stored_users(state, g, tail):
            grew = True
    return grew


def _region(state: State, g: Growing, tail: Instruction) -> list[Instruction]:
    """All that ``tail`` flows into until it has flown together again; empty if that is too much.

    The result is in program order, its last instruction post-dominates ``tail``, and each is
    element-wise work on the anchor's shape.
    """
    if state.is_stored(tail):
        return []
    pending = {u for u in state.needed_by[tail] if u not in g.members}
    region: list[Instruction] = []
    inside = {tail, *g.members}
    while pending:
        first = min(pending, key=state.position)
        pending.discard(first)
        if not _is_epilogue(state, g, first):
            return []
        region.append(first)
        inside.add(first)
        after = set(state.needed_by[first]) - inside
        if not pending and _is_closed(state, region, inside):
            return region
        if state.is_stored(first) or not after:
            return []
        pending |= after
    return []


def _is_closed(state: State, region: list[Instruction], inside: set[Instruction]) -> bool:
    """True if only the last instruction of a region is used outside of it."""
    return all(
        not state.is_stored(i) and all(u in inside for u in state.needed_by[i]) for i in region[:-1]
    )


def _is_epilogue(state: State, g: Growing, i: Instruction) -> bool:
    """True if ``i`` is element-wise work on the shape of the anchor that is legal in its group."""
    if not state.is_free_to_join(i) or pattern(i) is not Pattern.ELEMENTWISE:
        return False
    return dims(i) == g.space


def _take_stored_users(state: State, g: Growing, tail: Instruction) -> bool:
    """Element-wise users that go to memory anyway become further results of the group."""
    grew = False
    for u in state.needed_by[tail]:
        if not _is_epilogue(state, g, u) or not state.is_stored(u):
            continue
        if len(state.outputs(g)) >= OUTPUTS:
            state.reasons[tail, u] = f"group has {OUTPUTS} results"
        elif why := state.refusal(g, u):
            state.reasons[tail, u] = why
        else:
            state.put(g, u, {"result"})
            grew = True
    return grew


def _take_final_view(state: State, g: Growing, scattered: bool) -> None:
    """A transpose of the one result ends the group, with the reshapes before it."""
    results = state.outputs(g)
    if len(results) != 1 or results[0] not in g.members:
        return
    chain: list[Instruction] = []
    tail = results[0]
    while len(state.users[tail]) == 1 and tail is not state.computation.root:
        (u,) = state.users[tail]
        if not (is_view(u) or definition(u.opcode).permutes) or not state.is_free_to_join(u):
            break
        chain.append(u)
        tail = u
    while chain and not definition(chain[-1].opcode).permutes:
        chain.pop()
    if not scattered and not keeps_lanes(results[0], chain):
        mover = next(i for i in chain if definition(i.opcode).permutes)
        state.reasons[mover.operands[0], mover] = "the product would be stored in short runs"
        return
    for i in chain:
        if state.refusal(g, i):
            break
        state.put(g, i, {"result"})
