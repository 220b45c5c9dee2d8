"""The primitives as methods, as declared: ``pytest --bless tests/schedule`` writes this file.

``docs/primitives.md`` says more of each. Those that are declared elsewhere
are methods of a ``Schedule`` too, without types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.loop.nodes import Scope
from ..cursor import BlockRef, LoopRef


class Methods:
    """Every primitive as a method that has its types."""

    __slots__ = ()

    def perform(self, name: str, *args: object, **named: object) -> Any:
        """Check a primitive's arguments, run it, take over its result and note the step."""
        raise NotImplementedError

    def add_unit_loop(self, block: BlockRef | str) -> LoopRef:
        """Put a block into a loop of one iteration, to be bound, or to compute other blocks in."""
        given: LoopRef = self.perform("add_unit_loop", block)
        return given

    def annotate(self, ref: BlockRef | str | LoopRef, key: str, value: int | str) -> None:
        """Put a note on a block or a loop; one of the same key is replaced."""
        self.perform("annotate", ref, key, value)

    def bind(self, loop: LoopRef | str, thread: str) -> None:
        """Give each iteration of a loop to a thread, or to a block of threads, of a GPU."""
        self.perform("bind", loop, thread)

    def cache_read(
        self,
        block: BlockRef | str,
        index: int,
        scope: Scope | str = "global",
        also: Sequence[BlockRef | str] = (),
    ) -> BlockRef:
        """Copy what a block reads into a new buffer, for the blocks ``also`` too; gives the
        copy.
        """
        given: BlockRef = self.perform("cache_read", block, index, scope, also)
        return given

    def cache_write(
        self, block: BlockRef | str, index: int, scope: Scope | str = "global"
    ) -> BlockRef:
        """Let a block write a new buffer, which is then copied; gives the block of the copy."""
        given: BlockRef = self.perform("cache_write", block, index, scope)
        return given

    def compute_at(
        self,
        block: BlockRef | str,
        loop: LoopRef | str,
        keep_unit_loops: bool = False,
        multiples: Sequence[int] = (),
    ) -> None:
        """Compute a block inside a loop of its consumers, as much as one iteration needs."""
        self.perform("compute_at", block, loop, keep_unit_loops, multiples)

    def compute_inline(self, block: BlockRef | str) -> None:
        """Compute a block's values where they are used, each time anew; the block is gone."""
        self.perform("compute_inline", block)

    def decompose_reduction(self, block: BlockRef | str, loop: LoopRef | str) -> BlockRef:
        """Make the init of a reduction a block of its own before a loop; gives that block."""
        given: BlockRef = self.perform("decompose_reduction", block, loop)
        return given

    def fuse(self, *refs: LoopRef | str) -> LoopRef:
        """Replace loops that follow one another, given outermost first, by one."""
        given: LoopRef = self.perform("fuse", *refs)
        return given

    def get_loops(self, block: BlockRef | str) -> list[LoopRef]:
        """Give the loops around a block, outermost first."""
        given: list[LoopRef] = self.perform("get_loops", block)
        return given

    def merge(self, first: LoopRef | str, second: LoopRef | str) -> LoopRef:
        """Make two loops that follow each other and run equally often one, which is ``first``."""
        given: LoopRef = self.perform("merge", first, second)
        return given

    def parallel(self, loop: LoopRef | str) -> None:
        """Run the iterations of a loop on several threads of a CPU."""
        self.perform("parallel", loop)

    def reorder(self, *refs: LoopRef | str) -> None:
        """Put loops of one chain into the given order; the others of the chain keep their
        places.
        """
        self.perform("reorder", *refs)

    def reverse_compute_at(
        self, block: BlockRef | str, loop: LoopRef | str, keep_unit_loops: bool = False
    ) -> None:
        """Compute a block inside a loop of its producer, after it: as much as one iteration
        gives.
        """
        self.perform("reverse_compute_at", block, loop, keep_unit_loops)

    def reverse_compute_inline(self, block: BlockRef | str) -> None:
        """Let the producer store what a block makes of its values; the block is gone."""
        self.perform("reverse_compute_inline", block)

    def rfactor(self, loop: LoopRef | str, factor_axis: int = 0) -> BlockRef:
        """Give each iteration of a reduction loop a partial result; gives the block of those."""
        given: BlockRef = self.perform("rfactor", loop, factor_axis)
        return given

    def sample_choice(
        self, options: Sequence[int | str], name: str = "", decision: int | str | None = None
    ) -> int | str:
        """Give one of the options; which one is a decision of the tuner's."""
        given: int | str = self.perform("sample_choice", options, name, decision)
        return given

    def sample_tile(
        self,
        loop: LoopRef | str,
        n: int = 1,
        most: int = 64,
        name: str = "",
        decision: Sequence[int] | None = None,
    ) -> list[int]:
        """Give extents for ``n`` inner loops of a loop, outer to inner; the tuner decides."""
        given: list[int] = self.perform("sample_tile", loop, n, most, name, decision)
        return given

    def set_scope(self, block: BlockRef | str, index: int, scope: Scope | str) -> None:
        """Say in which memory the intermediate buffer of a block's write lives."""
        self.perform("set_scope", block, index, scope)

    def split(self, loop: LoopRef | str, factors: Sequence[int | None]) -> list[LoopRef]:
        """Replace a loop by loops of the given extents, outer to inner."""
        given: list[LoopRef] = self.perform("split", loop, factors)
        return given

    def storage_align(
        self, block: BlockRef | str, index: int, dim: int, factor: int, offset: int
    ) -> None:
        """Stretch a dimension of a block's shared write, to keep threads off each other's
        banks.
        """
        self.perform("storage_align", block, index, dim, factor, offset)

    def swizzle(self, block: BlockRef | str, index: int, n: int) -> None:
        """Permute the 16-byte chunks in each row of a block's shared write."""
        self.perform("swizzle", block, index, n)

    def tensorize(self, loop: LoopRef | str, intrinsic: str) -> None:
        """Make the nest under a loop one operation of the hardware on boxes."""
        self.perform("tensorize", loop, intrinsic)

    def tile(self, i: LoopRef | str, j: LoopRef | str, rows: int, columns: int) -> list[LoopRef]:
        """Split two loops and put the inner ones innermost: ``[i_0, j_0, i_1, j_1]``."""
        given: list[LoopRef] = self.perform("tile", i, j, rows, columns)
        return given

    def to_matmul(
        self,
        block: BlockRef | str,
        multiples: Sequence[int] = (1, 1, 1),
        layouts: Sequence[str] = ("mk", "nk"),
    ) -> tuple[BlockRef, BlockRef, BlockRef]:
        """Make a sum of products a batched matrix product over copies of its operands."""
        given: tuple[BlockRef, BlockRef, BlockRef] = self.perform(
            "to_matmul", block, multiples, layouts
        )
        return given

    def transform_layout(
        self,
        block: BlockRef | str,
        index: int,
        order: Sequence[int] | None = None,
        pack: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Lay the intermediate buffer of a block's write ``index`` out in another way,
        everywhere.
        """
        self.perform("transform_layout", block, index, order, pack)

    def unannotate(self, ref: BlockRef | str | LoopRef, key: str) -> None:
        """Take a note away."""
        self.perform("unannotate", ref, key)

    def unroll(self, loop: LoopRef | str) -> None:
        """Write the iterations of a loop out, one after the other."""
        self.perform("unroll", loop)

    def vectorize(self, loop: LoopRef | str) -> None:
        """Run the iterations of a loop as the lanes of vectors."""
        self.perform("vectorize", loop)
