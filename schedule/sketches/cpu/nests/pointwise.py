"""Element-wise and data-movement blocks: one pass over memory, vectors along the last axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .....ir.dtypes import index
from .....ir.elementwise import TABLE
from .....ir.loop.nodes import Buffer, For, Kind, Op
from .....ir.loop.visit import exprs_under, walk
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo, straight_inputs

HEAVY = 1 << 15  # FLOPs and moved elements from which a reduction has a sketch of its own
SLOW = 2.0  # times the FMAs of a transcendental function that it takes: they depend on each other
OPAQUE_CYCLES = 4.0  # for each element of the buffers of an opaque block, whose loops are not seen
LANE_CYCLES = 0.5  # the same where the block has vector loops of its own
LEAST_SHARED = 1 / 8  # of a fork's time: no second thread is tried for less work than that
LEAST_SQUARE = 4  # lanes from which squares are transposed in registers
SQUARE = 16  # rows of those that are; wider vectors are several squares
GATHERED = 8.0  # operations for each load from which lanes that gather pay
PLANES = 8  # of which rows of neighbors are made in registers: more take too many shuffles
RUN = 32  # blocks of one nest
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
    """Return the number of trailing axes that collapse into one. Unit axes collapse into any."""
    inner = _innermost(info)
    for outer in range(inner - 1, -1, -1):
        if info.spatial[outer].extent > 1:
            if not collapsible(info, outer, inner):
                return len(info.spatial) - outer - 1
            inner = outer
    return len(info.spatial)


def _joined(run: Sequence[BlockInfo], target: Target) -> int:
    """Return the number of trailing axes that blocks collapse into vectors.

    Where rows are shorter than a vector and elements much work, they are all axes: a row's own
    values are then gathered into the lanes.
    """
    joined, extents = min(map(trailing, run)), [a.extent for a in run[0].spatial]
    lanes = min(lanes_of(b, target) for b in run)
    if not math.prod(extents[-joined:]) < lanes <= math.prod(extents):
        return joined
    inner = {s.buffer for b in run for s in b.stores}
    outer = [a for b in run for a in b.inputs if a.buffer not in inner and any(a.steps.values())]
    loads = len({(a.buffer, repr(a.coefficients)) for a in outer})
    return len(extents) if sum(map(_operations, run)) > GATHERED * loads else joined


def _operations(b: BlockInfo) -> float:
    """Return the operations on values of one point, those on indices left out."""
    found = (x for x in exprs_under(b.block.body) if isinstance(x, Op) and x.dtype != index)
    return sum(max(1.0, TABLE[x.name].flops) for x in found)


def _innermost(info: BlockInfo) -> int:
    """Return the number of the last axis of more than one element, or of the last axis."""
    axes = range(len(info.spatial))
    return next((n for n in reversed(axes) if info.spatial[n].extent > 1), axes.stop - 1)


def lanes_of(info: BlockInfo, target: Target) -> int:
    """Return the vector lanes for the widest element type that the block accesses."""
    accesses = (*info.loads, *info.stores)
    widest = max((a.buffer.dtype for a in accesses), key=lambda d: d.bytes, default=None)
    return 1 if widest is None else max(1, target.lanes(widest))


def work_of(info: BlockInfo) -> float:
    """Return a rough cost of a block: its FLOPs plus twice the elements that it moves."""
    return info.flops + 2.0 * info.points * (len(info.inputs) + len(info.stores))


def may_share(seconds: float, target: Target) -> bool:
    """True if threads might share work of so many seconds: what the tuner tries."""
    core = target.core
    return target.threads > 1 and seconds >= core.seconds(core.fork) * LEAST_SHARED


def may_share_flops(flops: float, target: Target) -> bool:
    """True if threads might share so many FLOPs of products."""
    return may_share(flops / target.core.flops(target.vector_bits), target)


def sharing_pays(blocks: Sequence[BlockInfo], target: Target) -> bool:
    """True if a pass of each block is expected to take less time on all threads than on one."""
    if target.threads == 1 or all(b.points == 1 for b in blocks):
        return False
    return pass_seconds(blocks, target.threads, target) < pass_seconds(blocks, 1, target)


def pass_seconds(blocks: Sequence[BlockInfo], threads: int, target: Target) -> float:
    """Estimate the seconds of one pass of each block: arithmetic, accesses or bytes, and the fork.

    What a block passes to another stays in L1.
    """
    core = target.core
    inner = {s.buffer for b in blocks for s in b.stores} & {
        a.buffer for b in blocks for a in b.inputs
    }
    outer = {a.buffer for b in blocks for a in (*b.inputs, *b.stores)} - inner
    size = float(sum(_touched(x, blocks) * x.dtype.bytes for x in outer))
    cycles = sum(_cycles(b, target) for b in blocks) / threads
    seconds = max(core.seconds(cycles), size / core.stream(size, threads))
    return seconds + (core.seconds(core.sharing) if threads > 1 else 0.0)


def _touched(buffer: Buffer, blocks: Sequence[BlockInfo]) -> float:
    """Return the elements of a buffer that blocks access, at most all of them."""
    return min(math.prod(buffer.shape), sum(b.touched.get(buffer, 0) for b in blocks))


def _cycles(b: BlockInfo, target: Target) -> float:
    """Estimate the cycles of a block's instructions on one thread."""
    core = target.core
    if b.opaque:
        lanes = any(isinstance(s, For) and s.kind is Kind.VECTOR for s in walk(b.block.body))
        each = LANE_CYCLES if lanes else OPAQUE_CYCLES
        return each * sum(b.touched.values())
    at_once = core.fmas / core.turns(target.vector_bits) * (target.vector_bits // 32)
    flops = b.flops * (SLOW if b.transcendental else 1.0) / at_once
    inner = [axes[-1].var for axes in (b.spatial, b.reduce) if axes]
    moved = [[a.step(v) for v in inner] for a in (*b.inputs, *b.stores)]
    scattered = sum(1 not in steps and any(s != 0 for s in steps) for steps in moved)
    return flops + b.points * scattered / core.loads


def side_by_side(info: BlockInfo, lanes: int) -> bool:
    """True if neighbors on the last spatial axis may be lanes.

    They are neighbors in memory, and more than half a vector.
    """
    last = info.spatial[_innermost(info)]
    stored = {a.step(last.var) for a in info.stores}
    loaded = {a.step(last.var) for a in info.loads}
    return stored == {1} and loaded <= {0, 1} and 2 * last.extent > lanes > 1


def schedule_pointwise(
    sch: Schedule,
    info: BlockInfo,
    target: Target,
    unroll: int,
    parallel: bool,
    squares: bool = False,
) -> None:
    """Collapse axes, vectorize the last one, and run the others in parallel.

    ``squares`` is as in ``_vectors``.
    """
    _share(sch, _vectors(sch, info, target, unroll, squares, _joined((info,), target)), parallel)


def schedule_together(
    sch: Schedule, run: Sequence[BlockInfo], target: Target, unroll: int, parallel: bool
) -> None:
    """Schedule a run of blocks as ``schedule_pointwise`` does one, in one nest of loops.

    ``ScheduleError`` if a block needs other elements of an earlier one than those at its place.
    """
    for level in zip(*(sch.get_loops(info.name) for info in run), strict=True):
        sch.merge(*level)
    _share(sch, _vectors(sch, run[0], target, unroll, False, _joined(run, target)), parallel)


def runs_of(
    blocks: Sequence[BlockInfo], target: Target, squares: bool
) -> list[tuple[BlockInfo, ...]]:
    """Return the blocks in order, those that follow each other over the same space together."""
    found: list[tuple[BlockInfo, ...]] = []
    before: tuple[object, ...] | None = None
    for b in blocks:
        own = _space(b, target, squares)
        if own is not None and own == before and len(found[-1]) < RUN:
            found[-1] += (b,)
        else:
            found.append((b,))
        before = own
    return found


def _space(b: BlockInfo, target: Target, squares: bool) -> tuple[object, ...] | None:
    """Return what blocks have in common that may share a nest; None for one that stays alone."""
    if b.opaque or b.reduce or not b.spatial:
        return None
    if squares and (square_side(b, target) or interleaves(b, target)):
        return None
    if _transposed(b, trailing(b)) is not None:
        return None
    return lanes_of(b, target), *(a.extent for a in b.spatial)


def _vectors(
    sch: Schedule, info: BlockInfo, target: Target, unroll: int, squares: bool, joined: int
) -> list[LoopRef]:
    """Collapse the last ``joined`` axes, vectorize them, and return the loops around the vectors.

    If a load is contiguous along another axis (a transposition), ``TOGETHER`` neighbors on that
    axis are processed before the next vector, while the cache lines that they share are cached.
    With ``squares`` the lanes are on that axis instead, if all loads allow it, and as many elements
    of the last one are unrolled: code generation transposes such squares in registers. Short rows
    are unrolled whole.
    """
    loops = list(sch.get_loops(info.name))
    if not loops or info.reduce:
        return []
    if squares and interleaves(info, target):
        return _interleave(sch, info, loops, lanes_of(info, target))
    count = max(1, joined)
    last = loops[-1] if count == 1 else sch.fuse(*loops[-count:])
    outer = loops[:-count]
    extent = math.prod(a.extent for a in info.spatial[-count:])
    side = square_side(info, target) if squares else 0
    lanes = side or lanes_of(info, target)
    fitting = (n for n in range(unroll, 1, -1) if extent % (lanes * n) == 0)
    width = lanes * next(fitting, 1)
    if (extent > width or side) and width > 1:
        rest, lane = sch.split(last, [None, width])
        across = _transposed(info, count)
        if side and across is not None:
            sch.unroll(lane)
            outer[across], near = sch.split(outer[across], [None, side])
            sch.reorder(*outer, rest, lane, near)
            lane = near
        elif across is not None:
            rows = min(TOGETHER, sch.extent(outer[across]))
            beyond = [outer[n] for n in _beyond(info, count, across)]
            outer[across], near = sch.split(outer[across], [None, rows])
            outer = [loop for loop in outer if loop not in beyond]
            sch.reorder(*outer, rest, *beyond, near, lane)
        sch.vectorize(lane)
        outer.append(rest)
    elif extent > 1 and lanes > 1:
        sch.vectorize(last)
    else:
        outer.append(last)
    return outer


def interleaves(info: BlockInfo, target: Target) -> bool:
    """True if a transposition makes short rows, one after the other, of elements of planes."""
    if not info.spatial or info.reduce or info.opaque:
        return False
    *outer, last = info.spatial
    inputs, lanes = straight_inputs(info), lanes_of(info, target)
    if not outer or not 1 < last.extent <= PLANES:
        return False
    axis = outer[-1]
    dense = all((s.stride(last.var), s.stride(axis.var)) == (1, last.extent) for s in info.stores)
    near = all(a.stride(axis.var) in (0, 1, 2) for a in inputs)
    turned = any(a.stride(last.var) not in (0, 1) and a.stride(axis.var) for a in inputs)
    return dense and near and turned and last.extent < lanes <= axis.extent


def _interleave(sch: Schedule, info: BlockInfo, loops: list[LoopRef], lanes: int) -> list[LoopRef]:
    """Vectorize the axis along which planes are contiguous, around the unrolled last one."""
    *outer, across, last = loops
    axis = len(outer)
    while outer and collapsible(info, axis - 1, axis) and sch.extent(across) % lanes:
        across = sch.fuse(outer.pop(), across)
        axis -= 1
    rest, lane = sch.split(across, [None, lanes])
    sch.reorder(*outer, rest, last, lane)
    sch.unroll(last)
    sch.vectorize(lane)
    return [*outer, rest]


def square_side(info: BlockInfo, target: Target) -> int:
    """Return the side of the squares by which a transposition reads, turns and stores vectors.

    It is 0 where there are none.
    """
    count, lanes = max(1, trailing(info)), lanes_of(info, target)
    moved = info.spatial and not info.reduce and not info.opaque
    across = _transposed(info, count) if moved else None
    if across is None or lanes < LEAST_SQUARE:
        return 0
    axis, last = info.spatial[across], info.spatial[_innermost(info)]
    if any(a.stride(axis.var) not in (0, 1, 2) for a in info.inputs):
        return 0
    least = min(axis.extent, last.extent)
    return next((n for n in (lanes, min(lanes, SQUARE)) if n <= least), 0)


def _transposed(info: BlockInfo, last: int) -> int | None:
    """Return an outer axis along which a load is contiguous that is strided along the last axis."""
    vectors = info.spatial[_innermost(info)].var
    for access in info.inputs:
        if access.stride(vectors) not in (0, 1):
            for n, axis in enumerate(info.spatial[:-last]):
                if abs(access.stride(axis.var) or 0) in (1, 2) and axis.extent > 1:
                    return n
    return None


def _beyond(info: BlockInfo, last: int, across: int) -> list[int]:
    """Return short outer axes that go on in memory where ``across`` ends, the outermost first."""
    axes = info.spatial[:-last]
    steps = [[abs(a.stride(axis.var) or 0) for axis in axes] for a in info.inputs]
    mine = next((each for each in steps if each[across] == 1), [])
    found, size = list[int](), axes[across].extent
    while (after := next((n for n, step in enumerate(mine) if step == size), None)) is not None:
        size *= axes[after].extent
        if axes[after].extent == 1 or size > TOGETHER:
            break
        found.insert(0, after)
    return found


def _share(sch: Schedule, outer: list[LoopRef], parallel: bool) -> None:
    """Run loops around vectors on several threads, if ``parallel``."""
    if outer and parallel:
        sch.parallel(outer[0] if len(outer) == 1 else _fuse_some(sch, outer))


def _fuse_some(sch: Schedule, outer: list[LoopRef]) -> LoopRef:
    """Fuse outer loops until there are enough pieces; each fusion costs a division per piece."""
    pieces, count = 1, 0
    while count < len(outer) and pieces < 64:
        pieces *= sch.extent(outer[count])
        count += 1
    return outer[0] if count == 1 else sch.fuse(*outer[:count])
