"""Products of a few rows: each weight is used a few times, so memory delivers it as fast as it can.

The nest is that of register tiling. Weights that lie in the order in which they are used are one
stream, which the hardware's prefetchers follow too closely: they keep fewer lines in flight than
memory can deliver, and the fewer the narrower the weights are, because a page then holds more work.
So the loop of the reduction prefetches some thousand bytes ahead.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ....ir.loop.nodes import AxisKind, Kind
from ....ir.loop.notes import FETCH
from ....ir.loop.visit import free_vars
from ....ir.target import Target
from ...cursor import LoopRef, loop_of, nest
from ...language.schedule import Schedule
from ...space.lookup import block_node
from ...space.space import Choices, Sketch
from .contraction import AHEAD, Contraction
from .matching import CPU, FuncInfo
from .tiling import match_tiling

FEW = 8  # rows of the result, from which the products take longer than their weights
FETCHES = (4096, 8192, 2048, 0)
FOLLOWED = 4.0  # bytes a cycle that memory delivers to one core where nothing is fetched ahead
FETCHED = 6.0  # and where enough is


@CPU.row(9)
def match_skinny(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of few rows and large weights that can be packed ahead of time."""
    k = work.contraction
    base = match_tiling(work, target)
    if k is None or base is None or not _streams(k, target):
        return None

    def apply(sch: Schedule, c: Choices) -> None:
        base.apply(sch, c)
        if c["fetch"]:
            sch.annotate(_stream(sch, k), FETCH.key, int(c["fetch"]))

    def valid(c: Choices) -> bool:
        return base.valid(c) and (c["pack"] == AHEAD or not c["fetch"])

    def cost(c: Choices) -> float:
        return max(base.cost(c), _memory_seconds(k, c, target))

    default = {**base.default, "fetch": FETCHES[0] if base.default["pack"] == AHEAD else 0}
    return replace(
        base,
        name="skinny@1",
        decisions={**base.decisions, "fetch": FETCHES},
        default=default,
        apply=apply,
        valid=valid,
        cost=cost,
    )


def _streams(k: Contraction, target: Target) -> bool:
    """True if few rows share frozen weights that are larger than the first cache."""
    rows = math.prod(a.extent for a in (*k.sweep, *((k.row,) if k.row else ())))
    if k.weights is None or not k.frozen or rows > FEW:
        return False
    return _weight_bytes(k) > target.l1


def _weight_bytes(k: Contraction) -> int:
    assert k.weights is not None
    return math.prod(k.weights.buffer.shape) * k.weights.buffer.dtype.bytes


def _memory_seconds(k: Contraction, c: Choices, target: Target) -> float:
    """Return a bound of the time in which memory delivers the weights."""
    rate = FOLLOWED + (FETCHED - FOLLOWED) * min(1.0, int(c["fetch"]) / FETCHES[0])
    threads = target.threads if c["parallel"] else 1
    return target.core.seconds(_weight_bytes(k) / (rate * threads))


def _stream(sch: Schedule, k: Contraction) -> LoopRef:
    """Return the innermost serial loop of the reduction."""
    axes = block_node(sch, k.anchor.name).axes
    reduced = {v for a in axes if a.kind is AxisKind.REDUCE for v in free_vars(a.value)}
    known = nest(sch.func).loops
    loops = [x for x in sch.get_loops(k.anchor.name) if x.var in reduced]
    return [x for x in loops if loop_of(known[x.var]).kind is Kind.SERIAL][-1]
