"""The innermost bodies of a scheduled nest: their vector instructions and the cycles they take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.cores import Cache, CpuCore
from ...ir.loop.nodes import Kind
from ...ir.target import Target
from .nest import NestAccess, NestBlock, trip_count

MISS = 12.0  # cycles that a line costs which its set could not hold
FAR = ((2048, 5.5), (512, 2.0))  # bytes between rows, and cycles that a line of one is late
CHECK = 2.0  # cycles of an iteration's counter, compare and addresses


@dataclass(frozen=True, slots=True)
class Body:
    """The instructions, on vector registers, of one run of a block's body.

    ``fmas`` are multiply-adds or other arithmetic, ``scattered`` elements that are accessed one by
    one. ``tile`` are accumulators that stay in registers, ``operands`` other live registers.
    ``conflict`` is the share of a load's lines that their cache set cannot hold.
    """

    fmas: float
    loads: float
    stores: float
    scattered: float
    tile: float
    operands: float
    conflict: float
    lines: float

    @property
    def instructions(self) -> float:
        """The instructions of a body."""
        return self.fmas + self.loads + self.stores + self.scattered

    def cycles(self, core: CpuCore, bits: int, product: bool) -> float:
        """Return the cycles of a body: of ports, of latency, of lines that are not held."""
        turns = core.turns(bits)
        loads = (self.loads * turns + self.scattered) / core.loads
        busy = max(
            self.fmas * turns / core.fmas,
            loads,
            self.stores * turns / core.stores,
            self.instructions / core.issue,
        )
        chains = max(1.0, self.tile)
        waiting = core.fma_latency * self.fmas / chains if product else 0.0
        return max(busy, waiting) + self.conflict * self.lines * MISS + CHECK / core.issue


def body_of(block: NestBlock, target: Target) -> Body:
    """Return the instructions of a block's body."""
    lanes, copies = lanes_of(block), math.prod(trip_count(x) for x in block.body)
    copies //= max(1, lanes)
    item = max((a.buffer.dtype.bytes for a in block.accesses), default=4)
    registers = max(1, math.ceil(lanes * item * 8 / target.vector_bits))
    points = max(1, block.info.points)
    work = block.info.flops / points
    fused = work / 2 if block.info.reduce and work == 2 else work
    loads = stores = scattered = tile = 0.0
    read: list[float] = []
    conflict, lines = 0.0, 0.0
    for a in block.accesses:
        count, single = _instructions(a, block, registers, lanes)
        if a.held:
            tile = max(tile, count)
        elif single:
            scattered += single
        elif a.stored:
            stores += count
        else:
            loads += count
            read.append(count)
            lost, many = _conflict(a, block, target.core.l1)
            if lost * many > conflict * lines:
                conflict, lines = lost, many
    return Body(
        max(1.0, fused) * copies * registers,
        loads,
        stores,
        scattered,
        tile,
        sum(sorted(read)[:-1]) + 1 + block.constants,  # the largest is an operand in memory
        conflict,
        lines,
    )


def jumps(block: NestBlock, cache: Cache) -> float:
    """Return the cycles for which a body waits for rows that are far apart and not in L1.

    Distant rows defeat the prefetcher and are on separate pages. Rows that stay cost nothing after
    their first use.
    """
    total = 0.0
    for a in block.accesses:
        moving = [n for n, x in enumerate(block.outer) if a.moves(x)]
        if a.held or not moving:
            continue
        loop = block.outer[moving[-1]]
        jump = abs(a.steps.get(loop.var, 0)) * a.buffer.dtype.bytes
        cycles = next((c for least, c in FAR if jump >= least), 0.0)
        rest = frozenset(x.var for x in block.loops[moving[-1] :])
        stays = a.footprint(rest, cache.line) <= cache.size / 2
        if not cycles or (stays and cache.held(trip_count(loop), jump) == 1.0):
            continue
        body = frozenset(x.var for x in block.body)
        total += cycles * a.footprint(body, cache.line) / cache.line
    return total


def lanes_of(block: NestBlock) -> int:
    """Return the lanes of a block's vector loops; 1 without one."""
    return math.prod(trip_count(x) for x in block.body if x.kind is Kind.VECTOR)


def _step(a: NestAccess, block: NestBlock) -> int:
    """Return the elements from one lane to the next; 0 if all lanes access the same one."""
    vector = next((x for x in reversed(block.body) if x.kind is Kind.VECTOR), None)
    return a.steps.get(vector.var, 0) if vector is not None else 0


def _instructions(
    a: NestAccess, block: NestBlock, registers: int, lanes: int
) -> tuple[float, float]:
    """Return the vector instructions of an access in a body, and those of single elements."""
    copies = math.prod(trip_count(x) for x in block.body if x.kind is Kind.UNROLLED and a.moves(x))
    step = _step(a, block)
    if step not in (0, 1):
        return 0.0, float(copies * lanes)
    return float(copies * (registers if step else 1)), 0.0


def _conflict(a: NestAccess, block: NestBlock, cache: Cache) -> tuple[float, float]:
    """Return the share of lines that an unrolled loop's accesses evict each other, and the lines.

    They do where the loops around read on in the same lines, in the next iterations.
    """
    worst = 0.0, 0.0
    size = a.buffer.dtype.bytes
    inside = [x for x in block.outer[-1:] if 0 < a.steps.get(x.var, 0) * size < cache.line]
    for loop in block.body:
        stride = a.steps.get(loop.var, 0) * size
        if loop.kind is Kind.UNROLLED and inside and stride >= cache.line:
            count = trip_count(loop)
            lost = 1.0 - cache.held(count, stride)
            worst = max(worst, (lost, float(count)))
    return worst
