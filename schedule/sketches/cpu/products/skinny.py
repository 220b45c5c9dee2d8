"""Products of a few rows: each weight is used a few times, so memory delivers it as fast as it can.

The nest is that of register tiling. Weights that lie in the order in which they are used are one
stream, which the hardware brings into the second cache but not always into the first in time. So
the loop of the reduction prefetches: a few lines ahead, or some thousand bytes where a line is so
little work that a few lines are too late (one row of f32), or so much that the hardware does not
follow (narrow weights of several rows). Weights in two parts are two streams, for which the
hardware keeps enough lines in flight by itself.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np

from .....ir.arrays import Array
from .....ir.loop.nodes import AxisKind, Kind
from .....ir.loop.notes import FETCH
from .....ir.loop.visit import free_vars
from .....ir.target import Target
from ....cursor import LoopRef, loop_of, nest
from ....language.schedule import Schedule
from ....space.lookup import block_node
from ....space.space import Batch, Choices, Columns, Sketch
from ..nests.contraction import AHEAD, Contraction, TileColumns
from ..nests.matching import CPU, FuncInfo
from .tile_cost import FEW, contraction_valid
from .tiling import LONG, match_tiling

NEAR, FAR = 256, 4096  # bytes: a few lines; and more than the hardware keeps in flight
FETCHES = (NEAR, FAR, 2048, 0)
PACED = 1.5, 14.0  # cycles of work for a line of weights with which the hardware keeps pace
FOLLOWED = 4.0  # bytes a cycle that memory delivers to one core where nothing is fetched ahead
FETCHED = 6.0  # and where enough is
CONVERSIONS = 2  # instructions that make f32 of a vector of narrow weights
JOINS = 1  # and those that make one number of two parts


@CPU.row(9)
def match_skinny(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product of few rows and large weights that can be packed ahead of time."""
    k = work.contraction
    if k is None or not _streams(k, target):
        return None
    base = match_tiling(work, target)
    if base is None:
        return None

    def apply(sch: Schedule, c: Choices) -> None:
        base.apply(sch, c)
        if c["fetch"]:
            sch.annotate(_stream(sch, k), FETCH.key, int(c["fetch"]))

    def valid(c: Columns) -> Array:
        streamed = (c["pack"] == AHEAD) | (c["fetch"] == 0)
        return np.asarray(contraction_valid(k, cast("TileColumns", c), target) & streamed)

    many = Batch(valid=valid, cost=lambda c: _seconds(k, c, target))
    short = tuple(v for v in base.decisions["vectors"] if v not in LONG)
    decisions = {**base.decisions, "vectors": short, "fetch": FETCHES}
    held = {n: base.default[n] for n in ("lanes", "inside", "parallel")}
    ahead = _distance(k, target)
    fixed = {"order": "column", "chunks": 1, "pack": AHEAD, "fetch": ahead, **held}
    steps = 4 if k.anchor.reduce[-1].extent >= 4 else 1
    default = many.cheapest(decisions, {**fixed, "unroll": steps})
    if not many.valid_one(default):  # feeders that are computed in chunks, say
        fetch = ahead if base.default["pack"] == AHEAD else 0
        default = {**base.default, "fetch": fetch}
    return replace(
        base,
        name="skinny@1",
        decisions=decisions,
        default=default,
        apply=apply,
        valid=many.valid_one,
        cost=many.cost_one,
        many=many,
    )


def _streams(k: Contraction, target: Target) -> bool:
    """True if few rows share frozen weights that are larger than the first cache."""
    if k.weights is None or not k.frozen or k.all_rows > FEW:
        return False
    return _weight_bytes(k) > target.l1


def _weight_bytes(k: Contraction) -> int:
    buffers = [a.buffer for a in k.weight_parts]
    return sum(math.prod(b.shape) * b.dtype.bytes for b in buffers)


def _converting(k: Contraction) -> int:
    """Return the instructions that make numbers to multiply by of a vector of weights."""
    narrow = [a for a in k.weight_parts if a.buffer.dtype != k.dtype]
    return CONVERSIONS * len(narrow) + JOINS * (k.lower is not None)


def _distance(k: Contraction, target: Target) -> int:
    """Return how many bytes ahead weights are best prefetched; 0 for weights in two parts."""
    if k.lower is not None or k.weights is None:
        return 0
    core = target.core
    numbers = core.l1.line / k.weights.buffer.dtype.bytes
    vectors = numbers * k.dtype.bytes * 8 / core.vector_bits
    cycles = vectors * (k.all_rows + _converting(k)) / core.fmas
    return NEAR if PACED[0] < cycles < PACED[1] else FAR


def _seconds(k: Contraction, c: Columns, target: Target) -> Array:
    """Estimate the seconds of one run: of instructions and of memory, which overlap in part.

    Unlike in a product of many rows, a panel is used once or twice. So what counts is enough sums
    that do not depend on each other, and equal shares for the threads.
    """
    core, lanes = target.core, c["lanes"]
    rows, vectors = c["rows"], c["vectors"]
    turns = np.maximum(1.0, lanes * k.dtype.bytes * 8 / core.vector_bits)
    work = vectors * (rows + _converting(k)) * turns / core.fmas
    step = np.maximum(work, core.fma_latency) + 1.0 / c["unroll"]
    tiles_j = -(-k.column.extent // (vectors * lanes))
    tiles = tiles_j * -(-k.all_rows // rows) * math.prod(a.extent for a in k.outer)
    cycles = tiles * (k.depth * step + 2.0 * rows * vectors + 20.0)
    best = math.log2(max(NEAR, _distance(k, target)))
    off = np.abs(np.log2(np.maximum(1, c["fetch"])) - best) / best  # 1 where nothing is fetched
    ahead = 1.0 if k.lower is not None else 1.0 - off
    rate = FOLLOWED + (FETCHED - FOLLOWED) * ahead
    cycles = cycles + _weight_bytes(k) / rate
    pieces = -(-tiles_j // c["panels"])
    largest = -(-pieces // target.threads) * c["panels"] / tiles_j
    share = np.where(c["order"] == "column", np.minimum(1.0, largest), 1.0)
    cycles = cycles * np.where(c["parallel"] > 0, share, 1.0)
    loose = np.where(c["pack"] == AHEAD, 1.0, 4.0)  # weights that are not one stream
    return np.asarray(core.seconds(cycles * loose))


def _stream(sch: Schedule, k: Contraction) -> LoopRef:
    """Return the innermost serial loop of the reduction."""
    axes = block_node(sch, k.anchor.name).axes
    reduced = {v for a in axes if a.kind is AxisKind.REDUCE for v in free_vars(a.value)}
    known = nest(sch.func).loops
    loops = [x for x in sch.get_loops(k.anchor.name) if x.var in reduced]
    return [x for x in loops if loop_of(known[x.var]).kind is Kind.SERIAL][-1]
