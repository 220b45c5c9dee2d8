"""Features derived from a scheduled nest: what its innermost bodies do, and what its loops move.

The instructions of a body, the registers that stay live, the lines that share a cache set, the
bytes from each level of cache, and how evenly threads share the work. The estimate puts them
against the rates of the processor's row (after Williams et al., Roofline, CACM 2009, with a ceiling
for each level of cache).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ...ir.cores import Cache
from ...ir.loop.nodes import Func, Kind, Var
from ...ir.target import Target
from .bodies import Body, body_of, jumps, lanes_of
from .nest import NestAccess, NestBlock, nest_blocks, trip_count

FEATURES = (
    "body_fmas",
    "body_loads_per_fma",
    "body_stores_per_fma",
    "body_scattered",
    "body_registers",
    "body_chains",
    "nest_code",
    "nest_vectors",
    "set_conflict",
    "l1_bytes_per_flop",
    "l2_bytes_per_flop",
    "l3_bytes_per_flop",
    "parallel_trips",
    "imbalance_of_threads",
    "guarded",
    "nest_bound",
    "nest_estimate",
)
FILLED = 0.75  # of a cache that a working set may fill before it evicts itself
SHARED = 8 << 20  # bytes above which a cache is taken to be that of all threads
EXPOSED = 0.3  # of the shorter of computing and waiting that the longer one does not hide


def _traffic(block: NestBlock, cache: Cache, threads: int) -> float:
    """Return the bytes that a cache does not hold while the block's loops run.

    The outermost loops whose working set fits run from the cache; what they access comes anew in
    every iteration of the loops around them. One such loop that does not move an access keeps it.
    """
    memory = [a for a in block.accesses if not a.held]
    room = FILLED * cache.size * (threads if cache.size > SHARED else 1)
    depth = len(block.loops)
    inner: frozenset[Var] = frozenset()
    while depth:
        more = inner | {block.loops[depth - 1].var}
        if sum(a.footprint(more, cache.line) for a in memory) > room:
            break
        inner, depth = more, depth - 1
    outer = block.loops[:depth]
    total = 0.0
    for a in memory:
        if _passed_on(a, block, cache):
            continue
        times = math.prod(trip_count(x) for x in outer[:-1])
        size = a.footprint(inner, cache.line)
        if outer and (a.moves(outer[-1]) or size > room / 2):
            times *= trip_count(outer[-1])
        total += times * size
    return total


def _passed_on(a: NestAccess, block: NestBlock, cache: Cache) -> bool:
    """True if an intermediate stays in the cache from where it is written to where it is read."""
    depth = block.shared.get(a.buffer, 0)
    inner = frozenset(x.var for x in block.loops[depth:])
    return depth > 0 and a.footprint(inner, cache.line) <= FILLED * cache.size / 2


@dataclass(frozen=True, slots=True)
class NestProfile:
    """A scheduled function as a processor sees it; ``values`` are those of ``FEATURES``."""

    values: tuple[float, ...]
    seconds: float


def profile(func: Func, target: Target) -> NestProfile:
    """Return the features of a scheduled function, and an estimate of its seconds."""
    blocks = nest_blocks(func)
    bodies = [body_of(b, target) for b in blocks]
    if not blocks:
        return NestProfile((math.nan,) * len(FEATURES), math.nan)
    parts = [_seconds(b, x, target) for b, x in zip(blocks, bodies, strict=True)]
    seconds = sum(s for s, _ in parts) + _forks(blocks, target)
    hot = max(range(len(blocks)), key=lambda n: parts[n][0])
    block, body = blocks[hot], bodies[hot]
    flops = max(1.0, sum(b.info.flops for b in blocks))
    caches = (target.core.l1, target.core.l2, target.core.l3)
    moved = [sum(_traffic(b, c, target.threads) for b in blocks) for c in caches]
    trips, imbalance = _sharing(block, target)
    beside = max((b.constants for b in blocks if b.loops[:1] == block.loops[:1]), default=0)
    live = body.tile + body.operands + beside
    vectors = sum(b.info.flops for b in blocks if lanes_of(b) > 1) / flops
    guarded = sum(b.info.flops for b in blocks if b.info.block.predicate is not None) / flops
    values = (
        _log(body.fmas),
        body.loads / body.fmas,
        body.stores / body.fmas,
        body.scattered / body.fmas,
        live / target.registers,
        min(4.0, body.tile / target.core.chains(target.vector_bits)),
        _log(sum(x.instructions for x in bodies) / target.core.decoded),
        vectors,
        body.conflict,
        *(_log(x / flops) for x in moved),
        _log(trips),
        imbalance,
        guarded,
        parts[hot][1],
        _log(seconds),
    )
    return NestProfile(values, seconds)


def _seconds(block: NestBlock, body: Body, target: Target) -> tuple[float, float]:
    """Return the seconds of a block, and how far its loops are bound by bytes, in [0, 1]."""
    core = target.core
    trips, imbalance = _sharing(block, target)
    threads = max(1.0, target.threads / imbalance) if trips > 1 else 1.0
    product = any(a.held for a in block.accesses) and bool(block.info.reduce)
    spilled = max(0.0, body.tile + body.operands - target.registers)
    cycles = body.cycles(core, target.vector_bits, product) + 2 * spilled / core.loads
    cycles += jumps(block, core.l1)
    busy = core.seconds(block.trips * cycles) / threads
    bytes_from = [_traffic(block, c, target.threads) for c in (core.l1, core.l2, core.l3)]
    rates = (core.l2.rate * core.clock * threads, core.l3.rate * core.clock * threads)
    waits = [b / r for b, r in zip(bytes_from, rates, strict=False)]
    size = sum(
        a.footprint(frozenset(x.var for x in block.loops), core.l1.line) for a in block.accesses
    )
    if size > core.l3.size:
        copying = any(a.stored and not a.held for a in block.accesses)
        waits.append(bytes_from[2] / core.bandwidth(int(threads), copying))
    wait = max(waits)
    return max(busy, wait) + EXPOSED * min(busy, wait), wait / max(busy + wait, 1e-12)


def _sharing(block: NestBlock, target: Target) -> tuple[float, float]:
    """Return the trips of the parallel loop around a block, and the slowest thread's share of them.

    That is relative to an even share: 1 is perfect, the number of threads means none is shared.
    """
    loop = next((x for x in block.loops if x.kind is Kind.PARALLEL), None)
    if loop is None:
        return 1.0, float(max(1, target.threads))
    trips = trip_count(loop)
    return float(trips), math.ceil(trips / target.threads) * target.threads / trips


def _forks(blocks: Iterable[NestBlock], target: Target) -> float:
    """Return the seconds for starting the parallel loops and claiming their pieces."""
    seen: dict[Var, float] = {}
    for b in blocks:
        for n, loop in enumerate(b.loops):
            if loop.kind is Kind.PARALLEL and target.threads > 1:
                times = math.prod(trip_count(x) for x in b.loops[:n])
                cycles = target.core.fork + target.core.claim * trip_count(loop) / target.threads
                seen[loop.var] = times * cycles
                break
    return target.core.seconds(sum(seen.values()))


def _log(x: float) -> float:
    return math.log2(max(x, 2.0**-40))
