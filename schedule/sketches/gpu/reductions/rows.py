"""Row-wise groups: softmax, layer norm, means. One launch, with several threads per row.

Every stage of a cluster runs inside one loop over rows. The threads of ``threadIdx.x`` share the
columns of a row; a reduction along it is bound to them, so that they combine partial results. A
single value per row is in a register of each thread. A value with columns is in shared memory, or
in registers too, where every stage gives a thread the same columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.loop.intrinsics import WARP, warp_results
from .....ir.loop.nodes import SHARED_ALIGN, Buffer, Const, Load, Scope, Store, Var
from .....ir.loop.visit import loads_under, walk
from .....ir.target import Target
from ....combiner import combiner_of
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo, describe
from ....space.lookup import below, read_number
from ....space.space import Choices, Sketch, cheapest
from ....stores import update_of
from ..launches.clusters import CLUSTERS, Cluster, place, row_loops, stage_loops
from ..launches.machine import (
    BARRIER,
    LATENCY,
    LaunchShape,
    bursts,
    distinct,
    flops_of,
    launch_seconds,
    overlapped,
    resident,
    vector_width,
    waste,
)
from ..launches.threads import BLOCKS, X, Y, bind_runs, fused, load_vectors, power_up, powers

STEP, HELD_STEP = 60e-9, 10e-9  # seconds of a thread's step through memory, through registers
HELD = 64  # registers of a thread that may hold its share of a row
KEEP = {"again": 0, "shared": 1, "registers": 2}  # where the rows that stages read again are


@dataclass(frozen=True, slots=True)
class RowwiseCluster:
    """A cluster with several threads per row.

    ``held`` are the buffers of which a thread can hold its share of a row in registers.
    """

    cluster: Cluster
    held: tuple[Buffer, ...] = ()

    def width(self, info: BlockInfo) -> int:
        """Return the points of a block in one row that threads can share."""
        columns = self.cluster.columns(info)
        return columns if columns > 1 else info.terms

    def along(self, info: BlockInfo) -> Var | None:
        """Return the axis of a block along which neighboring threads step."""
        axes = info.spatial[self.cluster.count :] if self.reduces_serially(info) else info.reduce
        return axes[-1].var if axes else None

    def reduces_serially(self, info: BlockInfo) -> bool:
        """True if each thread computes elements of a stage alone, reducing their terms in order."""
        return not info.reduce or self.cluster.columns(info) > 1

    @property
    def widest(self) -> int:
        """The largest width of a block."""
        return max(map(self.width, self.cluster.blocks))

    def vector(self, info: BlockInfo, most: int) -> int:
        """Return the vector width of a stage, at most ``most``; no vector crosses a row's end."""
        along = self.along(info)
        if along is None:
            return 1
        extent = next(a.extent for a in info.block.axes if a.var is along)
        if info.reduce and self.reduces_serially(info):
            return 1
        every = (*info.inputs, *(() if info.reduce else info.stores))
        sizes = [a.buffer.dtype.bytes for a in every if a.step(along) == 1]
        return min(most, vector_width(sizes, extent))

    @property
    def again(self) -> tuple[tuple[Buffer, tuple[str, ...]], ...]:
        """The inputs whose rows several stages read along the columns, with those stages."""
        found: dict[Buffer, list[str]] = {}
        for b in self.cluster.blocks:
            for a in b.inputs:
                along = self.along(b)
                near = along is not None and a.step(along) == 1
                row = all(a.uses(x.var) or x.extent == 1 for x in b.spatial[: self.cluster.count])
                known = all(form is not None for form in a.coefficients)
                if near and row and known and a.buffer not in self.cluster.passed:
                    found.setdefault(a.buffer, []).append(b.name)
        once = {x: names for x, names in found.items() if len({*names}) == len(names) > 1}
        return tuple((x, tuple(names)) for x, names in once.items())

    def lanes(self, info: BlockInfo, c: Choices) -> int:
        """Return the vector width of a stage; with rows in registers all have the same."""
        most = int(c["vector"])
        if c["keep"] != KEEP["registers"]:
            return self.vector(info, most)
        same = [b for b in self.cluster.blocks if self.width(b) == self.widest]
        return min(self.vector(b, most) for b in (same if info in same else [info]))

    def registers(self, c: Choices) -> int:
        """Return the registers of a thread in which it holds its share of a row.

        Each value takes the place of the one it is computed from.
        """
        if c["keep"] != KEEP["registers"]:
            return 0
        info = next(b for b in self.cluster.blocks if self.width(b) == self.widest)
        each = math.ceil(self.widest / (int(c["threads"]) * self.lanes(info, c)))
        return each * self.lanes(info, c) * max(max(1, b.dtype.bytes // 4) for b in self.held)

    def shared(self, c: Choices) -> int:
        """Return the bytes of shared memory that a block of threads needs."""
        if c["keep"] == KEEP["registers"]:
            return 0
        inputs = sum(self.widest * b.dtype.bytes for b, _ in self.again) if c["keep"] else 0
        return (self.kept + inputs) * int(c["rows"])

    def exchange_bytes(self, c: Choices) -> int:
        """Return the bytes through which the warps of a block combine partial results.

        Two consecutive reductions use separate memory.
        """
        threads = int(c["threads"]) * int(c["rows"])
        sums = [b for b in self.cluster.blocks if b.reduce] if int(c["threads"]) > WARP else []
        found = [sum(warp_results(a.buffer.dtype, threads) for a in b.stores) for b in sums]
        return -(-2 * max(found, default=0) // SHARED_ALIGN) * SHARED_ALIGN

    @property
    def kept(self) -> int:
        """The bytes of shared memory for the values that stages pass on in one row."""
        inside = self.cluster.passed - self.cluster.outside
        own = [b for b in self.cluster.blocks if b.stores[0].buffer in inside]
        return sum(
            self.cluster.columns(b) * b.stores[0].buffer.dtype.bytes
            for b in own
            if self.cluster.columns(b) > 1
        )


def find_rows(k: Cluster) -> RowwiseCluster | None:
    """Return the cluster with several threads per row; None if they cannot share the work."""
    r = RowwiseCluster(k)
    fit = all(b.reduce == () or _shared_sum(k, b) for b in k.blocks)
    if r.widest <= 1 or not fit or any(b.opaque for b in k.blocks):
        return None
    return RowwiseCluster(k, _held(r))


def _held(r: RowwiseCluster) -> tuple[Buffer, ...]:
    """Return what threads can hold in registers: what all stages touch by column.

    Empty if that is not true of every value with columns that stages pass on, or if stages
    differ in their widths.
    """
    k = r.cluster
    wide = [b for b in k.blocks if k.columns(b) > 1 and b.stores[0].buffer in k.passed]
    found = (*(b.stores[0].buffer for b in wide), *(b for b, _ in r.again))
    stages = [b for b in k.blocks if any(a.buffer in found for a in (*b.loads, *b.stores))]
    alike = all(r.width(b) == r.widest for b in stages)
    shared = all(not b.reduce or update_of(b.block) for b in stages)
    near = all(_by_column(b, x, k.count, r.along(b)) for b in stages for x in found)
    return found if alike and shared and near else ()


def _by_column(info: BlockInfo, buffer: Buffer, count: int, column: Var | None) -> bool:
    """True if a block touches a buffer's rows, if at all, at ``column`` alone."""
    row = [a.var for a in info.spatial[:count]]
    stores = (s for s in walk(info.block.body) if isinstance(s, Store))
    accesses: tuple[Load | Store, ...] = (*loads_under(info.block.body), *stores)
    found = [x.index for x in accesses if x.buffer is buffer]
    inside = [[e for e in at if not isinstance(e, Const) and e not in row] for at in found]
    return all(at == [column] for at in inside)


def _shared_sum(k: Cluster, info: BlockInfo) -> bool:
    """True if threads can share a reduction's terms, or else its columns."""
    return k.columns(info) > 1 or combiner_of(info.block) is not None


@CLUSTERS.row(30)
def match_rows(k: Cluster, target: Target) -> Sketch | None:
    """Match reductions along contiguous memory."""
    rows = None if k.elementwise else find_rows(k)
    return None if rows is None else rows_sketch(rows, target)


def rows_sketch(r: RowwiseCluster, target: Target) -> Sketch:
    """Return the space of a cluster with several threads per row."""
    most = min(1024, power_up(r.widest))
    decisions: dict[str, tuple[int | str, ...]] = {
        "threads": powers(min(8, most), most),
        "rows": powers(1, 32),
        "vector": (1, 2, 4, 8),
        "keep": (0, *((1,) if r.again else ()), *((2,) if r.held else ())),
    }

    def valid(c: Choices) -> bool:
        return rows_valid(r, c, target)

    def cost(c: Choices) -> float:
        return rows_cost(r, c, target)

    return Sketch(
        name="gpu_rows@1",
        kind="rows",
        decisions=decisions,
        default=cheapest(decisions, valid, cost, {}),
        apply=lambda sch, c: apply_rows(r, sch, c),
        valid=valid,
        cost=cost,
    )


def rows_valid(r: RowwiseCluster, c: Choices, target: Target) -> bool:
    """True if rows divide into whole blocks within the limits of a block of threads."""
    threads, rows = int(c["threads"]), int(c["rows"])
    shared = r.shared(c) + r.exchange_bytes(c)
    fits = threads * rows <= 1024 and shared <= target.gpu.shared_per_block
    most = max(r.vector(b, 8) for b in r.cluster.blocks)
    fits = fits and r.registers(c) <= HELD
    return fits and is_box(r.cluster, rows) and int(c["vector"]) <= most


def is_box(k: Cluster, rows: int) -> bool:
    """True if blocks of so many rows divide evenly, and each is a box of the row axes.

    A block across the end of an axis would need shared memory for its bounding box.
    """
    reach = 1
    for axis in reversed(k.blocks[0].spatial[: k.count]):
        if rows <= reach * axis.extent:
            return rows % reach == 0 and reach * axis.extent % rows == 0
        reach *= axis.extent
    return rows == 1


def apply_rows(r: RowwiseCluster, sch: Schedule, c: Choices) -> None:
    """Bind groups of rows to blocks of threads, and the columns of each stage to threadIdx.x."""
    k, rows = r.cluster, int(c["rows"])
    block, row = row_loops(k, sch, rows)
    held = c["keep"] == KEEP["registers"]
    place(k, sch, "shared")
    copies = _kept_rows(r, sch, row) if c["keep"] else []
    sch.bind(block, BLOCKS)
    sch.bind(row, Y)
    for copy in copies:
        info = describe(sch.block(copy))
        own = [x for x in below(sch, copy, row) if sch.extent(x) > 1]
        most = min(r.lanes(b, c) for b in k.blocks if r.width(b) == r.widest)
        lanes = most if held else min(int(c["vector"]), _lanes(sch, info, own))
        _share(sch, own, int(c["threads"]), lanes, held)
    for info in k.blocks:
        own = stage_loops(k, sch, info, row)
        if info.reduce and r.reduces_serially(info):
            own = own[: len(own) - len(info.reduce)]
        elif info.reduce and update_of(info.block) is None:
            _share_terms(sch, info, own, int(c["threads"]), r.lanes(info, c))
            continue
        _share(sch, own, int(c["threads"]), r.lanes(info, c), held)
    if held:
        for stage in (*map(sch.block, copies), *(sch.block(b.name) for b in k.blocks)):
            if stage.writes[0].buffer.scope is Scope.SHARED:
                sch.set_scope(stage.name, 0, "register")


def _kept_rows(r: RowwiseCluster, sch: Schedule, row: LoopRef) -> list[BlockRef]:
    """Copy the rows that several stages read to shared memory; return the copies."""
    copies = []
    for buffer, (first, *others) in r.again:
        copy = sch.cache_read(first, read_number(sch, first, buffer), "shared", others)
        sch.compute_at(copy, row)
        copies.append(copy)
    return copies


def _lanes(sch: Schedule, info: BlockInfo, own: list[LoopRef]) -> int:
    """Return the most elements of a copied row that one thread can load at once."""
    size = info.stores[0].buffer.dtype.bytes
    return vector_width([size], sch.extent(own[-1])) if own else 1


def _share(sch: Schedule, own: list[LoopRef], threads: int, lanes: int, held: bool) -> None:
    """Divide a stage's loops among the threads, with vectors inside.

    Where threads hold their shares in registers, the loops over them are unrolled.
    """
    last = fused(sch, own)
    if last is None:
        return
    lane = None
    if lanes > 1 and sch.extent(last) > lanes:
        last, lane = sch.split(last, [None, lanes])
    if sch.extent(last) != threads:
        step, last = sch.split(last, [None, threads])
        sch.reorder(last, step)
        if held:
            sch.unroll(step)
    sch.bind(last, X)
    if lane is not None:
        sch.vectorize(lane)


def _share_terms(
    sch: Schedule, info: BlockInfo, own: list[LoopRef], threads: int, lanes: int
) -> None:
    """Divide the terms of a reduction of several values among the threads.

    A thread takes neighboring terms where they must stay in order.
    """
    last = fused(sch, own)
    if last is None:
        return
    how = combiner_of(info.block)
    if how is None or not how.commutes:
        bind_runs(sch, last, threads)
        return
    wide = lanes > 1 and sch.extent(last) > lanes
    if wide:
        last, _ = sch.split(last, [None, lanes])
    sch.bind(sch.split(last, [None, threads])[1], X)
    if wide:
        load_vectors(sch, info.name)


def rows_cost(r: RowwiseCluster, c: Choices, target: Target) -> float:
    """Estimate the seconds: memory traffic, cached rereads, and the latency of every stage."""
    k, threads, rows, gpu = r.cluster, int(c["threads"]), int(c["rows"]), target.gpu
    moved, again, cached = _row_traffic(r, c)
    flops = sum(map(flops_of, k.blocks))
    lanes, own = max(r.lanes(b, c) for b in k.blocks), r.registers(c)
    steps = -(-math.ceil(r.widest / threads) // lanes)
    used = min(1.0, r.widest / (threads * lanes))  # threads that have elements
    under_way = max(4.0 * lanes * min(steps, 2), 4.0 * own) * used
    shape = LaunchShape(k.rows // rows, threads * rows, under_way, r.shared(c), 32 + own)
    here = resident(target, shape)
    if not here:
        return math.inf
    waves = max(1.0, k.rows / rows / (here * gpu.multiprocessors))
    if own:
        second = 0.0
    elif c["keep"]:
        second = cached / (gpu.multiprocessors * 128 * gpu.clock)
    else:
        near = here * rows * (moved + again) / max(k.rows, 1) <= gpu.shared_per_multiprocessor
        second = cached / (gpu.multiprocessors * 64 * gpu.clock)
        second += 0.0 if near else again / (2 * gpu.bandwidth)
    part = max(1.0, gpu.warp / (threads * rows))  # idle threads of a partial warp
    idle = 1.0 + 0.5 * (1.0 / used - 1.0)
    return overlapped(
        launch_seconds(target, shape, moved, flops * idle),
        waves * _row_waits(r, c) * part,
        second * part,
    )


def _row_waits(r: RowwiseCluster, c: Choices) -> float:
    """Return the seconds that a block of threads waits: for memory, and for each other."""
    threads = int(c["threads"])
    held = c["keep"] == KEEP["registers"]
    waits = 0.0 if c["keep"] == KEEP["again"] else LATENCY / 2 + BARRIER
    for info in r.cluster.blocks:
        lanes = r.lanes(info, c)
        steps = math.ceil(r.width(info) / (threads * lanes))
        waits += steps * (HELD_STEP if held else STEP) * (1 + 0.1 * lanes)
        waits += 0.0 if held else LATENCY / 2
        waits += BARRIER * math.log2(max(threads, 2)) if info.reduce else 0.0
    return waits


def _row_traffic(r: RowwiseCluster, c: Choices) -> tuple[float, float, float]:
    """Return the bytes accessed first, the bytes accessed again, and the bytes from caches.

    Narrow accesses increase the bytes from caches.
    """
    moved = again = cached = 0.0
    seen: set[Buffer] = set()
    passed, threads = r.cluster.passed, int(c["threads"])
    for info in r.cluster.blocks:
        lanes = r.lanes(info, c)
        for a in (*info.inputs, *info.stores):
            if a.buffer in passed:
                continue
            size = a.buffer.dtype.bytes
            bytes_ = distinct(info, a) * size * waste(a, r.along(info), lanes)
            bytes_ *= bursts(min(threads * lanes, r.width(info)) * size)
            if a.buffer in seen:
                again += bytes_
            else:
                moved += bytes_
            seen.add(a.buffer)
            cached += bytes_ / lanes**0.5
    return moved, again, cached
