"""Selection of the groups' winners that make the whole model faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..measure.compare import SpeedComparison

Kept: TypeAlias = frozenset[str]
Race: TypeAlias = Callable[[Kept, Kept], SpeedComparison | None]
"""Times the model with two sets of tuned groups, the others with default schedules.

Returns None if the second cannot be built or run. Raises ``TimeUp``.
"""
NOTHING: Kept = frozenset()


@dataclass(frozen=True, slots=True)
class Composition:
    """The groups that a model keeps tuned, and the comparison of the model with the default.

    ``found`` is None if nothing is kept. ``cut``: time was up before all had been tried.
    """

    kept: Kept = NOTHING
    found: SpeedComparison | None = None
    cut: bool = False


class TimeUp(Exception):
    """There is no time for another race."""


def compose(winners: Sequence[str], race: Race) -> Composition:
    """Return which of the groups in ``winners`` to keep tuned.

    The order of ``winners`` is that in which they are tried, so the most promising belong first.
    All are tried at once. If that is not clearly faster, each half of them is added to the groups
    kept so far and tried, down to single groups; then the model is tried without each group that
    was added together with others. A race of the result against the default decides. When time is
    up, the last set that beat the default is returned.
    """
    kept: Kept = NOTHING
    proven = Composition()
    waiting = [tuple(winners)] if winners else []
    together: list[str] = []
    try:
        while waiting:
            groups = waiting.pop()
            found = race(kept, kept | set(groups))
            if found is not None and found.faster:
                proven = proven if kept else Composition(frozenset(groups), found)
                kept |= set(groups)
                together += groups if len(groups) > 1 else ()
            elif len(groups) > 1:
                half = (len(groups) + 1) // 2
                waiting += [groups[half:], groups[:half]]
        if kept == set(winners):
            return proven
        for group in together:
            found = race(kept, kept - {group})
            kept = kept - {group} if found is not None and found.faster else kept
        if kept != proven.kept:
            last = race(NOTHING, kept)
            proven = Composition(kept, last) if last is not None and last.faster else proven
    except TimeUp:
        proven = replace(proven, cut=True)
    return proven
