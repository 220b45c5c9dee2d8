"""Reductions over leading axes: sums down columns that are contiguous in memory.

Threads of ``threadIdx.x`` process neighboring columns, those of ``threadIdx.y`` share the terms of
each; partial results are combined in shared memory. If there are too few columns to fill the GPU,
blocks share the terms too, and the last one to finish, or a second launch, combines their results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from .....ir.loop.nodes import BlockAxis
from .....ir.target import Target
from ....combiner import combiner_of
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo, describe
from ....space.lookup import below, own_loops
from ....space.space import Choices, Sketch, cheapest
from ....stores import update_of
from ..launches.clusters import (
    CLUSTERS,
    Cluster,
    merged_rows,
    place,
    row_loops,
    stage_loops,
    stage_reductions,
)
from ..launches.machine import (
    ARRIVAL,
    BARRIER,
    LATENCY,
    LAUNCH,
    LaunchShape,
    bursts,
    distinct,
    flops_of,
    issue_seconds,
    launch_seconds,
    overlapped,
    resident,
    vector_width,
    waste,
)
from ..launches.threads import (
    APART,
    BLOCKS,
    LAST,
    ROW_OF_BLOCKS,
    X,
    Y,
    bind_parts,
    clusters_fit,
    fused,
    powers,
    ways_to_join,
)
from .direct import unroll_terms

DEEP = 32  # terms from which sharing them pays
MOST_UNROLLED = 16  # pieces whose sum is straight-line code


@dataclass(frozen=True, slots=True)
class Columns:
    """A cluster whose block ``anchor`` reduces columns; neighbors are along its last axis."""

    cluster: Cluster
    anchor: BlockInfo

    @property
    def last(self) -> BlockAxis:
        """The anchor's last spatial axis."""
        return self.anchor.spatial[-1]

    @property
    def depth(self) -> int:
        """The number of terms of a result."""
        return self.anchor.terms

    @property
    def vector(self) -> int:
        """The most columns that one thread can load at once."""
        sizes = [a.buffer.dtype.bytes for a in self.anchor.inputs if a.step(self.last.var) == 1]
        return vector_width(sizes, self.last.extent)


def find_columns(k: Cluster) -> Columns | None:
    """Return the cluster's only reduction, if it runs down contiguous columns; else None."""
    heavy = [b for b in k.blocks if b.reduce]
    if len(heavy) != 1 or not k.count or not k.flat or combiner_of(heavy[0].block) is None:
        return None
    c = Columns(k, heavy[0])
    strides = [a.step(c.last.var) for a in c.anchor.inputs]
    fit = all(s in (0, 1) for s in strides) and 1 in strides and c.last.extent >= 8
    return c if fit and c.depth >= DEEP else None


@CLUSTERS.row(40)
def match_columns(k: Cluster, target: Target) -> Sketch | None:
    """Match reductions across contiguous memory."""
    columns = None if k.elementwise else find_columns(k)
    return None if columns is None else columns_sketch(columns, target)


