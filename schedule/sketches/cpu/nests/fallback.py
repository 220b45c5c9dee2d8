"""Per-block fallback schedule, for blocks beside an anchor and those that no sketch matches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from .....ir.target import Target
from ....errors import ScheduleError
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo
from ....space.space import Batch, Choice, Choices, Sketch, cheapest
from .lane_sums import accumulators, one_stretch, reduce_columns
from .matching import CPU, FuncInfo
from .pointwise import (
    interleaves,
    lanes_of,
    may_share,
    pass_seconds,
    runs_of,
    schedule_pointwise,
    schedule_together,
    sharing_pays,
    side_by_side,
    square_side,
)

NEAR = 4  # the part of the last cache up to which a scatter's result is near to the cores
CHAINS = 8  # vectors of functions, whose instructions wait for each other: written in lockstep
ABREAST = (1, 2, 4, 8)
"""Vectors of a row taken at once: its lines are neighbors, the next row may be pages away."""
LONG = 4096  # bytes of a row of it, for each thread, that are worth running all updates for


def schedule_fallback(
    sch: Schedule,
    info: BlockInfo,
    target: Target,
    unroll: int = 2,
    parallel: bool | None = None,
    squares: bool = False,
) -> None:
    """Schedule one block by rule, independently of the others.

    Threads share it if ``parallel``; with None where that is expected to pay.
    """
    shared = sharing_pays((info,), target) if parallel is None else parallel
    if info.opaque:
        _points(sch, info, target, shared)
    elif info.reduce:
        _reduction(sch, info, target, shared)
    else:
        schedule_pointwise(sch, info, target, unroll, shared, squares)


def schedule_runs(
    sch: Schedule,
    blocks: tuple[BlockInfo, ...],
    target: Target,
    unroll: int = 2,
    parallel: bool | None = None,
    squares: bool = False,
) -> None:
    """Schedule blocks by rule, those together that follow each other over the same space.

    ``parallel`` is as in ``schedule_fallback`` for the one run, and allows sharing of several.
    """
    runs = runs_of(blocks, target, squares)
    for run in runs:
        # Of several runs those share that gain; the tuner may have it otherwise of one.
        decided = parallel is not None and (not parallel or len(runs) == 1)
        wanted = bool(parallel) if decided else sharing_pays(run, target)
        if not _together(sch, run, target, unroll, wanted):
            for info in run:
                schedule_fallback(sch, info, target, unroll, wanted, squares)


def _together(
    sch: Schedule, run: Sequence[BlockInfo], target: Target, unroll: int, parallel: bool
) -> bool:
    """Schedule several blocks in one nest; False if they cannot be."""
    several = len(run) > 1
    return several and sch.attempt(lambda s: schedule_together(s, run, target, unroll, parallel))


def _unroll(blocks: Sequence[BlockInfo], target: Target) -> int:
    """Return the vectors that one iteration takes by default."""
    if any(_crowded(b, target) for b in blocks):
        return 1
    return CHAINS if any(b.transcendental for b in blocks) else 2


def _crowded(info: BlockInfo, target: Target) -> bool:
    """True for a transposition, two vectors of which take more lines of a set than L1 has ways."""
    if info.opaque or info.reduce or not info.spatial:
        return False
    last, cache = info.spatial[-1].var, target.core.l1
    steps = [(a.stride(last) or 0) * a.buffer.dtype.bytes for a in info.inputs]
    rows = 2 * lanes_of(info, target)
    return any(cache.held(rows, n) < 1 for n in steps if n >= cache.line)


def _points(sch: Schedule, info: BlockInfo, target: Target, parallel: bool) -> None:
    """Run the points of an opaque block as lanes and on several threads, where that is legal.

    Lanes need every access contiguous along the last axis, as in a scan along another one.
    """
    loops = sch.get_loops(info.name)[: len(info.spatial)]
    if not loops:
        return
    if info.reduce:
        _updates(sch, info, target, parallel)
        return
    lanes = lanes_of(info, target)
    if side_by_side(info, lanes):
        abreast = _abreast(info, lanes, target.threads if parallel else 1)
        outer, lane = sch.split(loops[-1], [None, abreast * lanes])
        loops[-1] = outer
        with suppress(ScheduleError):
            sch.vectorize(lane)
    if parallel:
        with suppress(ScheduleError):
            sch.parallel(loops[0])


def _abreast(info: BlockInfo, lanes: int, threads: int) -> int:
    """Return the vectors of a row that a block takes at once, so that each thread has some."""
    apart = threads if len(info.spatial) == 1 else 1
    columns = info.spatial[-1].extent // lanes
    return max(n for n in ABREAST if n * apart <= max(columns, apart))


def _updates(sch: Schedule, info: BlockInfo, target: Target, parallel: bool) -> None:
    """Run the updates of a scatter in order, each on a row of neighbors.

    Threads share the row if it is long, or far away: each of them runs all the updates, and cores
    take lines from each other that both have in cache. What is no row of lanes, such as batches, is
    shared if it is as long.
    """
    loops = sch.get_loops(info.name)
    lanes = min(target.lanes(s.buffer.dtype) for s in info.stores)
    spatial, updates = loops[: len(info.spatial)], loops[len(info.spatial) :]
    if not side_by_side(info, lanes):
        first = info.spatial[0]
        steps = [abs(s.step(first.var) or 0) * s.buffer.dtype.bytes for s in info.stores]
        if parallel and first.extent * min(steps) >= LONG * target.threads:
            with suppress(ScheduleError):
                sch.parallel(spatial[0])
        return
    *outer, row = spatial
    shares = min(target.threads, info.spatial[-1].extent // lanes)
    rows = [s.buffer for s in info.stores]
    far = sum(math.prod(b.shape) * b.dtype.bytes for b in rows) > target.core.l3.size / NEAR
    long = info.spatial[-1].extent * min(b.dtype.bytes for b in rows) >= LONG * target.threads
    if parallel and not outer and shares > 1 and (far or long):
        part, row = sch.split(row, [shares, None])
        outer = [part]
    row, lane = sch.split(row, [None, lanes])
    with suppress(ScheduleError):
        sch.reorder(*outer[:1], *updates, *outer[1:], row, lane)
        sch.vectorize(lane)
        if parallel and outer:
            sch.parallel(outer[0])


def _reduction(sch: Schedule, info: BlockInfo, target: Target, parallel: bool) -> None:
    loops = sch.get_loops(info.name)
    spatial, own = loops[: len(info.spatial)], loops[len(info.spatial) :]
    unit = [a.stride(info.reduce[-1].var) for a in info.inputs]
    if all(s in (0, 1) for s in unit) and 1 in unit:
        own = one_stretch(sch, info, own)
        reduce_columns(sch, info.name, own, lanes_of(info, target) * accumulators((info,)))
    elif spatial and own and side_by_side(info, lanes_of(info, target)):
        lanes = lanes_of(info, target)
        abreast = _abreast(info, lanes, target.threads if parallel else 1)
        outer, vector, lane = sch.split(spatial[-1], [None, abreast, lanes])
        sch.reorder(*spatial[:-1], outer, *own, vector, lane)
        sch.unroll(vector)
        sch.vectorize(lane)
        spatial[-1] = outer
    if parallel and spatial:
        sch.parallel(spatial[0])


def around_anchor(
    name: str,
    decisions: Mapping[str, tuple[Choice, ...]],
    *,
    valid: Callable[[Choices], bool],
    cost: Callable[[Choices], float],
    apply: Callable[[Schedule, Choices], None],
    others: Sequence[BlockInfo],
    target: Target,
    fixed: Choices | None = None,
    share: float = 1.0,
    many: Batch | None = None,
) -> Sketch | None:
    """Return the space of an anchor with the cheapest point as default; None if no point is valid.

    ``others`` are the blocks beside the anchor, scheduled by rule before ``apply``. Decisions in
    ``fixed`` are not varied in the search for the default. ``share`` and ``many`` are those of the
    ``Sketch``.
    """

    def apply_all(sch: Schedule, c: Choices) -> None:
        schedule_runs(sch, tuple(others), target)
        apply(sch, c)

    held = fixed or {}
    default = many.cheapest(decisions, held) if many else cheapest(decisions, valid, cost, held)
    if not valid(default):
        return None
    return Sketch(
        name=name,
        kind="contraction",
        decisions=decisions,
        default=default,
        apply=apply_all,
        valid=valid,
        cost=cost,
        share=share,
        many=many,
    )


@CPU.row(90)
def match_fallback(work: FuncInfo, target: Target) -> Sketch | None:
    """Match every function."""
    return fallback_sketch(work.blocks, target)


def fallback_sketch(blocks: tuple[BlockInfo, ...], target: Target) -> Sketch:
    """Return the space of per-block schedules: unrolling, threads, squares of transpositions."""
    shared = may_share(pass_seconds(blocks, 1, target), target)
    turned = any(square_side(b, target) or interleaves(b, target) for b in blocks)

    def apply(sch: Schedule, c: Choices) -> None:
        squares, unroll = bool(c.get("squares", 0)), int(c["unroll"])
        schedule_runs(sch, blocks, target, unroll, bool(c["parallel"]), squares)

    def cost(c: Choices) -> float:
        threads = target.threads if c["parallel"] else 1
        return pass_seconds(blocks, threads, target) + 1e-9 * int(c["unroll"])

    return Sketch(
        name="alone@1",
        kind="elementwise",
        decisions={
            "unroll": (1, 2, 4, 8),
            "parallel": (1, 0) if shared else (0,),
            "squares": (1, 0) if turned else (0,),
        },
        default={
            "squares": int(turned),
            "unroll": _unroll(blocks, target),
            "parallel": int(any(sharing_pays((b,), target) for b in blocks)),
        },
        apply=apply,
        valid=lambda c: True,
        cost=cost,
    )
