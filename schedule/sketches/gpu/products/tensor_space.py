"""The sketch of products with sums in tensor memory, and those of all kinds of cores together."""

from __future__ import annotations

from dataclasses import dataclass

from .....ir.loop.intrinsics import TABLE
from .....ir.loop.nodes import CHUNK
from .....ir.loop.tensor_memory import LANES, allocated
from .....ir.target import Target
from ....language.schedule import Schedule
from ....space.space import Choices, Sketch
from ..launches.threads import power_up
from .contraction import Decisions, MatmulSpace, matmul_sketches
from .group_space import GroupSpace
from .matmul import Matmul
from .results import PATTERN
from .tcgen05 import STRIP, apply_tcgen05, find_tensor_core
from .wgmma import find_group_core, wide_product

OTHERS = 56  # registers beside a strip of sums
STATE = 3072  # bytes of shared memory for barriers, and for where the columns begin


def product_sketches(k: Matmul, target: Target) -> tuple[Sketch, ...]:
    """Return the sketches of a matrix product, the one with the least estimated cost first."""
    found = [*matmul_sketches(k, target)]
    for space, core in (
        (GroupSpace, find_group_core(k, target)),
        (TensorSpace, find_tensor_core(k, target)),
    ):
        if core is not None and (sketch := space(k, target, core).sketch()) is not None:
            found.append(sketch)
    return tuple(sorted(found, key=lambda s: s.cost(s.default)))


@dataclass(frozen=True, slots=True)
class TensorSpace(GroupSpace):
    """The schedules of a product with sums in tensor memory; ``core`` is not None."""

    @property
    def kind(self) -> str:
        """The kind of core."""
        return "tcgen05"

    def schedule(self, k: Matmul, sch: Schedule, c: Choices) -> None:
        """Schedule a product, all tiles alike."""
        assert self.core is not None
        apply_tcgen05(k, self.core, sch, c, self.target)

    def decisions(self) -> Decisions:
        """Return the domain of each decision."""
        columns = max(STRIP, power_up(self.k.extents["n"]))
        return {
            **GroupSpace.decisions(self),
            "tile_m": (LANES, 2 * LANES),
            "tile_n": tuple(n for n in (32, 64, 128, 192, 256) if n <= columns),
            "tail": (1,),
            "turns": (1,),
        }

    def _tiles_fit(self, c: Choices) -> bool:
        assert self.core is not None
        m, n = self.group_tile(c)
        if m % LANES or n % STRIP or wide_product(self.core, int(c["tile_n"])) not in TABLE:
            return False
        if self.columns(c) > self.target.gpu.tensor_columns:
            return False
        if c["copiers"] and self.threads(c).z * self.threads(c).y > 2:
            return False  # the warps that copy would be part of a row of threads
        return self.operands_fit(c, (int(c["tile_m"]), int(c["tile_n"])))

    def columns(self, c: Choices) -> int:
        """Return the columns of tensor memory that a block allocates."""
        return allocated(int(c["tile_m"]) // LANES * int(c["tile_n"]))

    def _results_fit(self, c: Choices) -> bool:
        size = self.k.result.dtype.bytes
        return int(c["tile_n"]) * size % PATTERN == 0 and STRIP * size % CHUNK == 0

    def resident(self, c: Choices) -> int:
        """Return the blocks that run concurrently on a multiprocessor."""
        return min(GroupSpace.resident(self, c), self.target.gpu.tensor_columns // self.columns(c))

    def shared(self, c: Choices) -> int:
        """Return the bytes of shared memory of a block."""
        return MatmulSpace.shared(self, c) + STATE

    def registers(self, c: Choices) -> int:
        """Estimate the registers of a thread: a strip of sums and addresses."""
        return STRIP + OTHERS

    def _reads(self, c: Choices) -> tuple[int, int]:
        """Return the rows for which the right tile is read once, and the reads of the left one."""
        return LANES, 1
