"""The groups of a cell with what their winners' decisions buy, within a budget of seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...ir.target import Target
from ..attribute import WonSchedule, attribute
from ..log.records import DEFAULT_SKETCH, Best
from ..measure.protocol import Measurer
from ..tasks.extract import Task
from .data import GroupBench


def attributed(
    groups: Sequence[GroupBench],
    tasks: Sequence[Task],
    winners: Mapping[str, Best],
    target: Target,
    measurer: Measurer,
    folder: Path,
    seed: int,
    seconds: float,
) -> tuple[GroupBench, ...]:
    """Return groups with the attribution of their winners, the heaviest ones first.

    Those that do not fit in ``seconds`` stay without. ``folder`` is for files of the measuring
    child.
    """
    until = time.monotonic() + seconds
    by_key = {t.key: t for t in tasks}
    heavy = sorted(groups, key=lambda g: -g.weight * g.tuned_seconds)
    won = [
        WonSchedule(by_key[g.key], best.sketch, best.decisions, best.trace)
        for g in heavy
        if (best := winners.get(g.key)) is not None and best.sketch != DEFAULT_SKETCH
    ]
    found = attribute(won, target, measurer, folder, seed, until)
    return tuple(replace(g, attribution=found.get(g.key)) for g in groups)
