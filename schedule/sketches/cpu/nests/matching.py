"""The table of sketches for CPUs, and the analysis of a function that they match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from .....ir.loop.nodes import Func
from .....ir.target import Target
from ....space.analyze import BlockInfo, blocks_of
from ....space.registry import SketchTable
from .contraction import Contraction, contraction_of

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class FuncInfo:
    """A function to schedule for a CPU, with its analysis computed on demand."""

    func: Func

    @cached_property
    def blocks(self) -> tuple[BlockInfo, ...]:
        """Its blocks in program order."""
        return blocks_of(self.func)

    @cached_property
    def contraction(self) -> Contraction | None:
        """Its heaviest reduction, if that can be tiled in registers."""
        return contraction_of(self.func, self.blocks)

    @cached_property
    def across(self) -> Contraction | None:
        """The same with vectors along the rows of a result that is stored transposed."""
        return contraction_of(self.func, self.blocks, across=True)

    def besides(self, *parts: BlockInfo | None) -> tuple[BlockInfo, ...]:
        """Return the blocks that are none of ``parts``."""
        return tuple(b for b in self.blocks if all(b is not p for p in parts))


CPU: SketchTable[FuncInfo] = SketchTable()
"""Sketches of a whole function on a CPU. The first that applies is the default schedule."""


def once(match: Callable[[FuncInfo, Target], T]) -> Callable[[FuncInfo, Target], T]:
    """Keep the last result of a match function, which rows of several ranks ask for in turn."""
    return lru_cache(maxsize=1)(match)
