"""Groups that work row by row: softmax, layer norm, means, sums to a scalar.

All blocks share their leading axes (the *row*); what follows is summed or mapped over the row's
columns. Every stage runs inside one parallel loop over rows, so what passes between stages is one row
long and stays in cache. Reductions along the contiguous axis are first split over the lanes of a
vector register (``rfactor``), then summed across.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.target import Target
from ..cursor import LoopRef
from ..errors import ScheduleError
from ..schedule import Schedule
from .analyze import BlockInfo
from .pointwise import PARALLEL_WORK, lanes_of, schedule_pointwise, work_of
from .space import Choices, Sketch


@dataclass(frozen=True, slots=True)
class Rows:
    """``count`` leading axes that every block shares; ``last`` runs after all others."""

    blocks: tuple[BlockInfo, ...]
    count: int
    last: BlockInfo

    @property
    def rows(self) -> int:
        return math.prod(a.extent for a in self.last.spatial[: self.count])

    @property
    def work(self) -> float:
        return sum(work_of(b) for b in self.blocks)


def find_rows(blocks: tuple[BlockInfo, ...]) -> Rows | None:
    """The shared leading axes of a group's blocks; None when they share none or one is opaque."""
    if any(b.opaque for b in blocks) or not any(b.reduce for b in blocks):
        return None
    shapes = [tuple(a.extent for a in b.spatial) for b in blocks]
    count = 0
    while all(len(s) > count for s in shapes) and len({s[count] for s in shapes}) == 1:
        count += 1
    # A row must not cut into what a reduction without further axes writes.
    return Rows(blocks, count, blocks[-1]) if count else None


def apply_rows(k: Rows, sch: Schedule, c: Choices, target: Target) -> None:
    """Fuse the row axes, compute every stage inside, vectorize each stage's columns."""
    row = list(sch.get_loops(k.last.name)[: k.count])
    at = row[0] if len(row) == 1 else sch.fuse(*row)
    for info in reversed(k.blocks[:-1]):
        sch.compute_at(info.name, at)
    for info in k.blocks:
        lanes = lanes_of(info, target)
        columns = sch.get_loops(info.name)
        own = [x for x in columns if x != at]
        if info.reduce:
            _reduce_columns(sch, info, own, lanes * int(c["accumulators"]))
        else:
            _map_columns(sch, own, lanes * int(c["unroll"]), lanes)
    if k.work >= float(c["grain"]) and k.rows > 1:
        sch.parallel(at)


def _map_columns(sch: Schedule, own: list[LoopRef], width: int, lanes: int) -> None:
    if not own:
        return
    extent = sch.extent(own[-1])
    if extent is None:
        return
    step = width if extent >= width and extent % width == 0 else lanes
    if extent > step > 1:
        _, inner = sch.split(own[-1], [None, step])
        sch.vectorize(inner)
    elif extent > 1:
        sch.vectorize(own[-1])


def _reduce_columns(sch: Schedule, info: BlockInfo, own: list[LoopRef], width: int) -> None:
    """``for k: acc += x[k]``  ->  vector of partial sums over k, then one sum across its lanes."""
    if not own:
        return
    k = own[-1]
    extent = sch.extent(k)
    if extent is None or extent < 4:
        return
    if extent <= width:
        sch.vectorize(k)
        return
    _, lane = sch.split(k, [None, width])
    partial = sch.rfactor(lane, 0)
    outer = sch.get_loops(info.name)
    loops = sch.get_loops(partial.name)
    anchor_loop = outer[-len([x for x in outer if x in loops]) - 1] if False else None
    del anchor_loop
    sch.set_scope(partial.name, 0, "register")
    sch.vectorize(loops[-1])


def rows_cost(k: Rows, c: Choices, target: Target) -> float:
    """Estimated seconds: work over vector throughput and threads, plus the fork."""
    threads = target.threads if k.work >= float(c["grain"]) and k.rows > 1 else 1
    ilp = 1.0 + 0.5 / int(c["accumulators"]) + 0.1 / int(c["unroll"])
    return k.work * ilp / (2e10 * threads) + (2e-6 if threads > 1 else 0.0)


def rows_sketch(k: Rows, target: Target) -> Sketch:
    """The space of a row-wise group."""
    return Sketch(
        name="rows@1",
        kind="reduction",
        decisions={
            "accumulators": (1, 2, 4, 8),
            "unroll": (1, 2, 4),
            "grain": (1 << 12, PARALLEL_WORK, 1 << 18, 1 << 21),
        },
        default={"accumulators": 4, "unroll": 2, "grain": PARALLEL_WORK},
        apply=lambda sch, c: apply_rows(k, sch, c, target),
        valid=lambda c: True,
        cost=lambda c: rows_cost(k, c, target),
    )
