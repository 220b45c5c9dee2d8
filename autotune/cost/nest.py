"""Features derived from a scheduled nest: what its innermost bodies do, and what its loops move.

Nothing here knows a sketch: the loops around each block, their kinds and the strides of its
accesses give the instructions of a body, the registers that stay live, the lines that share a cache
set, the bytes from each level of cache, and how evenly threads share the work. The estimate puts
them against the rates of the processor's row (after Williams et al., Roofline, CACM 2009, with a
ceiling for each level of cache).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TypeAlias

from ...ir.cores import Cache, CpuCore
from ...ir.loop.affine import bounds, linear
from ...ir.loop.nodes import (
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Kind,
    Load,
    Scope,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.visit import children, exprs, free_vars, walk, walk_expr
from ...ir.target import Target
from ...schedule.cursor import extent_of
from ...schedule.space.analyze import BlockInfo, describe

_Element: TypeAlias = tuple[Buffer, tuple[Expr, ...]]

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
MISS = 12.0  # cycles that a line costs which its set could not hold
FAR = ((2048, 5.5), (512, 2.0))  # bytes between rows, and cycles that a line of one is late
CHECK = 2.0  # cycles of an iteration's counter, compare and addresses
CLAIM = 50.0  # cycles for which a thread claims a piece of a parallel loop


@dataclass(frozen=True, slots=True)
class _Term:
    """A part of an index: ``step`` times a value of ``count`` different ones, made of ``loops``."""

    loops: frozenset[Var]
    step: int
    count: int


@dataclass(frozen=True, slots=True)
class _Access:
    """A load or store in a nest: the terms of each dimension, and its steps in elements by loop."""

    buffer: Buffer
    stored: bool
    terms: tuple[tuple[_Term, ...], ...]
    steps: Mapping[Var, int]

    @property
    def held(self) -> bool:
        """True if the buffer is a register tile."""
        return self.buffer.scope is Scope.REGISTER

    def moves(self, loop: For) -> bool:
        """True if iterations of a loop access different elements."""
        return any(loop.var in t.loops for dim in self.terms for t in dim)

    def footprint(self, inner: frozenset[Var], line: int) -> float:
        """Return the bytes of the lines that are accessed while the ``inner`` loops run."""
        spans = [
            _elements(dim, inner, n) for dim, n in zip(self.terms, self.buffer.shape, strict=True)
        ]
        if not spans:
            return float(line)
        row = max(spans[-1] * self.buffer.dtype.bytes, 1.0)
        whole = spans[-1] >= self.buffer.shape[-1]
        last = row if whole else math.ceil(row / line) * line
        return math.prod(spans[:-1]) * last


def _elements(dim: Sequence[_Term], inner: frozenset[Var], extent: int) -> float:
    span, distinct = 1, 1
    for t in dim:
        if t.loops <= inner:
            span += abs(t.step) * (t.count - 1)
            distinct *= t.count
    return float(min(span, distinct, extent))


@dataclass(frozen=True, slots=True)
class NestBlock:
    """A block in a scheduled nest, with the loops around it, the outermost first.

    ``shared`` has, for each intermediate buffer, how many of the loops surround all of its uses.
    """

    info: BlockInfo
    loops: tuple[For, ...]
    accesses: tuple[_Access, ...]
    constants: int
    shared: Mapping[Buffer, int] = field(default_factory=dict)

    @property
    def body(self) -> tuple[For, ...]:
        """The innermost loops that become straight code: unrolled ones and vectors."""
        kinds = (Kind.UNROLLED, Kind.VECTOR)
        return tuple(takewhile(lambda x: x.kind in kinds, reversed(self.loops)))[::-1]

    @property
    def outer(self) -> tuple[For, ...]:
        """The loops around the body."""
        return self.loops[: len(self.loops) - len(self.body)]

    @property
    def trips(self) -> float:
        """How often the body runs."""
        return float(math.prod(trip_count(x) for x in self.outer))


def trip_count(loop: For) -> int:
    """Return a loop's extent; the most that it can be if it is no constant."""
    known = extent_of(loop)
    return max(1, bounds(loop.extent, {})[1] if known is None else known) if known != 0 else 1


def nest_blocks(func: Func) -> tuple[NestBlock, ...]:
    """Return every block of a scheduled function, in program order."""
    found = tuple(_blocks(func.body, ()))
    return tuple(replace(b, shared=_shared(b, found, func)) for b in found)


def _blocks(s: Stmt, loops: tuple[For, ...]) -> Iterator[NestBlock]:
    if isinstance(s, Block):
        yield _nest_block(s, loops)
        return
    inside = (*loops, s) if isinstance(s, For) else loops
    for child in children(s):
        yield from _blocks(child, inside)


def _nest_block(block: Block, loops: tuple[For, ...]) -> NestBlock:
    ranges = {x.var: (0, trip_count(x) - 1) for x in loops}
    axes = {a.var: _terms(a.value, ranges) for a in block.axes}
    loads, stores = _elements_of(block)
    accesses = [_access(buffer, index, axes, False) for buffer, index in loads]
    accesses += [_access(buffer, index, axes, True) for buffer, index in stores]
    return NestBlock(describe(block), loops, tuple(accesses), _constants(block))


