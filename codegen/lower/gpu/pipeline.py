"""The passes of a function for a GPU, in order: those of CPUs, and what threads take."""

from __future__ import annotations

from dataclasses import replace

from ..invariants import ASSIGNED_IR, BOUND_IR, GPU_FLAT_IR, GPU_OPENED_IR
from ..passes.place import compact
from ..passes.weight import GPU_COPIES
from ..pipeline import (
    BLOCKS,
    COMPACT,
    FLATTEN,
    PLACE,
    SIMPLIFY,
    SIMPLIFY_COMPACT,
    SIMPLIFY_FLAT,
    UNROLL,
    LoweringPass,
    edges,
    untargeted,
)
from .async_copies import copy_at_once, mark_async_copies, strip_annotations
from .barriers import place_barriers
from .bind import bind_threads
from .bulk_copies import mark_boxes
from .bulk_stores import store_boxes
from .close_gaps import close_gaps
from .cross_thread import combine_threads
from .horizontal_fusion import join_launches
from .independent import mark_independent
from .limits import check_limits
from .matrix import lower_matrices
from .memory_scopes import assign_memory_scopes, privatize
from .narrow import narrow_shared
from .overlap import overlap_launches
from .products.tensor_memory import lower_tensor_memory
from .products.warpgroups import lower_warpgroups
from .remote import reach_remote
from .roles import split_roles
from .software_pipeline import pipeline_loops
from .strides import stride_blocks
from .turns import deal_turns

GPU_PASSES: tuple[LoweringPass, ...] = (
    LoweringPass(
        "mark_async_copies",
        untargeted(mark_async_copies),
        "Copies that may be asynchronous are marked, while blocks still tell what they copy.",
    ),
    PLACE,
    LoweringPass(
        "bind_threads",
        untargeted(bind_threads),
        "Each launch is one chain of thread loops around what every thread does.",
        BOUND_IR,
    ),
    LoweringPass(
        "deal_turns",
        untargeted(deal_turns),
        "Blocks that do several iterations of a loop over blocks do them in a serial loop.",
    ),
    LoweringPass(
        "mark_independent",
        untargeted(mark_independent),
        "It is known which launches need nothing of those right before them.",
    ),
    LoweringPass(
        "combine_threads",
        untargeted(combine_threads),
        "A reduction over threads is a partial result each and one exchange.",
    ),
    replace(BLOCKS, reaches=GPU_OPENED_IR),
    SIMPLIFY,
    LoweringPass(
        "reach_remote",
        untargeted(reach_remote),
        "What blocks of a cluster pass on is in their shared memory.",
    ),
    COMPACT,
    LoweringPass(
        "assign_memory_scopes",
        assign_memory_scopes,
        "Every buffer of a launch is in registers, shared memory or the workspace.",
        ASSIGNED_IR,
    ),
    LoweringPass(
        "compact_assigned",
        untargeted(compact),
        "A buffer that became a thread's own is as large as one thread needs it.",
    ),
    LoweringPass(
        "close_gaps",
        untargeted(close_gaps),
        "A thread's own buffers have no room for other threads' elements.",
    ),
    LoweringPass(
        "privatize",
        untargeted(privatize),
        "A buffer that one thread alone touches is not in shared memory.",
    ),
    SIMPLIFY_COMPACT,
    LoweringPass(
        "mark_boxes",
        mark_boxes,
        "Copies of pipelined loops that bulk copies can make are boxes, before edges are split.",
    ),
    *edges(GPU_COPIES),
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
        untargeted(narrow_shared),
        "Shared buffers are allocated around their uses alone, so that they can share places.",
    ),
    LoweringPass(
        "place_barriers",
        untargeted(place_barriers),
        "No thread touches what another one may still write or read.",
    ),
    LoweringPass(
        "store_boxes",
        untargeted(store_boxes),
        "Boxes of results are stored by one thread, which waits until they were read.",
    ),
    LoweringPass(
        "split_roles",
        split_roles,
        "Where a loop says so, some warps copy and the others compute, and wait at mbarriers.",
    ),
    LoweringPass(
        "lower_matrices",
        untargeted(lower_matrices),
        "Matrix tiles are the words that each lane holds.",
    ),
    LoweringPass(
        "lower_warpgroups",
        untargeted(lower_warpgroups),
        "Products of warp groups have sums in registers and operands by descriptors.",
    ),
    LoweringPass(
        "lower_tensor_memory",
        untargeted(lower_tensor_memory),
        "Sums in tensor memory are columns that the block allocates; one thread multiplies.",
    ),
    UNROLL,
    replace(FLATTEN, reaches=GPU_FLAT_IR),
    SIMPLIFY_FLAT,
    LoweringPass(
        "strip_annotations",
        untargeted(strip_annotations),
        "The function has no notes of the passes above.",
    ),
    LoweringPass(
        "join_launches",
        join_launches,
        "Launches that need nothing of each other are one, where the GPU holds all their blocks.",
    ),
    LoweringPass(
        "stride_blocks",
        untargeted(stride_blocks),
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
