"""Products with few rows or columns: one operand, the *wide* one, is read once, at bandwidth.

Decoding steps multiply a few vectors with large weights. A thread takes a few neighbors of the
wide side, ``near`` of them; the ``lanes`` threads of ``threadIdx.x`` share the depth and combine
their sums by shuffles; ``split`` groups of threads take a stretch of the depth each, and the block
adds their sums, in order, when it computes the epilogue. Where results are too few for the whole
GPU, ``blocks`` of them take a stretch each, and the last one to finish adds theirs, in order. Every
load is as wide as memory allows: along the depth, or along the wide side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .....ir.loop.intrinsics import WARP
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....primitives.products.matmul import Product, product_of
from ....space.analyze import BlockInfo, describe
from ....space.lookup import below, own_loops
from ....space.space import Choice, Choices, Sketch, cheapest
from ..launches.machine import (
    ARRIVAL,
    BARRIER,
    LATENCY,
    SECTOR,
    LaunchShape,
    bursts,
    issue_seconds,
    launch_seconds,
    overlapped,
    resident,
)
from ..launches.threads import BLOCKS, X, Y, Z, fused, power_up, powers
from .matmul import Matmul, MatmulOperand, find_product
from .tiles import PART, BlockDim, make_product, result_by_role

FEW = 16  # rows or columns below which an operand fits into registers
LEAST_WIDE = 32  # rows or columns of the wide side, and terms of a sum, that threads can share
IN_FLIGHT = 4  # loads of a thread that the assembler keeps under way at once
NEAR = 2  # times a run of bytes that neighboring blocks, which read what is next, make it
BUDGET = 128  # registers of a thread for sums and operands


@dataclass(frozen=True, slots=True)
class Skinny:
    """A product whose side ``wide`` (m or n) is long, and the other one shorter than a tile.

    ``turned`` says that the wide operand is contiguous along that side, not along the depth.
    """

    k: Matmul
    wide: str
    turned: bool

    @property
    def few(self) -> str:
        """The role of the short side."""
        return "n" if self.wide == "m" else "m"

    @property
    def operand(self) -> MatmulOperand:
        """The wide operand."""
        return self.k.left if self.wide == "m" else self.k.right

    @property
    def other(self) -> MatmulOperand:
        """The operand with few rows or columns."""
        return self.k.right if self.wide == "m" else self.k.left

    @property
    def vector(self) -> int:
        """The elements of one load of the wide operand."""
        return self.operand.across if self.turned else self.operand.along

    def layout(self, role: str) -> str:
        """Return the order of a register tile of the operand with ``role``."""
        turned = self.turned if role == self.wide else self.other.transposed
        return f"k{role}" if turned else f"{role}k"


def find_skinny(sch: Schedule) -> Skinny | None:
    """Return the heaviest product of a function that has one long and one short side.

    None where the wide operand is not what is in memory, each element once, as in a convolution.
    """
    k = find_product(sch, _fits)
    if k is None:
        return None
    trial = sch.copy()
    for name in k.feeders:
        trial.compute_inline(name)
    block = trial.block(k.anchor)
    found, info = product_of(block), describe(block)
    assert found is not None
    wide = "m" if k.extents["m"] > k.extents["n"] else "n"
    last = found.roles[wide][-1].var
    step = max((abs(a.step(last) or 0) for a in info.inputs if a.step(last)), default=0)
    s = Skinny(k, wide, step == 1)
    terms = k.extents["b"] * k.extents[wide] * k.extents["k"]
    once = s.operand.plain and s.operand.bytes == terms * s.operand.dtype.bytes
    return s if once else None


def _fits(found: Product | None, info: BlockInfo) -> bool:
    if found is None:
        return False
    b, m, n, k = (found.points(r) for r in "bmnk")
    skinny = 0 < min(m, n) < FEW and max(m, n) >= LEAST_WIDE
    return skinny and k >= LEAST_WIDE and 0 < b < 1 << 16


def skinny_sketch(s: Skinny, target: Target) -> Sketch | None:
    """Return the space of a product with few rows or columns; None if no choice is valid."""
    deep = s.vector if not s.turned else 1
    decisions: Mapping[str, tuple[Choice, ...]] = {
        "near": powers(max(1, s.vector // 4), s.vector) if s.turned else (1, 2, 4),
        "deep": (1, 2, 4, 8) if s.turned else (deep,),
        "lanes": powers(2, 32),
        "across": powers(1, 32),
        "split": powers(1, 16),
        "unroll": (1, 2, 4),
        "blocks": powers(1, 8),
    }

    def valid(c: Choices) -> bool:
        return _valid(s, c, target)

    def cost(c: Choices) -> float:
        return skinny_cost(s, c, target)

    default = cheapest(decisions, valid, cost, {})
    if not valid(default):
        return None
    return Sketch(
        name="gpu_skinny@2",
        kind="contraction",
        decisions=decisions,
        default=default,
        apply=lambda sch, c: apply_skinny(s, sch, c),
        valid=valid,
        cost=cost,
    )


def _threads(c: Choices) -> BlockDim:
    return BlockDim(int(c["split"]), int(c["across"]), int(c["lanes"]))


def _tile(s: Skinny, c: Choices) -> Mapping[str, int]:
    """Return the elements of a block's tile along each side, and of a step along the depth."""
    depth = int(c["lanes"]) * int(c["deep"]) * int(c["unroll"])
    few = s.k.extents[s.few]
    return {s.wide: int(c["near"]) * int(c["across"]), s.few: few, "k": depth}


