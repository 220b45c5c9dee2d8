"""Full reductions, to a few values: one pass over memory, then one over partial results.

Every block of threads reduces a contiguous piece: its threads load adjacent vectors, keep a partial
result per lane, and combine them. The last block to finish, or a second launch, combines the
blocks' results and computes the rest of the group. The order of the additions is the same in every
run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.target import Target
from ....combiner import combiner_of
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo
from ....space.lookup import below
from ....space.space import Choices, Sketch, cheapest
from ....stores import update_of
from ..launches.clusters import (
    CLUSTERS,
    Cluster,
    merged_rows,
    place,
    row_loops,
    stage_loops,
    writes_terms,
)
from ..launches.machine import (
    ARRIVAL,
    BARRIER,
    LATENCY,
    LAUNCH,
    LaunchShape,
    distinct,
    flops_of,
    issue_seconds,
    launch_seconds,
    resident,
    vector_width,
)
from ..launches.threads import (
    APART,
    BLOCKS,
    LAST,
    ROW_OF_BLOCKS,
    X,
    bind_parts,
    bind_runs,
    clusters_fit,
    fused,
    load_vectors,
    power_up,
    powers,
    ways_to_join,
)

FEW = 512  # results
STRETCH = 2048  # terms from which a block of threads pays


@dataclass(frozen=True, slots=True)
class GpuFullReduction:
    """A cluster whose block ``anchor`` reduces contiguous memory to a few results.

    Blocks before it compute its terms.
    """

    cluster: Cluster
    anchor: BlockInfo

    @property
    def before(self) -> tuple[BlockInfo, ...]:
        """The blocks that compute the terms."""
        blocks = self.cluster.blocks
        return blocks[: blocks.index(self.anchor)] if writes_terms(blocks) else ()

    @property
    def simple(self) -> bool:
        """True if the reduction is by one operation, which lanes of vectors can share."""
        return update_of(self.anchor.block) is not None

    @property
    def dealt(self) -> bool:
        """True if neighboring threads may take neighboring terms; else each takes a run of them."""
        how = combiner_of(self.anchor.block)
        return how is not None and how.commutes

    @property
    def depth(self) -> int:
        """The number of terms of a result."""
        return self.anchor.terms

    @property
    def vector(self) -> int:
        """The most terms that one thread can load at once."""
        last = self.anchor.reduce[-1]
        sizes = [a.buffer.dtype.bytes for a in self.anchor.inputs if a.step(last.var) == 1]
        return vector_width(sizes, last.extent)


def find_full_reduction(k: Cluster) -> GpuFullReduction | None:
    """Return the cluster's only reduction, if it has few results of many terms; else None."""
    heavy = [b for b in k.blocks if b.reduce]
    if len(heavy) != 1 or k.rows > FEW or combiner_of(heavy[0].block) is None:
        return None
    t = GpuFullReduction(k, heavy[0])
    strides = [a.step(t.anchor.reduce[-1].var) for a in t.anchor.inputs]
    plain = all(s in (0, 1) for s in strides) and k.columns(t.anchor) == 1
    return t if plain and t.depth >= 4 * STRETCH else None


@CLUSTERS.row(50)
def match_full_reduction(k: Cluster, target: Target) -> Sketch | None:
    """Match reductions to a few values."""
    total = None if k.elementwise else find_full_reduction(k)
    return None if total is None else full_reduction_sketch(total, target)


