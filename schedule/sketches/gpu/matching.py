"""The table of sketches for kinds of groups of their own, and the analysis that they match."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ....ir.loop.nodes import Func
from ...language.schedule import Schedule
from ...space.analyze import blocks_of
from ...space.attention import Attention, find_attention
from ...space.registry import SketchTable
from .launches.inlining import inline_moves


@dataclass(frozen=True, eq=False)
class GroupInfo:
    """A function to schedule for a GPU, with its analysis computed on demand."""

    func: Func

    @cached_property
    def attention(self) -> tuple[Attention, tuple[str, ...]] | None:
        """The attention that it is, and the blocks that are inlined before; None for others."""
        first = Schedule(self.func)
        moved = inline_moves(first)
        k = find_attention(first.func, blocks_of(first.func))
        return None if k is None or k.exponential is None else (k, tuple(moved))


KINDS: SketchTable[GroupInfo] = SketchTable()
"""Sketches of a whole function that is a group of a kind of its own."""
