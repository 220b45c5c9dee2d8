"""Inlining of intermediates that are cheaper to recompute than to store."""

from __future__ import annotations

import math

from .....ir.loop.nodes import Block, Buffer, Load
from .....ir.loop.visit import exprs_under, loads_under
from .....ir.target import Target
from ....errors import ScheduleError
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo, blocks_of, describe
from ....stores import single_store
from .clusters import common_rows, worth_one_launch
from .machine import LATENCY, LAUNCH, flops_of, memory_seconds, shared_seconds, work_seconds

LARGEST = 400  # nodes of a body: more is slow to compile and fills the instruction cache
CACHED = 3.0  # bandwidth of the level-2 cache relative to memory
NEAR = 16 << 10  # bytes that stay in a multiprocessor's L1, which is as fast as shared memory
STAGE = 5e-7  # seconds of latency that a separate stage adds to a launch


def inline_cheap(sch: Schedule, target: Target) -> tuple[str, ...]:
    """Inline the element-wise blocks that are cheaper to recompute; return their names."""
    done: list[str] = []
    for name in [b.name for b in blocks_of(sch.func)]:
        info = describe(sch.block(name))
        if may_inline(info, sch) and worth_inlining(info, sch, target):
            try:
                sch.compute_inline(name)
                done.append(name)
            except ScheduleError:
                continue
    return tuple(done)


def inline_moves(sch: Schedule) -> tuple[str, ...]:
    """Inline the blocks that only move elements of an input; return their names."""
    done: list[str] = []
    for info in blocks_of(sch.func):
        store = single_store(info.block)
        moves = store is not None and isinstance(store.value, Load) and may_inline(info, sch)
        if moves and all(a.buffer in sch.func.params for a in info.loads):
            try:
                sch.compute_inline(info.name)
                done.append(info.name)
            except ScheduleError:
                continue
    return tuple(done)


def may_inline(info: BlockInfo, sch: Schedule) -> bool:
    """True if a block is element-wise and writes one intermediate buffer."""
    plain = not info.reduce and not info.opaque and len(info.stores) == 1
    return plain and info.stores[0].buffer in sch.func.allocs


def worth_inlining(info: BlockInfo, sch: Schedule, target: Target) -> bool:
    """True if a launch and a buffer cost more than recomputing the block."""
    buffer = info.stores[0].buffer
    readers = [b for b in blocks_of(sch.func) if any(a.buffer is buffer for a in b.loads)]
    if not readers or any(b.opaque for b in readers):
        return False
    uses = [loads_of(b.block, buffer) for b in readers]
    size = nodes_of(info.block)
    if any(nodes_of(b.block) + n * size > LARGEST for b, n in zip(readers, uses, strict=True)):
        return False
    times = sum(b.points * n for b, n in zip(readers, uses, strict=True))
    each = flops_of(info) / max(info.points, 1)
    extra = max(times - info.points, 0)
    again = work_seconds(target, each * extra)
    again += sum(_read_again(target, a.buffer, extra) for a in info.inputs)
    part = (info, *readers)
    rows = math.prod(a.extent for a in info.spatial[: common_rows(part)])
    held = info.points * buffer.dtype.bytes <= rows * target.gpu.shared_per_block
    if held and worth_one_launch(part) and any(b.reduce for b in readers):
        return again <= STAGE + shared_seconds(target, 2.0 * info.points * buffer.dtype.bytes)
    apart = memory_seconds(target, 2.0 * info.points * buffer.dtype.bytes)
    return again <= LAUNCH + LATENCY + apart


def _read_again(target: Target, buffer: Buffer, times: float) -> float:
    """Return the seconds of reading elements again, from the nearest cache that has the buffer."""
    each = buffer.dtype.bytes
    if math.prod(buffer.shape) * each <= NEAR:
        return shared_seconds(target, times * each)
    return memory_seconds(target, times * each) / CACHED


def loads_of(block: Block, buffer: Buffer) -> int:
    """Return the number of loads of a buffer in a block's body."""
    return sum(x.buffer is buffer for x in loads_under(block.body))


def nodes_of(block: Block) -> int:
    """Return the number of expression nodes in a block's body."""
    return sum(1 for _ in exprs_under(block.body))
