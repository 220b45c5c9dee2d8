"""Lowering: a scheduled function becomes plain loops over flat buffers, pass by pass.

Every pass takes and gives a function that means the same. Its row says what holds once it has run,
which is why the rows are in this order, and which stage begins with it (``invariants``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...ir.loop.nodes import Func
from ...ir.loop.notes import WORKSPACE_BYTES
from ...ir.loop.simplify import simplify_stmt
from ...ir.passes import Established, Instrument, LegalIR, Pass, Pipeline, verifying
from ...ir.target import Target
from .gpu.async_copies import copy_at_once, mark_async_copies, strip_annotations
from .gpu.barriers import place_barriers
from .gpu.bind import bind_threads
from .gpu.bulk_copies import mark_boxes
from .gpu.bulk_stores import store_boxes
from .gpu.close_gaps import close_gaps
from .gpu.cross_thread import combine_threads
from .gpu.independent import mark_independent
from .gpu.limits import check_limits
from .gpu.matrix import lower_matrices
from .gpu.memory_scopes import assign_memory_scopes, privatize
from .gpu.narrow import narrow_shared
from .gpu.overlap import overlap_launches
from .gpu.products.tensor_memory import lower_tensor_memory
from .gpu.products.warpgroups import lower_warpgroups
from .gpu.remote import reach_remote
from .gpu.roles import split_roles
from .gpu.side_by_side import join_launches
from .gpu.software_pipeline import pipeline_loops
from .gpu.strides import stride_blocks
from .gpu.turns import deal_turns
from .invariants import (
    ASSIGNED_IR,
    BOUND_IR,
    FLAT_IR,
    GPU_FLAT_IR,
    GPU_OPENED_IR,
    OPENED_IR,
    PLACED_IR,
    SCHEDULED_IR,
)
from .passes.flatten import flatten
from .passes.guard_updates import guard_updates
from .passes.hoist_init import hoist_init
from .passes.lower_blocks import lower_blocks
from .passes.name_quotients import name_quotients
from .passes.partition import partition
from .passes.place import compact, place_buffers
from .passes.promote import promote
from .passes.rebuild import with_body
from .passes.roll_epilogues import roll_epilogues
from .passes.unroll import choose_unrolling
from .passes.weight import GPU_COPIES, LIMIT
from .passes.workspace import workspace_bytes


@dataclass(frozen=True, slots=True)
class LoweringPass:
    """A pass, what holds once it has run, and the stage that begins with it, if any."""

    name: str
    run: Callable[[Func, Target], Func]
    then: str
    reaches: LegalIR[Func] | None = None


def _whatever(run: Callable[[Func], Func]) -> Callable[[Func, Target], Func]:
    """A pass that does not ask for the target."""
    return lambda func, target: run(func)


def _simplified(func: Func) -> Func:
    return with_body(func, simplify_stmt(func.body))


_PLACE = LoweringPass(
    "place_buffers",
    _whatever(place_buffers),
    "Every intermediate buffer is allocated around its uses, at full size.",
    PLACED_IR,
)
_BLOCKS = LoweringPass(
    "lower_blocks",
    _whatever(lower_blocks),
    "Axes are the values of loops and guards are conditions, so bounds can be derived.",
    OPENED_IR,
)
_SIMPLIFY = LoweringPass(
    "simplify", _whatever(_simplified), "Conditions and indices are in normal form for compact."
)
_COMPACT = LoweringPass(
    "compact", _whatever(compact), "Each buffer is as large as the box that its scope touches."
)
_SIMPLIFY_COMPACT = LoweringPass(
    "simplify_compact", _whatever(_simplified), "Indices relative to those boxes are short again."
)


def _edges(limit: int) -> tuple[LoweringPass, ...]:
    """Return passes that take guards out of loops; copies may make up to ``limit`` lines."""
    return (
        LoweringPass(
            "hoist_init",
            _whatever(hoist_init),
            "A reduction begins before its loop, so no iteration asks whether it is the first.",
        ),
        LoweringPass(
            "name_quotients",
            _whatever(name_quotients),
            "Parts of fused indices have names, so guards over them can be decided.",
        ),
        LoweringPass(
            "partition",
            partial(partition, limit=limit),
            "Main parts of loops have no guards; only the edges keep them.",
        ),
        LoweringPass(
            "promote",
            _whatever(promote),
            "An element that a loop updates is in a register while the loop runs.",
        ),
    )


_GUARD_UPDATES = LoweringPass(
    "guard_updates",
    _whatever(guard_updates),
    "Loops over updates of a tile run where their guards hold, which may be no constant bounds.",
)
_ROLL = LoweringPass(
    "roll_epilogues",
    roll_epilogues,
    "What is much code for each row of a register tile is a loop over its rows, in memory.",
)
_UNROLL = LoweringPass(
    "unroll", choose_unrolling, "Loops over register tiles are marked to be written out."
)
_FLATTEN = LoweringPass(
    "flatten",
    _whatever(flatten),
    "Buffers have one dimension; layouts are arithmetic.",
    FLAT_IR,
)
_SIMPLIFY_FLAT = LoweringPass(
    "simplify_flat",
    _whatever(_simplified),
    "Addresses are in the form that the emitter matches.",
)

PASSES: tuple[LoweringPass, ...] = (
    *(_PLACE, _BLOCKS, _SIMPLIFY, _COMPACT, _SIMPLIFY_COMPACT, _ROLL, _GUARD_UPDATES),
    *_edges(LIMIT),
    *(_UNROLL, _FLATTEN, _SIMPLIFY_FLAT),
)
"""The passes of a function for a CPU."""

GPU_PASSES: tuple[LoweringPass, ...] = (
    LoweringPass(
        "mark_async_copies",
        _whatever(mark_async_copies),
        "Copies that may be asynchronous are marked, while blocks still tell what they copy.",
    ),
    _PLACE,
    LoweringPass(
        "bind_threads",
        _whatever(bind_threads),
        "Each launch is one chain of thread loops around what every thread does.",
        BOUND_IR,
    ),
    LoweringPass(
        "deal_turns",
        _whatever(deal_turns),
        "Blocks that do several iterations of a loop over blocks do them in a serial loop.",
    ),
    LoweringPass(
        "mark_independent",
        _whatever(mark_independent),
        "It is known which launches need nothing of those right before them.",
    ),
    LoweringPass(
        "combine_threads",
        _whatever(combine_threads),
        "A reduction over threads is a partial result each and one exchange.",
    ),
    replace(_BLOCKS, reaches=GPU_OPENED_IR),
    _SIMPLIFY,
    LoweringPass(
        "reach_remote",
        _whatever(reach_remote),
        "What blocks of a cluster pass on is in their shared memory.",
    ),
    _COMPACT,
    LoweringPass(
        "assign_memory_scopes",
        assign_memory_scopes,
        "Every buffer of a launch is in registers, shared memory or the workspace.",
        ASSIGNED_IR,
    ),
    LoweringPass(
        "compact_assigned",
        _whatever(compact),
        "A buffer that became a thread's own is as large as one thread needs it.",
    ),
    LoweringPass(
        "close_gaps",
        _whatever(close_gaps),
        "A thread's own buffers have no room for other threads' elements.",
    ),
    LoweringPass(
        "privatize",
        _whatever(privatize),
        "A buffer that one thread alone touches is not in shared memory.",
    ),
    _SIMPLIFY_COMPACT,
    LoweringPass(
        "mark_boxes",
        mark_boxes,
        "Copies of pipelined loops that bulk copies can make are boxes, before edges are split.",
    ),
    *_edges(GPU_COPIES),
    LoweringPass(
        "pipeline_loops",
        pipeline_loops,
        "Copies for later iterations are started while a pipelined loop computes.",
    ),
    LoweringPass(
        "copy_at_once",
        copy_at_once,
        "Marked copies are asynchronous instructions where their place allows it.",
    ),
    LoweringPass(
        "narrow_shared",
        _whatever(narrow_shared),
        "Shared buffers are allocated around their uses alone, so that they can share places.",
    ),
    LoweringPass(
        "place_barriers",
        _whatever(place_barriers),
        "No thread touches what another one may still write or read.",
    ),
    LoweringPass(
        "store_boxes",
        _whatever(store_boxes),
        "Boxes of results are stored by one thread, which waits until they were read.",
    ),
    LoweringPass(
        "split_roles",
        split_roles,
        "Where a loop says so, some warps copy and the others compute, and wait at mbarriers.",
    ),
    LoweringPass(
        "lower_matrices",
        _whatever(lower_matrices),
        "Matrix tiles are the words that each lane holds.",
    ),
    LoweringPass(
        "lower_warpgroups",
        _whatever(lower_warpgroups),
        "Products of warp groups have sums in registers and operands by descriptors.",
    ),
    LoweringPass(
        "lower_tensor_memory",
        _whatever(lower_tensor_memory),
        "Sums in tensor memory are columns that the block allocates; one thread multiplies.",
    ),
    _UNROLL,
    replace(_FLATTEN, reaches=GPU_FLAT_IR),
    _SIMPLIFY_FLAT,
    LoweringPass(
        "strip_annotations",
        _whatever(strip_annotations),
        "The function has no notes of the passes above.",
    ),
    LoweringPass(
        "join_launches",
        join_launches,
        "Launches that need nothing of each other are one, where the GPU holds all their blocks.",
    ),
    LoweringPass(
        "stride_blocks",
        _whatever(stride_blocks),
        "Loops over blocks that ask the device for its size run in any number of blocks.",
    ),
    LoweringPass(
        "overlap_launches",
        overlap_launches,
        "Launches that may begin early wait before they touch memory.",
    ),
    LoweringPass("check_limits", check_limits, "Every launch fits the GPU."),
)
"""The passes of a function for a GPU."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """The passes that functions for a kind of target go through, in order."""

    rows: tuple[LoweringPass, ...]

    def pipeline(self, target: Target) -> Pipeline[Func]:
        """Return the same as a pipeline, for instruments to watch."""
        return Pipeline(
            tuple(Pass(r.name, partial(_run, r, target), r.then, r.reaches) for r in self.rows)
        )

    def stages(self, func: Func, target: Target) -> Iterator[tuple[str, Func]]:
        """Yield the name and the result of each pass, in order."""
        for step in self.pipeline(target).passes:
            func = step.run(func)
            yield step.name, func

    def lower(
        self, func: Func, target: Target, instruments: Sequence[Instrument[Func]] = ()
    ) -> Func:
        """Return the flat function: no blocks, buffers of one dimension made where they are used.

        For a GPU it is a sequence of launches: chains of thread loops, each once and in the order
        of ``nodes.THREADS``, around what every thread does.
        ``WORKSPACE_BYTES`` is the memory that its caller must give it (``emit.module``).
        """
        pipeline = self.pipeline(target)
        checks = Established(pipeline.passes, SCHEDULED_IR, f"lowering {func.name}")
        func = pipeline.run(func, (*instruments, checks) if verifying() else instruments)
        size = workspace_bytes(func.body)
        return WORKSPACE_BYTES.put(func, size) if size else WORKSPACE_BYTES.drop(func)


def _run(row: LoweringPass, target: Target, func: Func) -> Func:
    return row.run(func, target)
