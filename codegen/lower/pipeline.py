"""Lowering: a scheduled function becomes plain loops over flat buffers, pass by pass.

Every pass takes and gives a function that means the same; ``stages`` gives each one's result, for
tests and dumps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType

from ...ir.loop.nodes import Func
from ...ir.loop.simplify import simplify_stmt
from ...ir.target import Target
from .gpu.async_copies import copy_at_once, mark_async_copies, strip_annotations
from .gpu.barriers import place_barriers
from .gpu.bind import bind_threads
from .gpu.close_gaps import close_gaps
from .gpu.cross_thread import combine_threads
from .gpu.limits import check_limits
from .gpu.matrix import lower_matrices
from .gpu.memory_scopes import assign_memory_scopes, privatize
from .gpu.narrow import narrow_shared
from .gpu.software_pipeline import pipeline_loops
from .passes.flatten import flatten
from .passes.hoist_init import hoist_init
from .passes.lower_blocks import lower_blocks
from .passes.name_quotients import name_quotients
from .passes.partition import partition
from .passes.place import compact, place_buffers
from .passes.promote import promote
from .passes.rebuild import with_body
from .passes.unroll import choose_unrolling
from .passes.workspace import workspace_bytes

Pass = Callable[[Func, Target], Func]


def _simplify(func: Func, target: Target) -> Func:
    return with_body(func, simplify_stmt(func.body))


PASSES: tuple[tuple[str, Pass], ...] = (
    ("place_buffers", lambda f, t: place_buffers(f)),
    ("lower_blocks", lambda f, t: lower_blocks(f)),
    ("simplify", _simplify),
    ("compact", lambda f, t: compact(f)),
    ("simplify_compact", _simplify),
    ("hoist_init", lambda f, t: hoist_init(f)),
    ("name_quotients", lambda f, t: name_quotients(f)),
    ("partition", partition),
    ("promote", lambda f, t: promote(f)),
    ("unroll", choose_unrolling),
    ("flatten", lambda f, t: flatten(f)),
    ("simplify_flat", _simplify),
)
"""What a function for a CPU goes through."""

GPU_PASSES: tuple[tuple[str, Pass], ...] = (
    ("mark_async_copies", lambda f, t: mark_async_copies(f)),
    ("place_buffers", lambda f, t: place_buffers(f)),
    ("bind_threads", lambda f, t: bind_threads(f)),
    ("combine_threads", lambda f, t: combine_threads(f)),
    ("lower_blocks", lambda f, t: lower_blocks(f)),
    ("simplify", _simplify),
    ("compact", lambda f, t: compact(f)),
    ("assign_memory_scopes", assign_memory_scopes),
    ("compact_settled", lambda f, t: compact(f)),
    ("close_gaps", lambda f, t: close_gaps(f)),
    ("privatize", lambda f, t: privatize(f)),
    ("simplify_compact", _simplify),
    ("hoist_init", lambda f, t: hoist_init(f)),
    ("name_quotients", lambda f, t: name_quotients(f)),
    ("partition", partition),
    ("promote", lambda f, t: promote(f)),
    ("pipeline_loops", pipeline_loops),
    ("copy_at_once", copy_at_once),
    ("narrow_shared", lambda f, t: narrow_shared(f)),
    ("place_barriers", lambda f, t: place_barriers(f)),
    ("lower_matrices", lambda f, t: lower_matrices(f)),
    ("unroll", choose_unrolling),
    ("flatten", lambda f, t: flatten(f)),
    ("simplify_flat", _simplify),
    ("strip_annotations", lambda f, t: strip_annotations(f)),
    ("check_limits", check_limits),
)
"""What a function for a GPU goes through."""


def stages(func: Func, target: Target) -> Iterator[tuple[str, Func]]:
    """The name and the result of each pass, in order."""
    for name, run in GPU_PASSES if target.is_gpu else PASSES:
        func = run(func, target)
        yield name, func


def lower(func: Func, target: Target) -> Func:
    """The flat function: no blocks, buffers of one dimension made where they are used.

    For a GPU it is a sequence of launches: chains of thread loops, each once and in the order of
    ``nodes.THREADS``, around what every thread does.
    ``notes["workspace_bytes"]`` is the memory that its caller must give it (see ``llvm_ir``).
    """
    for _, result in stages(func, target):
        func = result
    size = workspace_bytes(func.body)
    notes = {k: v for k, v in func.notes.items() if k != "workspace_bytes"}
    if size:
        notes["workspace_bytes"] = size
    return replace(func, notes=MappingProxyType(notes))