def _elements_of(block: Block) -> tuple[Iterable[_Element], Iterable[_Element]]:
    """Return the elements that a block's body loads and stores, each once."""
    loads: dict[_Element, None] = {}
    stores: dict[_Element, None] = {}
    for s in walk(block.body):
        if isinstance(s, Store):
            stores[s.buffer, s.index] = None
        for x in exprs(s):
            loads |= {(e.buffer, e.index): None for e in walk_expr(x) if isinstance(e, Load)}
    return loads, stores


def _shared(block: NestBlock, blocks: Sequence[NestBlock], func: Func) -> Mapping[Buffer, int]:
    """Return the number of loops around a block that surround all uses of each intermediate."""
    found = {}
    for buffer in {a.buffer for a in block.accesses} & set(func.allocs):
        users = [b.loops for b in blocks if any(a.buffer is buffer for a in b.accesses)]
        same = takewhile(lambda xs: len({id(x) for x in xs}) == 1, zip(*users, strict=False))
        found[buffer] = sum(1 for _ in same)
    return found


def _terms(value: Expr, ranges: Mapping[Var, tuple[int, int]]) -> tuple[_Term, ...]:
    found = []
    for atom, k in linear(value).terms.items():
        low, high = bounds(atom, ranges)
        found.append(_Term(free_vars(atom), k, max(1, min(high - low + 1, 1 << 40))))
    return tuple(found)


def _access(
    buffer: Buffer, index: Sequence[Expr], axes: Mapping[Var, tuple[_Term, ...]], stored: bool
) -> _Access:
    dims: list[tuple[_Term, ...]] = []
    steps: dict[Var, int] = {}
    size = math.prod(buffer.shape)
    for e, extent in zip(index, buffer.shape, strict=True):
        size //= max(1, extent)
        # What is not linear, as a clipped index of padding, is taken to move with its axes.
        dim = [
            _Term(t.loops, t.step * k, t.count)
            for atom, k in linear(e).terms.items()
            for v in free_vars(atom)
            for t in axes.get(v, ())
        ]
        dims.append(tuple(dim))
        for t in dim:
            for v in t.loops:
                steps[v] = steps.get(v, 0) + t.step * size
    return _Access(buffer, stored, tuple(dims), steps)


def _constants(block: Block) -> int:
    """Return the number of different float constants of a block, which registers hold."""
    found = {
        e.value
        for s in walk(block.body)
        for x in exprs(s)
        for e in walk_expr(x)
        if isinstance(e, Const) and e.dtype.is_float
    }
    return len(found)


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
    lanes, copies = _lanes(block), math.prod(trip_count(x) for x in block.body)
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


def _jumps(block: NestBlock, cache: Cache) -> float:
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


def _lanes(block: NestBlock) -> int:
    return math.prod(trip_count(x) for x in block.body if x.kind is Kind.VECTOR)


def _step(a: _Access, block: NestBlock) -> int:
    """Return the elements from one lane to the next; 0 if all lanes access the same one."""
    vector = next((x for x in reversed(block.body) if x.kind is Kind.VECTOR), None)
    return a.steps.get(vector.var, 0) if vector is not None else 0


def _instructions(a: _Access, block: NestBlock, registers: int, lanes: int) -> tuple[float, float]:
    """Return the vector instructions of an access in a body, and those of single elements."""
    copies = math.prod(trip_count(x) for x in block.body if x.kind is Kind.UNROLLED and a.moves(x))
    step = _step(a, block)
    if step not in (0, 1):
        return 0.0, float(copies * lanes)
    return float(copies * (registers if step else 1)), 0.0


def _conflict(a: _Access, block: NestBlock, cache: Cache) -> tuple[float, float]:
    """Return the share of lines that an unrolled loop's accesses evict each other, and the lines.

    They do where the loops around read on in the same lines, in the next iterations.
    """
    worst = 0.0, 0.0
    inside = [x for x in block.outer[-1:] if 0 < a.steps.get(x.var, 0) * a.buffer.dtype.bytes < 64]
    for loop in block.body:
        stride = a.steps.get(loop.var, 0) * a.buffer.dtype.bytes
        if loop.kind is Kind.UNROLLED and inside and stride >= cache.line:
            count = trip_count(loop)
            lost = 1.0 - cache.held(count, stride)
            worst = max(worst, (lost, float(count)))
    return worst


def _traffic(block: NestBlock, cache: Cache, threads: int) -> float:
    """Return the bytes that a cache does not hold while the block's loops run.

    The outermost loops whose working set fits run from the cache; what they access comes anew in
    every iteration of the loops around them. One such loop that does not move an access keeps it.
    """
    memory = [a for a in block.accesses if not a.held]
    room = FILLED * cache.size * (threads if cache.size > (8 << 20) else 1)
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


def _passed_on(a: _Access, block: NestBlock, cache: Cache) -> bool:
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
    vectors = sum(b.info.flops for b in blocks if _lanes(b) > 1) / flops
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
    cycles += _jumps(block, core.l1)
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
    return max(busy, wait) + 0.3 * min(busy, wait), wait / max(busy + wait, 1e-12)


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
                cycles = target.core.fork + CLAIM * trip_count(loop) / target.threads
                seen[loop.var] = times * cycles
                break
    return target.core.seconds(sum(seen.values()))


def _log(x: float) -> float:
    return math.log2(max(x, 2.0**-40))
