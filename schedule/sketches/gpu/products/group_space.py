"""The sketch of products of warp groups: decisions, validity, cost beside those of single warps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .....ir.dtypes import bf16, f16
from .....ir.loop.intrinsics import TABLE, WARP
from .....ir.loop.nodes import CHUNK
from .....ir.loop.warpgroups import WARPGROUP
from ....language.schedule import Schedule
from ....space.space import Choices
from ..launches.machine import LaunchShape, issue_seconds
from ..launches.threads import CLUSTERED, power_up
from .contraction import Decisions, MatmulSpace
from .matmul import Matmul
from .mma import layout_of, swizzle_of
from .results import COLUMNS, PATTERN, ROWS
from .tiles import BlockDim, is_async
from .wgmma import PANEL, apply_wgmma, wide_product

HALVES = (f16, bf16)
TURNS = (1, 2, 3, 4, 6, 8)  # tiles of a block, one after the other
OTHERS = 40  # registers beside the sums: addresses of copies and descriptors
BARRIERS = 1024  # bytes of shared memory for the barriers of bulk copies
GROUP_WARPS = WARPGROUP // WARP  # that copy: a group of their own
PHASES = 10e-9  # seconds of a step in which groups wait for places, but not for each other
WIDTHS = (64, 128, 192, 256)


@dataclass(frozen=True, slots=True)
class GroupSpace(MatmulSpace):
    """The schedules of a product by warp groups; ``core`` is not None."""

    @property
    def kind(self) -> str:
        """The kind of core."""
        return "wgmma"

    def schedule(self, k: Matmul, sch: Schedule, c: Choices) -> None:
        """Schedule a product, all tiles alike."""
        assert self.core is not None
        apply_wgmma(k, self.core, sch, c, self.target)

    def decisions(self) -> Decisions:
        """Return the domain of each decision."""
        x = self.k.extents
        common = MatmulSpace.decisions(self)
        tiles = {
            f"tile_{r}": tuple(n for n in WIDTHS if n <= max(ROWS, power_up(x[r]))) for r in "mn"
        }
        return {
            **tiles,
            "tile_k": common["tile_k"],
            "groups_m": (1, 2),
            "groups_n": (1, 2),
            "stages": (2, 3, 4, 5, 6),
            **{name: common[name] for name in ("split", "group", "pack", "tail")},
            "join": tuple(j for j in common["join"] if j != CLUSTERED),
            "copiers": (0, GROUP_WARPS),
            "bulk": (0, 1) if self.k.left.matrix and self.k.right.matrix else (0,),
            "results": (0, 1) if self._may_hold_results() else (0,),
            "turns": TURNS if self._may_hold_results() else (1,),
        }

    def _may_hold_results(self) -> bool:
        """True if threads may make results of the sums that they hold, of whole words or halves."""
        result = self.k.result
        return result.matrix and (result.dtype in HALVES or result.dtype == self.k.sums)

    def threads(self, c: Choices) -> BlockDim:
        """Return the threads of a block."""
        return BlockDim(int(c["groups_m"]), int(c["groups_n"]), WARPGROUP)

    def _tiles_fit(self, c: Choices) -> bool:
        assert self.core is not None
        m, n = self.group_tile(c)
        if m % ROWS or n % COLUMNS or wide_product(self.core, n) not in TABLE:
            return False
        return self.operands_fit(c, (m, n))

    def group_tile(self, c: Choices) -> tuple[int, int]:
        """Return the rows and the columns of the sums of one group of threads."""
        m, n = (int(c[f"tile_{r}"]) // int(c[f"groups_{r}"]) for r in "mn")
        return m, n

    def operands_fit(self, c: Choices, sizes: tuple[int, int]) -> bool:
        """True if both operands' tiles have a swizzle, and one with the depth first whole panels.

        ``sizes`` are the rows of the left operand, and the columns of the right one, in a product.
        """
        for (x, tile, _), size in zip(self.operands(c), sizes, strict=True):
            layout = layout_of(x, tile[-1])
            if not swizzle_of(layout, x.dtype, c) or (layout[0] == "k" and size % PANEL):
                return False
        return True

    def valid(self, c: Choices) -> bool:
        """True if a block fits on a multiprocessor, and copies have a step to run ahead."""
        if (c["bulk"] or c["copiers"]) and int(c["stages"]) <= 2:
            return False
        if c["results"] and (int(c["split"]) > 1 or not self._results_fit(c)):
            return False
        if not self._turns_fit(c):
            return False
        if c["copiers"] and not all(is_async(x, ok) for x, _, ok in self.operands(c)):
            return False
        return MatmulSpace.valid(self, c)

    def _turns_fit(self, c: Choices) -> bool:
        """True if each block has one tile, or up to ``turns`` where there are too many blocks for
        all to run at once; warps that only copy then run ahead over the ends of tiles."""
        turns, batch = int(c["turns"]), self.k.extents["b"]
        if turns == 1 or not (c["results"] and c["copiers"]):
            return turns == 1
        wave = self.last_wave(c)
        tiles = math.prod(self.grid(c)) if wave is None else wave.whole // batch
        many = tiles * batch > self.target.gpu.multiprocessors
        fewer = -(-tiles // -(-tiles // turns)) == turns  # or else another number says the same
        return many and fewer

    def _results_fit(self, c: Choices) -> bool:
        """True if rows of a tile are whole patterns of shared memory, each group's whole boxes."""
        size, own = self.k.result.dtype.bytes, int(c["tile_n"]) // int(c["groups_n"])
        return int(c["tile_n"]) * size % PATTERN == 0 and own % (2 * COLUMNS) == 0

    def end_bytes(self, c: Choices) -> int:
        """Return the bytes of shared memory that sums or results go through."""
        if not c["results"]:
            return MatmulSpace.end_bytes(self, c)
        return int(c["tile_m"]) * int(c["tile_n"]) * self.k.result.dtype.bytes

    def launch(self, c: Choices) -> LaunchShape:
        """Return the shape of the launch, with the warps that only copy."""
        found = MatmulSpace.launch(self, c)
        return replace(found, threads=found.threads + int(c["copiers"]) * WARP)

    def _meeting_seconds(self, c: Choices) -> float:
        return PHASES if c["copiers"] else MatmulSpace._meeting_seconds(self, c)

    def cost(self, c: Choices) -> float:
        """Estimate the seconds of all launches, with those in which threads issue copies."""
        if c["bulk"]:
            return MatmulSpace.cost(self, c)
        m, n, depth = int(c["tile_m"]), int(c["tile_n"]), self._depth(c)
        each = (m * self.k.left.dtype.bytes + n * self.k.right.dtype.bytes) * depth / CHUNK
        return MatmulSpace.cost(self, c) + issue_seconds(self.target, self.blocks(c) * each)

    def shared(self, c: Choices) -> int:
        """Return the bytes of shared memory of a block, those of barriers of copies included."""
        found = MatmulSpace.shared(self, c) + (BARRIERS if c["bulk"] or c["copiers"] else 0)
        return found if int(c["turns"]) == 1 else found + self.end_bytes(c)

    def registers(self, c: Choices) -> int:
        """Estimate the registers of a thread: sums and addresses."""
        m, n = self.group_tile(c)
        return m * n // WARPGROUP + OTHERS

    def _multiply_share(self, c: Choices) -> float:
        return 1.0  # products are under way while others instructions run

    def _warp_share(self) -> float:
        return 1.0

    def _shared_bytes(self, c: Choices) -> float:
        """Return the bytes to and from shared memory: each product reads its tiles anew."""
        m, n, depth = int(c["tile_m"]), int(c["tile_n"]), self._depth(c)
        a, b = self.k.left.dtype.bytes, self.k.right.dtype.bytes
        each, times = self._reads(c)
        read = (m * times * a + n * m / each * b) * depth
        way = self.k.result.dtype if c["results"] else self.k.sums
        return read + 2.0 * m * n * way.bytes

    def _reads(self, c: Choices) -> tuple[int, int]:
        """Return the rows for which the right tile is read once, and the reads of the left one."""
        return ROWS, int(c["groups_n"])
