"""The sketches of matrix products on a GPU: decisions, validity, cost.

The cost of a launch combines the arithmetic of the busiest multiprocessor, the traffic of shared
memory, L2 and memory, and the latency of copies that did not start early enough. They overlap, so
the largest dominates. The launch overhead is added, and for a split depth the writing and summing
of the parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .....ir.loop.intrinsics import WARP
from .....ir.target import Target
from ....language.schedule import Schedule
from ....space.space import Choice, Choices, Sketch, cheapest
from ..launches.machine import (
    ARRIVAL,
    BARRIER,
    LATENCY,
    LAUNCH,
    REACHED,
    LaunchShape,
    memory_seconds,
    resident,
)
from ..launches.threads import APART, CLUSTERED, LAST, clusters_fit, power_up, powers, ways_to_join
from .last_wave import LastWave, divide, find_last_wave, waves
from .matmul import Matmul, MatmulOperand
from .mma import BANK_OFFSET, Core, apply_mma, find_core, is_slow, sides_of
from .simt import BANK_OFFSET as SIMT_OFFSET
from .simt import LAYOUTS, apply_simt, threads_of
from .tiles import BlockDim, can_copy_ahead, copy_width, even_threads, keeps_order

L2_BYTES = 48.0  # of L2 bandwidth per multiprocessor and cycle
SHARED_BYTES = 128.0  # of shared memory bandwidth per cycle
BUSY = {
    "mma": 8.0,
    "simt": 16.0,
    "wgmma": 8.0,
    "tcgen05": 4.0,
}  # warps of a multiprocessor that hide each other's latency
FIXED, EACH = 24, 0.375  # registers for addresses; for values in flight, per accumulator
REACHABLE = 0.85  # share of the peak that the best kernels reach
GROUPS = (1, 2, 4, 8, 16)
OVERLAP = 3.0  # exponent of the norm that combines overlapping costs
WORTH = 0.97  # share of the time without it that a tail may take
TAILS = (1, 2, 3, 4, 6, 8)  # parts of the depth of the last tiles
CONFLICTS = 4.0  # threads of a warp that access the same bank when a copy transposes
KEPT = 0.6  # share of L2 that a product's operands can rely on

FREE = ("stages", "split", "join", "tail")  # chosen for the tiles that are the default

Decisions = Mapping[str, tuple[Choice, ...]]
Copied = tuple[MatmulOperand, str, bool]
"""An operand, the decision of its tile, and True if the copy keeps the order."""


def matmul_sketches(k: Matmul, target: Target) -> tuple[Sketch, ...]:
    """Return the sketches of a matrix product, the one with the least estimated cost first."""
    spaces = [MatmulSpace(k, target, None)]
    core = find_core(k, target)
    if core is not None:
        spaces.append(MatmulSpace(k, target, core))
    sketches = [s for space in spaces if (s := space.sketch()) is not None]
    return tuple(sorted(sketches, key=lambda s: s.cost(s.default)))


@dataclass(frozen=True, slots=True)
class MatmulSpace:
    """The schedules of a product on tensor cores, or on ordinary ones if ``core`` is None."""

    k: Matmul
    target: Target
    core: Core | None
    copied: dict[int, tuple[Copied, Copied]] = field(default_factory=dict, compare=False)
    """The results of ``operands`` by ``pack``: every point needs them."""
    _last: dict[tuple[tuple[str, Choice], ...], int] = field(default_factory=dict, compare=False)

    @property
    def kind(self) -> str:
        """The kind of core: ``simt`` or ``mma``."""
        return "simt" if self.core is None else "mma"

    def sketch(self) -> Sketch | None:
        """Return the sketch; None if no choice is valid."""
        decisions = self.decisions()
        default = self.default(decisions)
        if not self.valid(default):
            return None
        return Sketch(
            name=f"gpu_{self.kind}@1",
            kind="contraction",
            decisions=decisions,
            default=default,
            apply=self.apply,
            valid=self.valid,
            cost=self.cost,
        )

    def default(self, decisions: Decisions) -> Choices:
        """Return the cheapest choice: tiles for the usual stages, then stages for those tiles.

        Clusters are left to tuning; a tail has to pay for the code of a second product.
        """
        joins = tuple(j for j in decisions["join"] if j != CLUSTERED)
        decisions = {**decisions, "join": joins}
        usual: dict[str, Choice] = {
            "group": max(g for g in GROUPS[:4] if g in decisions["group"]),
            "stages": decisions["stages"][1],
            "join": decisions["join"][0],
            "tail": 1,
        }
        first = cheapest(decisions, self.valid, self.cost, usual)
        tiles = {n: v for n, v in first.items() if n not in FREE}
        found = cheapest(decisions, self.valid, self.cost, tiles)
        if parts_of_tail(found) == 1:
            return found
        alike = cheapest(decisions, self.valid, self.cost, {**tiles, "tail": 1})
        return found if self.cost(found) < WORTH * self.cost(alike) else alike

    def apply(self, sch: Schedule, c: Choices) -> None:
        """Schedule the product with the given choices; with a ``tail``, its last tiles apart."""
        wave = self.last_wave(c)
        if wave is None:
            self.schedule(self.k, sch, c)
            return
        whole, rest = divide(self.k, sch, wave, bool(c.get("results")))
        self.schedule(whole, sch, {**c, "tail": 1})
        self.schedule(rest, sch, _of_rest(c))

    def schedule(self, k: Matmul, sch: Schedule, c: Choices) -> None:
        """Schedule a product, all tiles alike."""
        if self.core is None:
            apply_simt(k, sch, c, self.target)
        else:
            apply_mma(k, self.core, sch, c, self.target)

    def last_wave(self, c: Choices) -> LastWave | None:
        """Return the tiles that do not fill all multiprocessors, where their depth is split."""
        if parts_of_tail(c) == 1:
            return None
        tile = {r: int(c[f"tile_{r}"]) for r in "mn"}
        return find_last_wave(self.k, tile, self.target.gpu.multiprocessors)

    def decisions(self) -> Decisions:
        """Return the domain of each decision."""
        x = self.k.extents
        least = {r: 16 if x[r] <= 16 else 32 for r in "mn"}
        tiles = {f"tile_{r}": powers(least[r], max(32, min(256, power_up(x[r])))) for r in "mn"}
        split = tuple(s for s in (1, 2, 4, 8, 16, 32) if s == 1 or x["k"] >= 128 * s)
        joins = ways_to_join(self.target)
        group = tuple(g for g in GROUPS if g * 32 <= max(32, x["m"]))
        stages = (2, 3, 4, 5) if can_copy_ahead(self.target) else (1, 2)
        tail = tuple(t for t in TAILS if t == 1 or x["k"] >= 128 * t)
        common: Decisions = {"stages": stages, "split": split, "join": joins, "group": group}
        common = {**common, "tail": tail}
        if self.core is None:
            small = {r: tuple(n for n in v if n <= 128) for r, v in tiles.items()}
            return {**small, "tile_k": (8, 16, 32), "rows": (2, 4, 8), "columns": (4, 8), **common}
        return {
            **tiles,
            "tile_k": (2 * self.core.depth, 4 * self.core.depth),
            "warps_m": (1, 2, 4),
            "warps_n": (1, 2, 4),
            **common,
            "pack": (0, 1) if [*self._slow()] else (0,),
        }

    def _slow(self) -> Iterator[MatmulOperand]:
        """Yield the operands that are faster to copy once packed."""
        core = self.core
        pairs = zip((self.k.left, self.k.right), core.layouts, strict=True) if core else ()
        return (x for x, layout in pairs if is_slow(x, layout))

    def threads(self, c: Choices) -> BlockDim:
        """Return the threads of a block."""
        if self.core is None:
            return threads_of(c)
        return BlockDim(int(c["warps_m"]), int(c["warps_n"]), WARP)

    def operands(self, c: Choices) -> tuple[Copied, Copied]:
        """Return the two operands."""
        packed = int(c.get("pack", 0))
        if packed not in self.copied:
            pairs = [*zip((self.k.left, self.k.right), LAYOUTS, strict=True)]
            if self.core is not None:
                pairs = [(side.x, side.layout) for side in sides_of(self.k, self.core, c)]
            left, right = (
                (x, tile, keeps_order(x, layout))
                for (x, layout), tile in zip(pairs, ("tile_m", "tile_n"), strict=True)
            )
            self.copied[packed] = left, right
        return self.copied[packed]

    def valid(self, c: Choices) -> bool:
        """True if the threads divide every tile evenly and a block fits on a multiprocessor."""
        threads, tile_k = self.threads(c).count, int(c["tile_k"])
        if not 64 <= threads <= 512 or threads % WARP or not self._tiles_fit(c):
            return False
        split = int(c["split"])
        if self.k.extents["k"] <= tile_k * (split - 1) or not self._may_join(c):
            return False
        if parts_of_tail(c) > 1 and not self._tail_fits(c):
            return False
        for x, tile, straight in self.operands(c):
            if int(c[tile]) * tile_k % (threads * copy_width(x, straight)):
                return False
        registers = self.registers(c)
        return registers <= self.target.gpu.registers_per_thread and self._fitting(c) > 0

    def _tail_fits(self, c: Choices) -> bool:
        """True if some tiles do not fill all multiprocessors, and their parts can be joined."""
        alone = int(c["split"]) == 1 and not c.get("pack") and self.last_wave(c) is not None
        deep = self.k.extents["k"] > int(c["tile_k"]) * (parts_of_tail(c) - 1)
        return alone and deep and self._may_join(_of_rest(c))

    def _may_join(self, c: Choices) -> bool:
        """True if whole warps sum the parts of a split depth; there is one way to join one part."""
        if int(c["split"]) == 1:
            return c["join"] == LAST
        x, vector = self.k.extents, self.k.result.vector
        if not clusters_fit(int(c["split"]), c, self.target):
            return False
        if c["join"] == APART:
            return even_threads(x["b"] * x["m"] * x["n"] // vector) >= WARP
        return int(c["tile_m"]) * int(c["tile_n"]) % (self.threads(c).count * vector) == 0

    def _tiles_fit(self, c: Choices) -> bool:
        if self.core is None:
            return int(c["tile_m"]) >= int(c["rows"]) and int(c["tile_n"]) >= int(c["columns"])
        m, n = (int(c[f"tile_{r}"]) // int(c[f"warps_{r}"]) for r in "mn")
        return m % 16 == 0 and n % 16 == 0

    def registers(self, c: Choices) -> int:
        """Estimate the registers of a thread: accumulators, factors, addresses."""
        if self.core is None:
            m, n = int(c["rows"]), int(c["columns"])
            sums, others = m * n, m + n
        else:
            m, n = (int(c[f"tile_{r}"]) // int(c[f"warps_{r}"]) for r in "mn")
            sums, others = m * n // WARP, (m + n) // 4
        words = max(1, self.k.sums.bytes // 4)
        return words * (sums + others) + FIXED + int(EACH * sums)

    def shared(self, c: Choices) -> int:
        """Return the bytes of shared memory of a block."""
        depth, tiles = int(c["tile_k"]), 0
        for x, tile, straight in self.operands(c):
            tiles += depth * (int(c[tile]) + self._padding(x, straight)) * x.dtype.bytes
        if c["join"] == CLUSTERED:
            part = int(c["tile_m"]) * int(c["tile_n"]) * self.k.sums.bytes
            return max(tiles * int(c["stages"]), part)
        ends_shared = self.core is not None and int(c["split"]) == 1
        return max(tiles * int(c["stages"]), self.end_bytes(c) if ends_shared else 0)

    def end_bytes(self, c: Choices) -> int:
        """Return the bytes of shared memory that a tile of sums goes through."""
        m, n = int(c["tile_m"]), int(c["tile_n"])
        return m * (-(-(n - BANK_OFFSET) // 32) * 32 + BANK_OFFSET) * self.k.sums.bytes

    def _padding(self, x: MatmulOperand, straight: bool) -> int:
        """Return the elements between the rows of an operand's tile."""
        if self.core is None:
            return 0 if x.transposed else SIMT_OFFSET
        return BANK_OFFSET if x.transposed and straight and x.dtype.bytes == 4 else 0

    def resident(self, c: Choices) -> int:
        """Return the blocks that run concurrently on a multiprocessor."""
        return resident(self.target, self.launch(c))

    def _fitting(self, c: Choices) -> int:
        """Return ``resident`` of a point, kept for the next call: a valid point is priced next."""
        key = tuple(c.items())
        found = self._last.get(key)
        if found is None:
            found = self.resident(c)
            self._last.clear()
            self._last[key] = found
        return found

    def launch(self, c: Choices) -> LaunchShape:
        """Return the shape of the product's launch."""
        return LaunchShape(
            self.blocks(c), self.threads(c).count, 0.0, self.shared(c), self.registers(c)
        )

    def grid(self, c: Choices) -> tuple[int, int]:
        """Return the number of tiles along the rows and the columns."""
        x = self.k.extents
        return -(-x["m"] // int(c["tile_m"])), -(-x["n"] // int(c["tile_n"]))

    def blocks(self, c: Choices) -> int:
        """Return the number of blocks of threads."""
        return self.k.extents["b"] * math.prod(self.grid(c)) * int(c["split"])

    def waves(self, c: Choices) -> float:
        """Return the tiles of the busiest multiprocessor, of which parts count as such."""
        wave = self.last_wave(c)
        slots = self.target.gpu.multiprocessors
        if wave is None:
            return waves(self.blocks(c), 0, 1, slots)
        return waves(wave.whole, wave.rest, parts_of_tail(c), slots)

    def cost(self, c: Choices) -> float:
        """Estimate the seconds of all launches."""
        here = self._fitting(c)
        if not here:
            return math.inf
        gpu, most = self.target.gpu, self.waves(c)
        at_once = min(math.ceil(most), here)
        warps = at_once * self.threads(c).count / WARP
        busy = min(1.0, warps / BUSY[self.kind]) * self._multiply_share(c)
        work = most * self._work_seconds(c) / busy
        shared = most * self._shared_cycles(c) / gpu.clock
        steps = math.ceil(self._depth(c) / int(c["tile_k"]))
        rounds = math.ceil(most / at_once)
        waiting = rounds * steps * LATENCY / max(int(c["stages"]) - 1, 0.5)
        barriers = rounds * steps * self._meeting_seconds(c) / at_once
        second = self._l2_bytes(c) / (gpu.multiprocessors * L2_BYTES * gpu.clock)
        memory = self._memory_bytes(c) / (gpu.bandwidth * REACHED)
        parts = (work, shared, waiting, second, memory)
        total = math.pow(sum(math.pow(x, OVERLAP) for x in parts), 1 / OVERLAP)
        begin = LAUNCH + rounds * LATENCY + self._packing_seconds(c)
        return begin + barriers + total + self._split_depth_seconds(c)

    def _meeting_seconds(self, c: Choices) -> float:
        """Return the seconds in which the threads of a block meet in each step."""
        return BARRIER

    def _depth(self, c: Choices) -> int:
        step = int(c["tile_k"]) * int(c["split"])
        return -(-self.k.extents["k"] // step) * int(c["tile_k"])

    def _work_seconds(self, c: Choices) -> float:
        """Return the seconds of arithmetic of one block, alone on a multiprocessor."""
        gpu = self.target.gpu
        name = "tf32" if self.k.left.dtype.name == "f32" else self.k.left.dtype.name
        tensor = gpu.tensor_flops.get(name, 0.0) * self._warp_share()
        rate = gpu.f32_flops if self.core is None else tensor
        flops = 2.0 * int(c["tile_m"]) * int(c["tile_n"]) * self._depth(c)
        return flops / (rate * REACHABLE / gpu.multiprocessors)

    def _warp_share(self) -> float:
        """Return the share of the tensor cores' rate that instructions of one warp reach."""
        return self.target.gpu.warp_share

    def _multiply_share(self, c: Choices) -> float:
        """Return the share of the innermost loop's instructions that multiply."""
        if self.core is None:
            m, n = int(c["rows"]), int(c["columns"])
            loads = math.ceil(m * self.k.left.dtype.bytes / 16)
            loads += math.ceil(n * self.k.right.dtype.bytes / 16)
            return m * n / (m * n + loads + 1)
        wide, high = (int(c[f"tile_{r}"]) // int(c[f"warps_{r}"]) / 16 for r in "mn")
        return 2 * wide * high / (2 * wide * high + (wide + high) / 2)

    def _shared_cycles(self, c: Choices) -> float:
        """Return the cycles of shared memory that one block takes."""
        copies, depth = self.operands(c), self._depth(c)
        written = sum(depth * int(c[tile]) * copy_cycles(x, ok) for x, tile, ok in copies)
        return written + self._shared_bytes(c) / SHARED_BYTES

    def _shared_bytes(self, c: Choices) -> float:
        """Return the bytes to and from shared memory of one block, copies of operands aside."""
        m, n, depth = int(c["tile_m"]), int(c["tile_n"]), self._depth(c)
        a, b = self.k.left.dtype.bytes, self.k.right.dtype.bytes
        if self.core is not None:
            read = (m * int(c["warps_n"]) * a + n * int(c["warps_m"]) * b) * depth
            return read + 2.0 * m * n * self.k.sums.bytes
        warps = self.threads(c).count / WARP
        across = min(WARP, n // int(c["columns"]))  # threads beside each other, and rows of them
        each = int(c["rows"]) * a * (WARP / across) + 2.0 * int(c["columns"]) * b * across
        return warps * each * depth

    def _l2_bytes(self, c: Choices) -> float:
        """Return the bytes that blocks read from L2."""
        m, n = (int(c[f"tile_{r}"]) for r in "mn")
        each = m * self.k.left.dtype.bytes + n * self.k.right.dtype.bytes
        return float(self.blocks(c)) * each * self._depth(c)

    def _memory_bytes(self, c: Choices) -> float:
        """Return the bytes from memory: everything once, and rereads that L2 does not keep."""
        k, gpu = self.k, self.target.gpu
        once = k.left.bytes + k.right.bytes
        result = k.result.bytes if int(c["split"]) == 1 else 0.0
        if once <= gpu.l2 * KEPT:
            return once + result
        slots = self._fitting(c) * gpu.multiprocessors
        rows, columns = self.grid(c)
        near = min(int(c["group"]), rows)
        wide = max(1, min(columns, slots // near))
        a, b = k.left.dtype.bytes, k.right.dtype.bytes
        each = (near * int(c["tile_m"]) * a + wide * int(c["tile_n"]) * b) * self._depth(c)
        return max(once, math.ceil(self.blocks(c) / slots) * each) + result

    def _packing_seconds(self, c: Choices) -> float:
        """Return the seconds to pack operands that are not constants."""
        if self.core is None or not c["pack"]:
            return 0.0
        x, seconds = self.k.extents, 0.0
        for operand, rows in ((self.k.left, "m"), (self.k.right, "n")):
            if not operand.frozen and any(operand is y for y in self._slow()):
                made = x["b"] * self.grid(c)["mn".index(rows)] * int(c[f"tile_{rows}"]) * x["k"]
                moved = operand.bytes + 2.0 * made * operand.dtype.bytes
                seconds += LAUNCH + LATENCY + memory_seconds(self.target, moved)
        return seconds

    def _split_depth_seconds(self, c: Choices) -> float:
        """Return the seconds to write and sum the parts of a split depth."""
        split, tiles = int(c["split"]), self.k.extents["b"] * math.prod(self.grid(c))
        wave = self.last_wave(c)
        if wave is not None:
            split, tiles = parts_of_tail(c), wave.rest
        if split == 1:
            return 0.0
        gpu, tile = self.target.gpu, int(c["tile_m"]) * int(c["tile_n"]) * self.k.sums.bytes
        parts = 2.0 * split * tiles * tile
        kept = 0.5 if parts <= gpu.l2 else 1.0
        if c["join"] == APART:
            moved = memory_seconds(self.target, kept * parts + self.k.result.bytes)
            return LAUNCH + LATENCY + moved
        read = -(-tiles // gpu.multiprocessors) * split * tile / (L2_BYTES * gpu.clock)
        moved = memory_seconds(self.target, kept * parts / 2 + self.k.result.bytes)
        return ARRIVAL + LATENCY + max(read, moved)


def parts_of_tail(c: Choices) -> int:
    """Return the parts into which the depth of the last tiles is split; 1 in older choices."""
    return int(c.get("tail", 1))


def _of_rest(c: Choices) -> Choices:
    """Return the choices for the tiles of the last wave, whose depth is split."""
    plain: Choices = {"results": 0, "turns": 1}
    kept = {n: v for n, v in plain.items() if n in c}
    return {**c, **kept, "tail": 1, "split": parts_of_tail(c), "join": LAST}


def copy_cycles(x: MatmulOperand, straight: bool) -> float:
    """Return the cycles of shared memory that the copy of one element takes.

    A warp stores up to four bytes per thread in a cycle; a transposing copy stores single elements,
    several of a warp to the same bank.
    """
    if not straight:
        return CONFLICTS / WARP
    width = copy_width(x, straight)
    return max(1.0, width * x.dtype.bytes / 4) / (WARP * width)
