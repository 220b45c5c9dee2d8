"""The rows of sketches: each file here has a sketch, what it matches, and its rank among others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import Generic, TypeAlias, TypeVar

from ...ir.loop.nodes import Func
from ...ir.target import Target
from .analyze import BlockInfo, blocks_of
from .contraction import Contraction, contraction_of
from .space import Sketch

S = TypeVar("S")
Match: TypeAlias = "Callable[[S, Target], Sketch | None]"


@dataclass(frozen=True, eq=False)
class Work:
    """A function that is to be scheduled for a CPU, and what sketches ask of it."""

    func: Func

    @cached_property
    def blocks(self) -> tuple[BlockInfo, ...]:
        """Its blocks in program order."""
        return blocks_of(self.func)

    @cached_property
    def contraction(self) -> Contraction | None:
        """Its heaviest reduction, where that can be tiled in registers."""
        return contraction_of(self.func, self.blocks)


@dataclass(frozen=True, slots=True)
class Rows(Generic[S]):
    """What matches subjects of one kind: a row is a rank and a function that gives a sketch."""

    rows: dict[str, tuple[int, Match[S]]] = field(default_factory=dict)

    def row(self, rank: int) -> Callable[[Match[S]], Match[S]]:
        """Register a function of a subject and a target: its sketch, or None if it does not fit."""

        def add(match: Match[S]) -> Match[S]:
            self.rows[f"{match.__module__}.{match.__name__}"] = rank, match
            return match

        return add

    def matching(self, subject: S, target: Target) -> tuple[Sketch, ...]:
        """The sketches of the rows that match, the least rank first."""
        ranked = sorted(self.rows.items(), key=lambda item: (item[1][0], item[0]))
        found = (match(subject, target) for _, (_, match) in ranked)
        return tuple(sketch for sketch in found if sketch is not None)


CPU: Rows[Work] = Rows()
"""For a whole function on a CPU. The first that applies is the default schedule."""


def import_sketches(package: str, path: list[str]) -> None:
    """Import the files of a folder of sketches, each of which registers its rows."""
    for found in iter_modules(path):
        if not found.ispkg:
            import_module(f"{package}.{found.name}")
