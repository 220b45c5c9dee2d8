"""FuseOps: cut a computation into groups, each of which becomes one kernel.

Groups form around attention where the target has a kernel for it, then around dots and
convolutions, around reductions over the same rows, and along post-dominators for all the rest.
Merges never make a cycle, and every edge says why it was fused or not. Runs after
``passes.pipeline.optimize``, whose canonical forms it relies on.
"""

from __future__ import annotations

from collections.abc import Collection

from ..nodes import Computation
from ..rewrite import reachable
from ..text.printer import show_computation
from .anchors import (
    PLANES,
    STRIDED,
    TRANSPOSED,
    fuse_anchors,
    fuse_pixels,
    fuse_planes,
    fuse_strided,
    fuse_transposed,
    fuse_widened,
)
from .attention import KIND as ATTENTION
from .attention import fuse_attention, scale_late
from .blocked import KIND as BLOCKED
from .blocked import fuse_blocked
from .excess_precision import keep_wide
from .groups import Edge as Edge
from .groups import Fusion as Fusion
from .groups import Group as Group
from .groups import finish
from .loops import fuse_loops
from .masks import compute_masks, select_by_masks
from .rows import fuse_rows
from .runs import SCATTERED
from .softmax import multiply_by_reciprocals
from .state import PIECES, State


def fuse(
    computation: Computation, kinds: Collection[str] = (), excess_precision: bool = False
) -> Fusion:
    """Return the groups of one computation, in topological order, with a reason for every edge.

    ``kinds`` are the kinds of groups that the target takes beyond those that all of them do
    (``TargetKind.groups``). With ``excess_precision`` a group keeps narrow floats as f32 between
    its operations.

    Not in any group: parameters, constants, tuples, reshapes of whole buffers (views), slices that
    are pieces of a buffer, and control flow, whose bodies are fused as computations of their own.
    """
    state = State(computation, pieces=PIECES in kinds)
    if ATTENTION in kinds:
        fuse_attention(state, strided=STRIDED in kinds)
    if BLOCKED in kinds:
        fuse_blocked(state)
    fuse_anchors(state, scattered=SCATTERED in kinds)
    if PLANES in kinds:
        fuse_planes(state)
        fuse_pixels(state)
    if TRANSPOSED in kinds:
        fuse_transposed(state)
    if STRIDED in kinds:
        fuse_strided(state)
    fuse_widened(state, strided=STRIDED in kinds)
    fuse_rows(state)
    fuse_loops(state)
    fusion = finish(state)
    if excess_precision:
        fusion = keep_wide(fusion)
    fusion = compute_masks(scale_late(fusion), ATTENTION)
    fusion = select_by_masks(fusion, ATTENTION)
    return multiply_by_reciprocals(fusion)


def show_fusion(fusion: Fusion) -> str:
    """Return groups with their kinds and bodies, then the edges that were not fused, with reasons.

    The computations that a group calls come before it.
    """
    count = len(fusion.groups)
    parts = [f"// {fusion.computation.name}: {count} group{'s' if count != 1 else ''}"]
    shown: set[Computation] = set()
    for g in fusion.groups:
        called = [c for c in reachable(g.computation) if c not in {g.computation, *shown}]
        shown.update(called)
        parts += map(show_computation, called)
        inputs = ", ".join(i.name for i in g.inputs)
        outputs = ", ".join(i.name for i in g.outputs)
        head = f"// {g.name}: {g.kind}, ({inputs}) -> {outputs}"
        parts.append(f"{head}\n{show_computation(g.computation)}")
    rows = [
        f"//   {e.producer.name} -> {e.consumer.name}: {e.reason}"
        for e in fusion.edges
        if not e.fused
    ]
    last = "// edges that were not fused" if rows else "// every edge is fused"
    parts.append("\n".join([last, *rows]))
    return "\n\n".join(parts) + "\n"
