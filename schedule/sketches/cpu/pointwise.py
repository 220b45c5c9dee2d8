"""Element-wise and data-movement blocks: one pass over memory, vectors along the last axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....ir.target import Target
from ...cursor import LoopRef
from ...language.schedule import Schedule
from ...space.analyze import BlockInfo

PARALLEL_WORK = 1 << 15  # FLOPs and moved elements below which a second thread does not pay
LEAST_SQUARE = 4  # lanes from which squares are transposed in registers
TOGETHER = 32  # rows of a transposition that are processed together: two cache lines of f32


def collapsible(info: BlockInfo, outer: int, inner: int) -> bool:
    """True if adjacent axes ``outer`` and ``inner`` can be fused without divisions.

    Every access steps through the pair as through a single axis.
    """
    a, b = info.spatial[outer], info.spatial[inner]
    for access in (*info.loads, *info.stores):
        x, y = access.stride(a.var), access.stride(b.var)
        if x is None or y is None or x != y * b.extent:
            return False
    return True


def trailing(info: BlockInfo) -> int:
    """Return the number of trailing axes that collapse into one."""
    n = len(info.spatial)
    count = min(n, 1)
    while count < n and collapsible(info, n - count - 1, n - count):
        count += 1
    return count


def lanes_of(info: BlockInfo, target: Target) -> int:
    """Return the vector lanes for the widest element type that the block accesses."""
    accesses = (*info.loads, *info.stores)
    widest = max((a.buffer.dtype for a in accesses), key=lambda d: d.bytes, default=None)
    return 1 if widest is None else max(1, target.lanes(widest))


def work_of(info: BlockInfo) -> float:
    """Return a rough cost of a block: its FLOPs plus twice the elements that it moves."""
    return info.flops + 2.0 * info.points * (len(info.inputs) + len(info.stores))


def pass_seconds(blocks: Sequence[BlockInfo], threads: int, target: Target) -> float:
    """Estimate the seconds of one pass of each block: arithmetic or bytes, and the fork.

    Transcendental functions count as their FLOPs; what a block passes to another stays in L1.
    """
    core, lanes = target.core, max(1, target.vector_bits // 32)
    vectors = core.fmas / core.turns(target.vector_bits) * core.clock
    inner = {s.buffer for b in blocks for s in b.stores} & {
        a.buffer for b in blocks for a in b.inputs
    }
    outer = {a.buffer for b in blocks for a in (*b.inputs, *b.stores)} - inner
    size = float(sum(math.prod(x.shape) * x.dtype.bytes for x in outer))
    flops = sum(b.flops for b in blocks) / (lanes * vectors * threads)
    seconds = max(flops, size / core.stream(size, threads))
    return seconds + (core.seconds(core.fork) if threads > 1 else 0.0)


def side_by_side(info: BlockInfo, lanes: int) -> bool:
    """True if neighbors on the last spatial axis may be lanes: they are neighbors in memory."""
    last = info.spatial[-1]
    stored = {a.step(last.var) for a in info.stores}
    loaded = {a.step(last.var) for a in info.loads}
    return stored == {1} and loaded <= {0, 1} and last.extent > lanes > 1


def schedule_pointwise(
    sch: Schedule,
    info: BlockInfo,
    target: Target,
    unroll: int,
    parallel: bool,
    squares: bool = False,
) -> None:
    """Collapse axes, vectorize the last one, and run the others in parallel.

    If a load is contiguous along another axis (a transposition), ``TOGETHER`` neighbours on that
    axis are processed before the next vector, while the cache lines that they share are cached.
    With ``squares`` the lanes are on that axis instead, if all loads allow it, and as many elements
    of the last one are unrolled: code generation transposes such squares in registers.
    """
    loops = list(sch.get_loops(info.name))
    if not loops or info.reduce:
        return
    count = max(1, trailing(info))
    last = loops[-1] if count == 1 else sch.fuse(*loops[-count:])
    outer = loops[:-count]
    extent = math.prod(a.extent for a in info.spatial[-count:])
    lanes = lanes_of(info, target)
    width = lanes * unroll if extent % (lanes * unroll) == 0 else lanes
    if extent > width > 1:
        rest, lane = sch.split(last, [None, width])
        across = _transposed(info, count)
        if squares and across is not None and turns_squares(info, target):
            sch.unroll(lane)
            outer[across], near = sch.split(outer[across], [None, lanes])
            sch.reorder(*outer, rest, lane, near)
            lane = near
        elif across is not None:
            rows = min(TOGETHER, sch.extent(outer[across]))
            outer[across], near = sch.split(outer[across], [None, rows])
            sch.reorder(*outer, rest, near, lane)
        sch.vectorize(lane)
        outer.append(rest)
    elif extent > 1 and lanes > 1:
        sch.vectorize(last)
    else:
        outer.append(last)
    if outer and parallel:
        sch.parallel(outer[0] if len(outer) == 1 else _fuse_some(sch, outer))


def turns_squares(info: BlockInfo, target: Target) -> bool:
    """True if a transposition can read vectors, transpose squares of them and store vectors."""
    count, lanes = max(1, trailing(info)), lanes_of(info, target)
    moved = info.spatial and not info.reduce and not info.opaque
    across = _transposed(info, count) if moved else None
    if across is None or lanes < LEAST_SQUARE:
        return False
    axis, last = info.spatial[across], info.spatial[-1]
    words = all(a.buffer.dtype.bytes >= 4 for a in (*info.loads, *info.stores))
    steps = {a.stride(axis.var) for a in info.inputs}
    return words and steps <= {0, 1} and min(axis.extent, last.extent) >= lanes


def _transposed(info: BlockInfo, last: int) -> int | None:
    """Return an outer axis along which a load is contiguous that is strided along the last axis."""
    vectors = info.spatial[-1].var
    for access in info.inputs:
        if access.stride(vectors) not in (0, 1):
            for n, axis in enumerate(info.spatial[:-last]):
                if access.stride(axis.var) == 1 and axis.extent > 1:
                    return n
    return None


def _fuse_some(sch: Schedule, outer: list[LoopRef]) -> LoopRef:
    """Fuse outer loops until there are enough pieces; each fusion costs a division per piece."""
    pieces, count = 1, 0
    while count < len(outer) and pieces < 64:
        pieces *= sch.extent(outer[count])
        count += 1
    return outer[0] if count == 1 else sch.fuse(*outer[:count])