def _registers(s: Skinny, c: Choices) -> int:
    """Estimate the registers of a thread for sums, and for operands in flight."""
    near, deep, few = int(c["near"]), int(c["deep"]), s.k.extents[s.few]
    held = near * deep * s.operand.dtype.bytes + few * deep * s.other.dtype.bytes
    return near * few * max(1, s.k.sums.bytes // 4) + min(int(c["unroll"]), 2) * -(-held // 4)


def _shared(s: Skinny, c: Choices) -> int:
    """Return the bytes of shared memory for the sums of a block."""
    tile = _tile(s, c)
    return int(c["split"]) * tile[s.wide] * tile[s.few] * s.k.sums.bytes


def _valid(s: Skinny, c: Choices, target: Target) -> bool:
    """True if whole warps share the work, none of them idle, and a block fits."""
    blocks, split, lanes = int(c["blocks"]), int(c["split"]), int(c["lanes"])
    threads = split * int(c["across"]) * lanes
    tile, x = _tile(s, c), s.k.extents
    if not 64 <= threads <= 512 or threads % WARP:
        return False
    if blocks > 1 and 1 in (split, tile[s.wide]):
        return False
    if int(c["near"]) > lanes:  # there is a thread for each result of a block's wide side
        return False
    if tile["k"] * split * blocks > power_up(x["k"]) or tile[s.wide] > power_up(x[s.wide]):
        return False
    return _registers(s, c) <= BUDGET and _shared(s, c) <= target.gpu.shared_per_block


def skinny_cost(s: Skinny, c: Choices, target: Target) -> float:
    """Estimate the seconds: memory, instructions, and the latency of a thread's loads."""
    x, tile, threads = s.k.extents, _tile(s, c), _threads(c)
    near, deep, split, few = int(c["near"]), int(c["deep"]), int(c["split"]), x[s.few]
    size = s.operand.dtype.bytes
    tiles, stretches = x["b"] * -(-x[s.wide] // tile[s.wide]), int(c["blocks"])
    blocks, split = tiles * stretches, split * stretches
    steps = -(-x["k"] // (tile["k"] * split))
    padded = tiles * tile[s.wide] * steps * tile["k"] * split / math.prod(x.values()) * few
    run = size * (tile[s.wide] if s.turned else threads.x * deep)
    request = size * (near * max(1, WARP // threads.x) if s.turned else threads.x * deep)
    moved = s.operand.bytes * padded * bursts(NEAR * run) * max(1.0, SECTOR / request)
    each, count = (near, deep) if s.turned else (deep, near)  # elements of a load, and loads
    flying = float(each * size * min(count * int(c["unroll"]), IN_FLIGHT))
    registers = 32 + _registers(s, c)
    shape = LaunchShape(blocks, threads.count, flying, _shared(s, c), registers)
    here = resident(target, shape)
    if not here:
        return math.inf
    along = few if s.other.transposed else deep
    loads = count + few * deep / math.gcd(along, _width(s.other))
    widen = 0 if size >= 4 else near * deep + few * deep
    step = int(c["unroll"]) * (loads + near * deep * few + widen)
    tail = 2.0 * near * few * math.log2(threads.x) + near * few * split
    issue = issue_seconds(target, blocks * threads.count * (steps * step + tail + 40))
    waves = max(1.0, blocks / (here * target.gpu.multiprocessors))
    chain = LATENCY + steps * 0.3 * LATENCY + 2 * BARRIER + split * 20e-9
    total = moved + s.other.bytes + s.k.result.bytes
    first = launch_seconds(target, shape, total, 2.0 * math.prod(x.values()))
    joined = ARRIVAL + LATENCY if stretches > 1 else 0.0
    return overlapped(first, waves * chain, issue) + joined


def apply_skinny(s: Skinny, sch: Schedule, c: Choices) -> None:
    """Schedule a product with few rows or columns as one launch."""
    tile, blocks, split = _tile(s, c), int(c["blocks"]), int(c["split"])
    sizes = {f"tile_{r}": tile[r] for r in "mnk"}
    if blocks > 1:
        sizes |= {"tile_k": tile["k"] * split, "split": blocks}
    parts = make_product(s.k, sch, {**c, **sizes}, (s.layout("m"), s.layout("n")))
    at, thread = _results(s, sch, parts.last, c)
    if parts.total is not None:
        _add(sch, parts.total, thread)
    product = parts.product
    if blocks > 1:
        at, product = _stretches(s, sch, product, at, c)
    axes = len(sch.block(product).axes)
    sch.set_scope(product, 0, "shared")
    sch.compute_at(product, at, False, (1, tile["m"], tile["n"], *(1,) * (axes - 3)))
    step = _sums(s, sch, product, at, c)
    for block, role in ((parts.left, "m"), (parts.right, "n")):
        sch.set_scope(block, 0, "register")
        sch.compute_at(block, step)
        _load(sch, block, step, s.vector if role == s.wide else _width(s.other))


def _add(sch: Schedule, total: str, thread: LoopRef) -> None:
    """Add the parts of a sum in order, in the registers of the thread that needs it."""
    sch.compute_at(total, thread)
    sch.set_scope(total, 0, "register")
    for loop in below(sch, total, thread):
        sch.unroll(loop)


def _stretches(s: Skinny, sch: Schedule, part: str, at: LoopRef, c: Choices) -> tuple[LoopRef, str]:
    """Let blocks take a stretch of the depth each, whose sums go to memory for the last of them.

    Returns the loop over stretches, and the block of the sums of a stretch's groups of threads.
    """
    group, _ = sch.split(sch.get_loops(part)[-1], [int(c["split"]), None])
    product = sch.rfactor(group, 0).name
    store = sch.cache_write(part, 0, "register").name
    tile, axes = _tile(s, c), len(sch.block(store).axes)
    sch.compute_at(store, at, False, (*(1,) * (axes - 2), tile["m"], tile["n"]))
    stretch = below(sch, store, at)[0]
    sch.bind(stretch, PART)
    own, by = own_loops(sch, store, stretch), [a.var for a in sch.block(store).axes][-2:]
    loops = dict(zip("mn", (own.get(v) for v in by), strict=True))
    thread = _spread(sch, loops[s.wide], loops[s.few], c)
    _add(sch, part, thread)
    return stretch, product


def _width(x: MatmulOperand) -> int:
    return max(x.across, x.along)


def _results(s: Skinny, sch: Schedule, last: str, c: Choices) -> tuple[LoopRef, LoopRef]:
    """Divide the results among blocks, and those of a block among its threads.

    Returns the loop over blocks and the innermost one of a thread.
    """
    by = result_by_role(s.k, sch, last)
    wide, few = by[s.wide], by[s.few]
    assert wide is not None
    outer, tile = sch.split(wide, [None, int(c["across"]) * int(c["near"])])
    batch = [x for x in (by["b"],) if x is not None]
    sch.reorder(*batch, outer, tile, *([] if few is None else [few]))
    at = fused(sch, [*batch, outer])
    assert at is not None
    sch.bind(at, BLOCKS)
    return at, _spread(sch, tile, few, c)


def _spread(sch: Schedule, wide: LoopRef | None, few: LoopRef | None, c: Choices) -> LoopRef:
    """Give each result of a tile to a thread, or to one of each group; return the inmost loop."""
    assert wide is not None
    own = [*sch.split(wide, [int(c["across"]), None])]
    if few is not None:
        own += sch.split(few, [math.gcd(sch.extent(few), int(c["split"])), None])
        sch.reorder(*own)
    for loop, index in zip(own, (Y, X, Z), strict=False):
        sch.bind(loop, index)
    if few is not None:
        sch.unroll(own[-1])
    return own[-1]


def _sums(s: Skinny, sch: Schedule, product: str, at: LoopRef, c: Choices) -> LoopRef:
    """Divide the sums of a tile among the threads; return the loop around a step's loads."""
    own = own_loops(sch, product, at)
    axes = [a.var for a in sch.block(product).axes]
    _, m, n, *parts, k = (own.get(v) for v in axes)
    wide, few = (m, n) if s.wide == "m" else (n, m)
    assert k is not None
    tile = [] if wide is None else sch.split(wide, [int(c["across"]), None])  # none of a single one
    steps, again, lane, deep = sch.split(
        k, [None, int(c["unroll"]), int(c["lanes"]), int(c["deep"])]
    )
    split = [x for x in parts if x is not None]
    inner = [x for x in (deep, *tile[1:], few) if x is not None]
    sch.reorder(*split, *tile[:1], lane, steps, again, *inner)
    for x, index in (*((x, Y) for x in tile[:1]), (lane, X), *((x, Z) for x in split)):
        sch.bind(x, index)
    for x in (again, *inner):
        sch.unroll(x)
    return again


def _load(sch: Schedule, block: str, at: LoopRef, vector: int) -> None:
    """Load a thread's part of an operand in vectors along its last dimension."""
    loops = below(sch, block, at)
    width = math.gcd(vector, sch.extent(loops[-1])) if loops else 1
    if width > 1:
        loops[-1], lane = sch.split(loops[-1], [None, width])
        sch.vectorize(lane)
    for loop in loops:
        sch.unroll(loop)