def full_reduction_sketch(t: GpuFullReduction, target: Target) -> Sketch:
    """Return the space of a full reduction."""
    most = min(power_up(t.depth // STRETCH), 4096)
    whole = {n * target.gpu.multiprocessors for n in (1, 2, 4, 8)}
    decisions: dict[str, tuple[int | str, ...]] = {
        "blocks": tuple(sorted({*powers(2, most), *(n for n in whole if n <= most)})),
        "threads": (128, 256, 512, 1024),
        "vector": tuple(reversed(powers(1, t.vector))),
        "unroll": (1, 2, 4, 8),
        "join": _joins(t, target),
    }

    def valid(c: Choices) -> bool:
        fits = clusters_fit(int(c["blocks"]), c, target) and steps_of(t, c) >= int(c["unroll"])
        return fits and int(c["blocks"]) * t.cluster.rows <= 1 << 16

    def cost(c: Choices) -> float:
        return full_reduction_cost(t, c, target)

    return Sketch(
        name="gpu_total@1",
        kind="total",
        decisions=decisions,
        default=cheapest(decisions, valid, cost, {}),
        apply=lambda sch, c: apply_full_reduction(t, sch, c),
        valid=valid,
        cost=cost,
    )


def _joins(t: GpuFullReduction, target: Target) -> tuple[str, ...]:
    """Return the ways to combine the results of blocks; beside terms only the last block does."""
    if t.before:
        return (LAST,)
    return ways_to_join(target) if t.cluster.blocks[0] is t.anchor else (APART,)


def steps_of(t: GpuFullReduction, c: Choices) -> int:
    """Return the number of vectors that one thread reduces."""
    return -(-t.depth // (int(c["blocks"]) * int(c["threads"]) * int(c["vector"])))


def apply_full_reduction(t: GpuFullReduction, sch: Schedule, c: Choices) -> None:
    """Compute the blocks' partial results, and then everything else by the last block or apart."""
    if c["join"] != APART:
        _apply_joined(t, sch, c)
        return
    name, rank = t.anchor.name, len(t.anchor.spatial)
    loops = list(sch.get_loops(name))
    terms = fused(sch, loops[rank:])
    assert terms is not None
    piece, thread = _pieces(t, sch, terms, loops[:rank], c)
    partial = sch.rfactor(piece, 0)
    sch.bind(piece, BLOCKS)
    rows = fused(sch, loops[:rank])
    if rows is not None:
        sch.bind(rows, ROW_OF_BLOCKS)
    sch.bind(thread, X)
    if not t.simple:
        load_vectors(sch, partial.name)
    _finish(t, sch, int(c["blocks"]))


def _pieces(
    t: GpuFullReduction, sch: Schedule, terms: LoopRef, rows: list[LoopRef], c: Choices
) -> tuple[LoopRef, LoopRef]:
    """Split the terms, or what computes them, into a piece for each block, around ``rows``, and
    return the loops over pieces and over the threads of a block."""
    blocks, threads, lanes, times = (int(c[n]) for n in ("blocks", "threads", "vector", "unroll"))
    each = -(-steps_of(t, c) // times)
    if t.dealt:
        piece, outer, inner, thread, lane = sch.split(terms, [blocks, each, times, threads, lanes])
    else:
        piece, thread, outer, inner, lane = sch.split(terms, [blocks, threads, each, times, lanes])
    if t.simple:
        sch.reorder(piece, *rows, thread, outer, inner, lane)
        sch.vectorize(lane)
    else:
        sch.reorder(piece, *rows)
    sch.unroll(inner)
    return piece, thread


def _apply_joined(t: GpuFullReduction, sch: Schedule, c: Choices) -> None:
    """Compute everything in one launch: what follows the partial results of a row joins them."""
    k = t.cluster
    row = fused(sch, merged_rows(k, sch))
    assert row is not None
    nests = [_own_loops(t, sch, info, row) for info in (*t.before, t.anchor)]
    place(k, sch)
    sch.bind(row, ROW_OF_BLOCKS)
    piece, thread = _pieces(t, sch, *nests[-1], c)
    partial = sch.rfactor(piece, 0)
    for own in reversed(nests[:-1]):
        first, threads = _pieces(t, sch, *own, c)
        sch.bind(threads, X)
        piece = sch.merge(first, piece)
    bind_parts(sch, piece, BLOCKS, c)
    sch.bind(thread, X)
    if not t.simple:
        load_vectors(sch, partial.name)
    _share(t, sch, stage_loops(k, sch, t.anchor, row)[-1], int(c["threads"]))


def _share(t: GpuFullReduction, sch: Schedule, loop: LoopRef, threads: int) -> None:
    """Let threads share the partial results of the blocks."""
    if t.dealt:
        sch.bind(sch.split(loop, [None, threads])[1], X)
    else:
        bind_runs(sch, loop, threads)


def _own_loops(
    t: GpuFullReduction, sch: Schedule, info: BlockInfo, row: LoopRef
) -> tuple[LoopRef, list[LoopRef]]:
    """Return the loop over a block's terms in one row, and loops of one iteration around it."""
    own = stage_loops(t.cluster, sch, info, row)
    units = [x for x in below(sch, info.name, row) if x not in own]
    terms = fused(sch, own)
    assert terms is not None
    return terms, units


def _finish(t: GpuFullReduction, sch: Schedule, blocks: int) -> None:
    """Combine the partial results, with a warp or more for each result."""
    k = t.cluster
    block, row = row_loops(k, sch, 1)
    place(k, sch)
    sch.bind(block, BLOCKS)
    threads = min(1024, max(32, power_up(blocks)))
    for info in k.blocks:
        own: list[LoopRef] = stage_loops(k, sch, info, row)
        if info is t.anchor and own:
            _share(t, sch, own[-1], threads)


def full_reduction_cost(t: GpuFullReduction, c: Choices, target: Target) -> float:
    """Estimate the seconds of both passes."""
    blocks, threads, lanes, times = (int(c[n]) for n in ("blocks", "threads", "vector", "unroll"))
    info, gpu = t.anchor, target.gpu
    ends = [(info, a) for a in info.inputs]
    ends += [(b, a) for b in t.before for a in (*b.inputs, *b.stores)]
    moved = sum(distinct(b, a) * a.buffer.dtype.bytes for b, a in ends)
    work = sum(map(flops_of, (*t.before, info)))
    size = max((a.buffer.dtype.bytes for a in info.inputs), default=4)
    loads = max(1, len(info.inputs))
    shape = LaunchShape(
        blocks * t.cluster.rows,
        threads,
        float(size * lanes * min(times, 4) * loads) / 2,
        registers=24 + loads * lanes * times,
    )
    here = resident(target, shape)
    if not here:
        return math.inf
    waves = max(1.0, blocks * t.cluster.rows / (here * gpu.multiprocessors))
    together = waves * (LATENCY + BARRIER * math.log2(threads))
    issue = issue_seconds(target, info.points * loads / lanes)
    apart = ARRIVAL if c["join"] != APART else LAUNCH + LATENCY
    last = apart + LATENCY + blocks / 1024 * LATENCY
    return launch_seconds(target, shape, moved, work) + together + issue + last
