"""The end of a group's race: its record, from the outcomes of the default and the finalists."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..log.records import Best, Trial, clearly_faster, typical
from ..measure.protocol import Candidate, Outcome


def winner_of_race(
    trials: Sequence[Trial],
    device: str,
    runners: Sequence[Candidate],
    outcomes: Sequence[Outcome],
) -> Best | None:
    """Return the winner of a race: the default, unless another is clearly faster.

    ``trials`` are those of the task, ``runners`` the candidates of the race, the default first.
    None if the default did not run.
    """
    default = outcomes[0]
    if default.status != "ok":
        return None
    times = {n: typical(o.runs) for n, o in enumerate(outcomes) if o.status == "ok"}
    winner = min(times, key=lambda n: times[n])
    if not clearly_faster(times[winner], times[0]):
        winner = 0
    c, o = runners[winner], outcomes[winner]
    trial = next(t for t in trials if t.sketch == c.sketch and t.decisions == c.decisions)
    return Best(
        workload=trial.workload,
        device=device,
        trial=trial.id,
        sketch=c.sketch,
        decisions=c.decisions,
        trace=o.trace or [],
        runs=o.runs,
        default_runs=default.runs,
        error=o.error,
        ts=time.time(),
    )
