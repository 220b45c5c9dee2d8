"""Row-wise groups: softmax, layer norm, means, sums to a scalar.

All blocks share their leading axes (the *row*); their other axes are reduced or mapped over the
row's columns. Every stage runs inside one parallel loop over rows, so intermediates are one row
long and stay in cache. A reduction along the contiguous axis is first split over the lanes of
vector registers (``rfactor``), then summed across them.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from .....ir.loop.nodes import Buffer
from .....ir.target import Target
from ....cursor import LoopRef
from ....errors import ScheduleError
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, BlockInfo
from ....space.lookup import below, extent
from ....space.space import Choices, Sketch
from ....stores import update_of
from ..nests.contraction import feeders_of, heaviest
from ..nests.lane_sums import FEWEST, accumulators, fitting, one_stretch, reduce_columns
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import (
    lanes_of,
    may_share,
    pass_seconds,
    schedule_pointwise,
    sharing_pays,
    side_by_side,
)


@dataclass(frozen=True, slots=True)
class RowwiseGroup:
    """Blocks that share ``count`` leading axes.

    A part is a set of blocks that pass values to each other, in program order. ``others`` share
    output buffers with other blocks, or come before the rows, and are scheduled separately.
    """

    parts: tuple[tuple[BlockInfo, ...], ...]
    others: tuple[BlockInfo, ...]
    count: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return math.prod(a.extent for a in self.parts[0][-1].spatial[: self.count])

    @property
    def blocks(self) -> tuple[BlockInfo, ...]:
        """The blocks of all parts, and the others."""
        return (*(b for part in self.parts for b in part), *self.others)


def find_rows(blocks: tuple[BlockInfo, ...]) -> RowwiseGroup | None:
    """Return the blocks that share leading axes; None if there are none, or a block is opaque."""
    if any(b.opaque for b in blocks):
        return None
    writers = Counter(buffer for b in blocks for buffer in {s.buffer for s in b.stores})
    shared = {buffer for buffer, count in writers.items() if count > 1}
    apart = [not b.reduce and any(s.buffer in shared for s in b.stores) for b in blocks]
    others = [b for b, alone in zip(blocks, apart, strict=True) if alone]
    mine = [b for b, alone in zip(blocks, apart, strict=True) if not alone]
    anchor = heaviest(tuple(mine))
    if anchor is None:
        return None
    feeders = feeders_of(blocks, anchor)
    without = [b for b in mine if b not in feeders]
    if _shared_axes(without) > _shared_axes(mine):  # as the padding of a convolution's input
        mine, others = without, [*others, *(b for b in mine if b in feeders)]
    count = _shared_axes(mine)
    return RowwiseGroup(_parts(mine), tuple(others), count) if count else None


def _shared_axes(blocks: list[BlockInfo]) -> int:
    """Return the number of leading axes that all blocks have alike, and along which they read."""
    shapes = [tuple(a.extent for a in b.spatial) for b in blocks]
    count = 0
    while all(len(s) > count for s in shapes) and len({s[count] for s in shapes}) == 1:
        count += 1
    made = {s.buffer for b in blocks for s in b.stores}
    return min(
        (_rows_read(b, a, count) for b in blocks for a in b.inputs if a.buffer in made),
        default=count,
    )


def _rows_read(info: BlockInfo, access: AccessPattern, count: int) -> int:
    """Return how many of the leading axes are the leading indices of what another block made."""
    pairs = enumerate(zip(info.spatial[:count], access.coefficients, strict=False))
    return next((n for n, (a, form) in pairs if a.extent > 1 and form != {a.var: 1}), count)


def _parts(blocks: list[BlockInfo]) -> tuple[tuple[BlockInfo, ...], ...]:
    """Partition the blocks into those connected by values, directly or not."""
    parts: list[tuple[list[int], set[Buffer]]] = []  # the blocks by number, and what they store
    for n, block in enumerate(blocks):
        read = {a.buffer for a in block.inputs}
        apart = [p for p in parts if read.isdisjoint(p[1])]
        numbers, stored = [n], {s.buffer for s in block.stores}
        for earlier, made in parts:
            if not read.isdisjoint(made):
                numbers += earlier
                stored |= made
        parts = [*apart, (sorted(numbers), stored)]
    return tuple(tuple(blocks[n] for n in numbers) for numbers, _ in parts)


def apply_rows(k: RowwiseGroup, sch: Schedule, c: Choices, target: Target) -> None:
    """Fuse the row axes, compute every stage inside, and vectorize each stage's columns."""
    for info in k.others:
        schedule_pointwise(sch, info, target, int(c["unroll"]), bool(c["parallel"]))
    for part in k.parts:
        at = _row_loop(part, k.count, sch)
        before: LoopRef | None = None
        runs = _runs(part, at, sch)
        for run, after in zip(runs, (*(r[0] for r in runs[1:]), None), strict=True):
            before = _vectorize_stages(run, after, sch, c, at, before, target)
        if c["parallel"]:
            sch.parallel(at)