def columns_sketch(k: Columns, target: Target) -> Sketch:
    """Return the space of sums down columns."""
    decisions: dict[str, tuple[int | str, ...]] = {
        "columns": powers(8, 128),
        "vector": powers(1, k.vector),
        "share": powers(2, max(2, min(64, k.depth // 2))),
        "blocks": powers(1, max(1, min(256, k.depth // 32))),
        "unroll": (1, 2, 4, 8),
        "join": ways_to_join(target),
    }

    depth, straight = k.depth, update_of(k.anchor.block) is not None

    def valid(c: Choices) -> bool:
        share, blocks = int(c["share"]), int(c["blocks"])
        return (
            32 <= int(c["columns"]) * share <= 1024
            and share * blocks * int(c["unroll"]) <= depth
            and depth % blocks == 0  # uneven pieces are not boxes
            and _may_join(k, c)
            and clusters_fit(blocks, c, target)
            and (straight or _are_filled(k, c))
            and shared_bytes(k, c) <= target.gpu.shared_per_block
        )

    @cache
    def moved(lanes: int) -> float:
        return moved_bytes(k, lanes)

    def cost(c: Choices) -> float:
        return columns_cost(k, c, target, moved(int(c["vector"])))

    return Sketch(
        name="gpu_columns@1",
        kind="columns",
        decisions=decisions,
        default=cheapest(decisions, valid, cost, {}),
        apply=lambda sch, c: apply_columns(k, sch, c),
        valid=valid,
        cost=cost,
    )


def _are_filled(k: Columns, c: Choices) -> bool:
    """True if no thread is without terms, if each has a run of them."""
    deep, share = k.depth // int(c["blocks"]), int(c["share"])
    return (share - 1) * -(-deep // share) < deep


def _may_join(k: Columns, c: Choices) -> bool:
    """True if the pieces of columns are provably whole; there is one way to join one piece."""
    if int(c["blocks"]) == 1:
        return c["join"] == LAST
    lanes = int(c["vector"])
    whole = lanes == 1 or k.last.extent % (int(c["columns"]) * lanes) == 0
    return c["join"] == APART or whole


def shared_bytes(k: Columns, c: Choices) -> int:
    """Return the bytes of shared memory that a block of threads needs for partial results."""
    size = sum(a.buffer.dtype.bytes for a in k.anchor.stores)
    return int(c["columns"]) * int(c["vector"]) * int(c["share"]) * size


def apply_columns(k: Columns, sch: Schedule, c: Choices) -> None:
    """Share the terms among threads, and first among blocks if ``blocks`` is above 1."""
    terms = _terms_first(k.anchor, sch)
    if int(c["blocks"]) == 1:
        share_columns(k.cluster, k.anchor, sch, c, terms)
        return
    piece, _ = sch.split(terms, [int(c["blocks"]), None])
    name = sch.rfactor(piece, 0)
    partial = describe(sch.block(name))
    inner = _terms_first(partial, sch)
    pieces = Cluster((partial,), len(partial.spatial))
    if c["join"] != APART:
        _join_pieces(k, sch, c, *share_columns(pieces, partial, sch, c, inner, join=True))
        return
    share_columns(pieces, partial, sch, c, inner)
    whole = stage_reductions(k.cluster, sch)
    block, thread = row_loops(whole, sch, 32)
    place(whole, sch)
    sch.bind(block, BLOCKS)
    sch.bind(thread, X)


def _join_pieces(k: Columns, sch: Schedule, c: Choices, block: LoopRef, piece: LoopRef) -> None:
    """Let the last block of each group of columns combine the sums of its pieces."""
    lanes = int(c["vector"])
    whole = stage_reductions(k.cluster, sch)
    *rows, last = merged_rows(whole, sch, lanes)
    outer, column = sch.split(last, [None, int(c["columns"])])
    mine = fused(sch, [*rows, outer])
    assert mine is not None
    place(whole, sch)
    sch.merge(block, mine)
    sch.bind(block, BLOCKS)
    bind_parts(sch, piece, ROW_OF_BLOCKS, c)
    sch.bind(column, X)
    for info in whole.blocks:
        own = stage_loops(whole, sch, info, column)
        _last_sums(sch, own, lanes, info.name == k.anchor.name, int(c["blocks"]) <= MOST_UNROLLED)


def _terms_first(info: BlockInfo, sch: Schedule) -> LoopRef:
    """Return one loop over the terms of a block, moved around those over its results."""
    own = own_loops(sch, info.name)
    loops = sch.get_loops(info.name)
    over = [own[a.var] for a in info.reduce if a.var in own]
    rest = [x for x in loops if x not in over]
    sch.reorder(*over, *rest)
    terms = fused(sch, over)
    assert terms is not None
    return terms


def share_columns(
    k: Cluster, anchor: BlockInfo, sch: Schedule, c: Choices, terms: LoopRef, join: bool = False
) -> tuple[LoopRef, LoopRef]:
    """Make one launch whose threads share the columns along x, and the terms of each along y.

    Returns the loop over blocks and the first one over rows. With ``join``, they are different, the
    second one inside of the first, and yet to be bound.
    """
    columns, lanes, share = int(c["columns"]), int(c["vector"]), int(c["share"])
    if update_of(anchor.block) is not None:
        _, part = sch.split(terms, [None, share])
    else:  # several values, whose terms may have to stay in order
        part, _ = sch.split(terms, [share, None])
    sch.reorder(part, *(x for x in sch.get_loops(anchor.name) if x != part))
    partial = sch.rfactor(part, 0)
    stores = [sch.cache_write(partial, n) for n in range(len(anchor.stores))]
    k = stage_reductions(k, sch)
    row = merged_rows(k, sch, lanes)
    outer, column = sch.split(row[-1], [None, columns])
    block = fused(sch, [*row[int(join) : -1], outer])
    assert block is not None
    at = row[0] if join else block
    if join:
        sch.reorder(block, at)
    place(k, sch)
    for store in stores:
        sch.compute_at(store, at)
        sch.set_scope(store, 0, "shared")
    if not join:
        sch.bind(block, BLOCKS)
    sch.bind(column, X)
    _bind_partial(sch, partial, stores, at, c)
    straight = update_of(anchor.block) is not None or share * lanes <= MOST_UNROLLED
    for info in k.blocks:
        own = stage_loops(k, sch, info, column)
        _last_sums(sch, own, lanes, info.name == anchor.name, straight)
    return block, at


def _last_sums(
    sch: Schedule, own: list[LoopRef], lanes: int, sums: bool, unrolled: bool = True
) -> None:
    """Vectorize the lanes of a block innermost, and unroll the sum of its partial results."""
    terms = own.pop() if sums else None
    if lanes > 1 and own:
        if terms is not None:
            sch.reorder(terms, own[-1])
        sch.vectorize(own[-1])
    if terms is not None and unrolled:
        sch.unroll(terms)


def _bind_partial(
    sch: Schedule, partial: BlockRef, stores: list[BlockRef], block: LoopRef, c: Choices
) -> None:
    """Bind the columns and the shares of the partial sums to threads.

    They accumulate in registers, a few terms per iteration.
    """
    columns, lanes, times = int(c["columns"]), int(c["vector"]), int(c["unroll"])
    around: list[LoopRef] = []
    for store in stores:
        own = own_loops(sch, store, block)
        axes = [a.var for a in sch.block(store).axes]
        share, column = own[axes[0]], own[axes[-1]]
        if lanes > 1:
            column, lane = sch.split(column, [columns, lanes])
            sch.reorder(share, column, lane)
            sch.vectorize(lane)
        else:
            sch.reorder(share, column)
        pairs = zip(around, (share, column), strict=False)
        around = [sch.merge(a, b) for a, b in pairs] or [share, column]
    share, column = around
    sch.compute_at(partial, column)
    for n in range(len(stores)):
        sch.set_scope(partial, n, "register")
    sch.bind(share, Y)
    sch.bind(column, X)
    loops = below(sch, partial, column)
    wide = loops.pop(0) if lanes > 1 else None
    if loops:
        unroll_terms(sch, loops, wide, times)
    if wide is not None:
        sch.vectorize(wide)


def moved_bytes(k: Columns, lanes: int) -> float:
    """Return the bytes of memory that whole accesses move, with so many columns per thread."""
    info = k.anchor
    return sum(
        distinct(info, a) * a.buffer.dtype.bytes * waste(a, k.last.var, lanes) for a in info.inputs
    )


def columns_cost(k: Columns, c: Choices, target: Target, moved: float) -> float:
    """Estimate the seconds of all launches, which move at least ``moved`` bytes."""
    columns, lanes, share, blocks = (int(c[n]) for n in ("columns", "vector", "share", "blocks"))
    info, gpu, times = k.anchor, target.gpu, int(c["unroll"])
    inputs = info.inputs
    size = max((a.buffer.dtype.bytes for a in inputs), default=4)
    loads = max(1, len(inputs))
    groups = k.cluster.rows // k.last.extent * -(-k.last.extent // (columns * lanes)) * blocks
    moved *= bursts(columns * lanes * size)
    shape = LaunchShape(
        groups,
        columns * share,
        float(size * lanes * min(times, 4) * loads) / 2,
        shared_bytes(k, c),
        24 + loads * lanes * times * max(1, size // 4),
    )
    here = resident(target, shape)
    if not here:
        return math.inf
    waves = max(1.0, groups / (here * gpu.multiprocessors))
    steps = k.depth / (share * blocks)
    chain = steps / times * 0.3 * LATENCY + LATENCY + (2 * BARRIER + share * 20e-9)
    apart = ARRIVAL if c["join"] != APART else LAUNCH + LATENCY
    again = apart + blocks * 40e-9 if blocks > 1 else 0.0
    issue = issue_seconds(target, info.points * loads / lanes)
    first = launch_seconds(target, shape, moved, flops_of(info))
    return overlapped(first, waves * chain, issue) + again
