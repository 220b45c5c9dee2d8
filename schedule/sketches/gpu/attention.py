"""The sketches of attention in one launch: decisions, which are valid, and an analytic cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ....ir.loop.nodes import Func
from ....ir.target import Target
from ...space.analyze import blocks_of
from ...space.attention import Attention, find_attention
from ...space.space import Choice, Choices, Sketch, cheapest
from .attention_simt import LANES, apply_attention
from .machine import BARRIER, LATENCY, LAUNCH, LaunchShape, resident
from .threads import power_up, powers

SOFTMAX = 24.0  # instructions of a score between the products
FIXED = 40  # registers for addresses and values of rows
PARTS = 2  # loads of a part that wait for memory: keys and values


def attention_sketches(func: Func, target: Target) -> tuple[Sketch, ...]:
    """Return the sketches of an attention, the cheapest first; () for any other function."""
    k = find_attention(func, blocks_of(func))
    if k is None or k.exponential is None:
        return ()
    decisions = _decisions(k)

    def valid(c: Choices) -> bool:
        return simt_valid(k, c, target)

    def cost(c: Choices) -> float:
        return simt_cost(k, c, target)

    default = cheapest(decisions, valid, cost, {})
    if not valid(default):
        return ()
    sketch = Sketch(
        name="gpu_attention@1",
        kind="attention",
        decisions=decisions,
        default=default,
        apply=lambda sch, c: apply_attention(k, sch, c, target),
        valid=valid,
        cost=cost,
    )
    return (sketch,)


def _decisions(k: Attention) -> Mapping[str, tuple[Choice, ...]]:
    rows = min(8, power_up(k.queries))
    keys = min(128, max(LANES, power_up(k.length)))
    return {"warps": powers(1, 8), "rows": powers(1, rows), "keys": powers(LANES, keys)}


def shared_bytes(k: Attention, c: Choices) -> int:
    """Return the bytes of shared memory of a block: queries, exponentials, keys, values."""
    rows, keys = int(c["warps"]) * int(c["rows"]), int(c["keys"])
    bank = 1 if k.by_key else 0
    size = k.keys.buffer.dtype.bytes
    return rows * (k.depth * size + keys * 4) + keys * (k.depth + bank * 32 + k.width) * size


def simt_registers(k: Attention, c: Choices) -> int:
    """Estimate the registers of a thread: scores, results, and a few values of each row."""
    rows, keys = int(c["rows"]), int(c["keys"])
    return rows * (2 * keys // LANES + math.ceil(k.width / LANES) + 4) + FIXED


def _launch(k: Attention, c: Choices) -> LaunchShape:
    rows = int(c["warps"]) * int(c["rows"])
    blocks = k.heads * math.ceil(k.queries / rows)
    return LaunchShape(
        blocks, int(c["warps"]) * LANES, 0.0, shared_bytes(k, c), simt_registers(k, c)
    )


def simt_valid(k: Attention, c: Choices, target: Target) -> bool:
    """True if a block fits on a multiprocessor, and most of its rows are queries."""
    rows = int(c["warps"]) * int(c["rows"])
    if rows > power_up(k.queries) and (c["warps"] != 1 or c["rows"] != 1):
        return False
    fits = simt_registers(k, c) <= target.gpu.registers_per_thread
    return fits and resident(target, _launch(k, c)) > 0


def simt_cost(k: Attention, c: Choices, target: Target) -> float:
    """Estimate the seconds: instructions of the busiest multiprocessor, and waiting for copies."""
    gpu, shape = target.gpu, _launch(k, c)
    here = resident(target, shape)
    if not here:
        return math.inf
    most = math.ceil(shape.blocks / gpu.multiprocessors)
    at_once = min(most, here)
    parts = math.ceil(k.length / int(c["keys"])) * (1.0 if k.shown is None else k.shown)
    rows, keys = int(c["rows"]), int(c["keys"])
    lanes, columns = keys // LANES, math.ceil(k.width / LANES)
    score = k.depth * (rows * lanes + rows / 4 + lanes)
    value = keys * (rows * columns + rows / 4 + columns)
    warp = score + value + rows * lanes * SOFTMAX + rows * (columns + 24.0)
    copies = keys * (k.depth + k.width) / (LANES * 4) * 2 / int(c["warps"])
    issued = most * int(c["warps"]) * parts * (warp + copies)
    busy = min(1.0, at_once * int(c["warps"]) / 16.0)
    work = issued / (gpu.f32_flops / gpu.multiprocessors / (2 * LANES)) / busy
    waiting = math.ceil(most / at_once) * parts * (PARTS * LATENCY + 4 * BARRIER)
    return LAUNCH + LATENCY + math.hypot(work, waiting)