def _runs(part: tuple[BlockInfo, ...], at: LoopRef, sch: Schedule) -> list[tuple[BlockInfo, ...]]:
    """Return the stages in order, those together that map the same columns and run in one loop."""
    runs: list[tuple[BlockInfo, ...]] = []
    for info in part:
        own = below(sch, info.name, at)
        first = below(sch, runs[-1][0].name, at) if runs and not runs[-1][0].reduce else []
        if not info.reduce and len(own) == len(first) == 1:
            with suppress(ScheduleError):
                sch.merge(first[0], own[0])
                runs[-1] += (info,)
                continue
        runs.append((info,))
    return runs


def _vectorize_stages(
    run: tuple[BlockInfo, ...],
    after: BlockInfo | None,
    sch: Schedule,
    c: Choices,
    at: LoopRef,
    before: LoopRef | None,
    target: Target,
) -> LoopRef | None:
    """Vectorize a run of stages; return its loop over vectors if the next is to run inside of it.

    ``before`` is the loop that the stage before has left for this one.
    """
    info, lanes = run[0], min(lanes_of(b, target) for b in run)
    own = below(sch, info.name, at)
    if info.reduce:
        width = lanes * int(c["accumulators"])
        reduce_columns(sch, info.name, one_stretch(sch, info, _reducing(info, own)), width, before)
        return None
    if after is not None and c.get("together", 0) and _sums_at_once(run, after, own):
        columns = extent(sch, own[-1])
        width = fitting(columns, lanes_of(after, target) * int(c["accumulators"]))
        if columns > width >= FEWEST:
            rest, lane = sch.split(own[-1], [None, width])
            sch.vectorize(lane)
            return rest
    _map_columns(sch, own, lanes * int(c["unroll"]), lanes)
    return None


def _sums_at_once(run: tuple[BlockInfo, ...], after: BlockInfo, own: list[LoopRef]) -> bool:
    """True if ``after`` reduces what a run computes, each element once, in the same order."""
    made = {s.buffer for b in run for s in b.stores}
    reads = [a for a in after.inputs if a.buffer in made]
    if len(own) != 1 or len(after.reduce) != 1 or update_of(after.block) is None or not reads:
        return False
    columns, term = [b.spatial[-1] for b in run], after.reduce[-1]
    stores = {s.stride(x.var) for b, x in zip(run, columns, strict=True) for s in b.stores}
    steps = {a.stride(term.var) for a in reads} | stores
    plain = all(a.stride(term.var) in (0, 1) for a in after.inputs)
    return plain and steps == {1} and columns[0].extent == term.extent


def _row_loop(part: tuple[BlockInfo, ...], count: int, sch: Schedule) -> LoopRef:
    """Return one loop over the rows, with every stage of a part inside."""
    row = sch.get_loops(host_of(part).name)[:count]
    at = row[0] if len(row) == 1 else sch.fuse(*row)
    join_stages(part, at, sch)
    return at


