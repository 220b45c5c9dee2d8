"""The sketch of attention with few queries: one pass over keys and values as they lie in memory.

Memory delivers them, so what counts is that they are read in the order in which they lie there: few
keys at a time and whole rows of values. Where the rows of other heads are in between, nothing in
the hardware follows, and they are prefetched.
"""

from __future__ import annotations

import math

from .....ir.target import Target
from ....space.attention import Attention, find_attention
from ....space.space import Choice, Choices, Sketch, cheapest
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import may_share_flops
from .nest import apply_attention
from .sketch import shown_share

LARGEST_PART = 1024  # keys that are taken at a time
SMALLEST_PART = 64
FAR = 8192
FETCHES = (0, 256, 2048, 4096, FAR)  # bytes that keys and values are prefetched ahead
SUM_CYCLES = 4.0  # of the sum across the lanes of one vector
IN_ORDER = 512  # bytes of keys that may be read in turns as fast as one after the other
DISORDER = 0.3  # more time for each doubling beyond, and for each halving of rows of values


@CPU.row(4)
def match_few(work: FuncInfo, target: Target) -> Sketch | None:
    """Match an attention whose keys are read as they lie."""
    k = find_attention(work.func, work.blocks)
    return None if k is None or not k.by_key else few_sketch(k, target)


def few_sketch(k: Attention, target: Target) -> Sketch:
    """Return the space of an attention of few queries."""
    decisions = _decisions(k, target)

    def valid(c: Choices) -> bool:
        return few_valid(k, c, target)

    def cost(c: Choices) -> float:
        return few_cost(k, c, target)

    fetch = 0 if _follow(k) else FAR
    fixed: dict[str, Choice] = {"accumulators": 2, "unroll": 2, "fetch": fetch}
    return Sketch(
        name="attention_few@1",
        kind="attention",
        decisions=decisions,
        default=cheapest(decisions, valid, cost, fixed),
        apply=lambda sch, c: apply_attention(k, sch, {**c, "tile": k.queries, "pack": 0}, target),
        valid=valid,
        cost=cost,
    )


def _decisions(k: Attention, target: Target) -> dict[str, tuple[Choice, ...]]:
    lanes = target.lanes(k.dtype)
    parts = [p for p in range(lanes, LARGEST_PART + 1, lanes) if k.length % p == 0]
    parts = [
        p
        for p in parts
        if 2 * p <= k.length and p >= SMALLEST_PART and k.exponential and k.queries > 1
    ]
    rows = tuple(r for r in range(1, k.queries + 1) if k.queries % r == 0 or r == 4)
    shared = may_share_flops(k.scores.flops + k.values.flops, target)
    return {
        "part": (0, *parts),
        "rows": rows,
        "keys": (1, 2, 4, 8),
        "value_rows": rows,
        "value_vectors": (1, 2, 4, 8),
        "unroll": (1, 2, 4),
        "accumulators": (1, 2, 4),
        "fetch": FETCHES,
        "parallel": (1, 0) if shared else (0,),
    }


def few_valid(k: Attention, c: Choices, target: Target) -> bool:
    """True if both register tiles fit."""
    if k.queries % int(c["rows"]) or k.queries % int(c["value_rows"]):
        return False
    rows, keys = int(c["rows"]), int(c["keys"])
    few, vectors = int(c["value_rows"]), int(c["value_vectors"])
    if (vectors - 1) * target.lanes(k.dtype) >= k.width or keys > k.length:
        return False
    return max(rows * keys + rows + keys, few * vectors + vectors + 1) <= target.registers - 2


def few_cost(k: Attention, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run."""
    core, lanes = target.core, target.lanes(k.dtype)
    scores = k.heads * k.queries * k.length
    rows, keys = int(c["rows"]), int(c["keys"])
    steps = math.ceil(k.depth / lanes)
    tile = steps * max(rows * keys / 2, (rows + keys) / 2) + SUM_CYCLES * rows * keys
    cycles = scores / (rows * keys) * (tile + 4.0)
    few, vectors = int(c["value_rows"]), int(c["value_vectors"])
    step = max(few * vectors / 2, (few + vectors) / 2, 4.0) + 0.5 / int(c["unroll"])
    columns = math.ceil(k.width / (vectors * lanes))
    cycles += k.heads * k.queries / few * columns * k.length * step
    parts = k.length / int(c["part"]) if c["part"] else 1
    cycles += k.heads * parts * (200.0 + k.queries * 60.0)
    if not c["part"] and k.queries * k.length * 8 > target.l1 / 2:
        cycles += scores * 16 / core.l2.rate
    if _follow(k):
        cycles += _streaming(k, keys, columns) * core.clock / core.read
    cycles *= shown_share(k, k.queries, int(c["part"]))
    if target.threads == 1 or not c["parallel"]:
        return core.seconds(cycles)
    share = math.ceil(k.heads / target.threads) / k.heads
    return core.seconds(cycles * share + core.sharing)


def _follow(k: Attention) -> bool:
    """True if the terms of a key follow those of the key before."""
    return k.keys.stride(k.key_axis) == k.depth


def _streaming(k: Attention, keys: int, pieces: int) -> float:
    """Return the bytes of keys and values, more if they are not read in order.

    So many keys are read in turns, and rows of values in so many pieces.
    """
    row = k.depth * k.keys.buffer.dtype.bytes
    turns = 1.0 + DISORDER * math.log2(max(1.0, keys * row / IN_ORDER))
    width = k.width * k.value_operand.buffer.dtype.bytes
    return k.heads * k.length * (row * turns + width * (1.0 + DISORDER * math.log2(pieces)))
