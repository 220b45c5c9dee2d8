"""Tables of sketches: each module of a folder registers rows of a rank and a match function.

A family bundles the sketches for one kind of target with the rule for blocks that none matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import walk_packages
from typing import Generic, TypeAlias, TypeVar

from ...ir.loop.nodes import Func
from ...ir.target import Target
from ..language.schedule import Schedule
from .analyze import BlockInfo
from .space import Sketch

S = TypeVar("S")
Match: TypeAlias = "Callable[[S, Target], Sketch | None]"


@dataclass(frozen=True, slots=True)
class SketchTable(Generic[S]):
    """The sketches for one kind of subject, each with a rank and a match function."""

    rows: dict[str, tuple[int, Match[S]]] = field(default_factory=dict)

    def row(self, rank: int) -> Callable[[Match[S]], Match[S]]:
        """Register a match function, which returns a sketch, or None if it does not fit."""

        def add(match: Match[S]) -> Match[S]:
            self.rows[f"{match.__module__}.{match.__name__}"] = rank, match
            return match

        return add

    def matching(self, subject: S, target: Target) -> tuple[Sketch, ...]:
        """Return the sketches of the rows that match, as ``each`` yields them."""
        return tuple(self.each(subject, target))

    def each(self, subject: S, target: Target) -> Iterator[Sketch]:
        """Yield the sketches of the rows that match, by rank, then by file and name.

        A row's match function is called only when its turn comes.
        """
        ranked = sorted(self.rows.items(), key=lambda item: (item[1][0], item[0].split(".")[-2:]))
        for _, (_, match) in ranked:
            if (sketch := match(subject, target)) is not None:
                yield sketch


@dataclass(frozen=True, slots=True)
class Family:
    """Scheduling for the targets that spread work in one way.

    ``sketches`` yields a function's sketches, the preferred one first, each made when it is asked
    for; ``spare`` returns those that only tuning tries. ``fallback`` schedules one block by rule.
    ``require`` raises ``ScheduleError`` if a scheduled function is incomplete or exceeds the
    target's limits.
    """

    sketches: Callable[[Func, Target], Iterator[Sketch]]
    spare: Callable[[Func, Target], tuple[Sketch, ...]]
    fallback: Callable[[Schedule, BlockInfo, Target], None]
    require: Callable[[Func, Target], None]


def import_sketches(package: str, path: list[str]) -> None:
    """Import the files of a folder of sketches and below, each of which registers its rows."""
    for found in walk_packages(path, f"{package}."):
        import_module(found.name)