def host_of(part: tuple[BlockInfo, ...]) -> BlockInfo:
    """Return the stage whose loop the others join.

    It is the last block, or, if several blocks are last, one that all of them depend on.
    """
    last = [b for n, b in enumerate(part) if not _follows((b,), part[n + 1 :])]
    shared = [b for b in part if all(x in _follows((b,), part) for x in last)]
    return shared[-1] if len(last) > 1 and shared else part[-1]


def join_stages(part: tuple[BlockInfo, ...], at: LoopRef, sch: Schedule) -> None:
    """Move every stage of a part into a loop of its host, consumers up first, then producers."""
    host = host_of(part)
    after = _follows((host,), part)
    for info in after:
        sch.reverse_compute_at(info.name, at)
    for info in reversed(part):
        if info is not host and info not in after:
            sch.compute_at(info.name, at)


def _follows(start: tuple[BlockInfo, ...], part: tuple[BlockInfo, ...]) -> tuple[BlockInfo, ...]:
    """Return the blocks of ``part`` that depend on ``start``, directly or not, in order."""
    written = {s.buffer for b in start for s in b.stores}
    found: list[BlockInfo] = []
    for block in part:
        if block not in start and any(a.buffer in written for a in block.inputs):
            written |= {s.buffer for s in block.stores}
            found.append(block)
    return tuple(found)


def _map_columns(sch: Schedule, own: list[LoopRef], width: int, lanes: int) -> None:
    if not own:
        return
    columns = extent(sch, own[-1])
    step = width if columns > width and columns % width == 0 else lanes
    if columns > step > 1:
        _, lane = sch.split(own[-1], [None, step])
        sch.vectorize(lane)
    elif columns > 1:
        sch.vectorize(own[-1])


def _reducing(info: BlockInfo, own: list[LoopRef]) -> list[LoopRef]:
    """Return the reduction loops if there is no spatial loop among them; else an empty list."""
    return own if len(own) <= len(info.reduce) else []


def rows_cost(k: RowwiseGroup, c: Choices, target: Target) -> float:
    """Estimate the seconds: a pass of all stages, longer with few independent operations."""
    threads = target.threads if c["parallel"] else 1
    ilp = 1.0 + 0.5 / int(c["accumulators"]) + 0.1 / int(c["unroll"])
    return ilp * pass_seconds(k.blocks, threads, target)


def _in_order(info: BlockInfo, target: Target) -> bool:
    """True if a reduction's terms cannot be shared by lanes, but neighboring results can."""
    if info.opaque or not info.reduce or not info.spatial or update_of(info.block) is not None:
        return False
    return side_by_side(info, lanes_of(info, target))


@CPU.row(30)
def match_rows(work: FuncInfo, target: Target) -> Sketch | None:
    """Match blocks that share their leading axes, unless the rows themselves should be lanes."""
    if any(_in_order(b, target) for b in work.blocks):
        return None
    k = find_rows(work.blocks) if work.contraction is None else None
    return None if k is None else rows_sketch(k, target)


def rows_sketch(k: RowwiseGroup, target: Target) -> Sketch:
    """Return the space of a row-wise group."""
    shared = k.rows > 1 and may_share(pass_seconds(k.blocks, 1, target), target)
    return Sketch(
        name="rows@1",
        kind="reduction",
        decisions={
            "accumulators": (1, 2, 4, 8),
            "unroll": (1, 2, 4),
            "parallel": (1, 0) if shared else (0,),
            "together": (1, 0),
        },
        default={
            "accumulators": accumulators(b for part in k.parts for b in part),
            "unroll": 2,
            "parallel": int(k.rows > 1 and sharing_pays(k.blocks, target)),
            "together": 1,
        },
        apply=lambda sch, c: apply_rows(k, sch, c, target),
        valid=lambda c: True,
        cost=lambda c: rows_cost(k, c, target),
    )
