"""The time budget of tuning, and estimates of the remaining time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from ..log.units import counted
from ..measure.timing import Clock

WINDOWS = (8, 32, 128)  # numbers of latest trials over which the pace is measured
SLACK = 1.25  # margin around the slowest and the fastest of these paces
RACE = (2.0, 6.0)  # time for the race of a group, at least and at most, in trials
EACH = 8  # trials of each task that a search should have at least
NAMED = 3  # tasks that advice names
SHARE = 0.5  # largest share of the time to reserve for the races


class Budget:
    """A budget of ``seconds`` of wall time since ``began`` (None: unlimited)."""

    def __init__(
        self,
        seconds: float | None = None,
        began: float | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """``began`` is a time of ``clock``, by default now."""
        self.seconds = seconds
        self.clock: Callable[[], float] = clock
        self.began = clock() if began is None else began
        self._done: list[float] = []

    @property
    def elapsed(self) -> float:
        """The seconds since the beginning."""
        return self.clock() - self.began

    @property
    def left(self) -> float:
        """The seconds left; infinite without a limit, never negative."""
        return math.inf if self.seconds is None else max(0.0, self.seconds - self.elapsed)

    @property
    def until(self) -> float:
        """The time of ``clock`` at which the budget ends."""
        return math.inf if self.seconds is None else self.began + self.seconds

    def start(self) -> None:
        """Start measuring the pace of trials."""
        self._done = [self.clock()]

    def trial_done(self) -> None:
        """Record the end of a trial."""
        self._done.append(self.clock())

    @property
    def pace(self) -> tuple[float, float] | None:
        """The seconds per trial, at least and at most; None before the first has ended."""
        done = self._done
        if len(done) < 2:
            return None
        spans = {min(w, len(done) - 1) for w in WINDOWS}
        rates = [(done[-1] - done[-1 - n]) / n for n in spans]
        return min(rates) / SLACK, max(rates) * SLACK

    def reserve(self, races: int, groups: int) -> float:
        """Return the seconds to reserve for races of groups, and of a model of ``groups``.

        Building a model takes about as long as a trial per group.
        """
        if self.seconds is None:
            return 0.0
        _, slow = self.pace or (0.0, 0.0)
        return min(SHARE * self.seconds, slow * (races * RACE[1] + groups) + (groups > 0))

    def range(self, trials: float, races: int, groups: int) -> tuple[float, float] | None:
        """Estimate the seconds that trials and races still take, at least and at most.

        ``groups`` is the number of groups of the model to race as a whole, 0 for none. None if
        nothing is known.
        """
        if self.pace is None:
            return None if math.isinf(self.left) else (0.0, self.left)
        fast, slow = self.pace
        low = fast * (trials + races * RACE[0])
        high = slow * (trials + races * RACE[1] + groups) + (groups > 0)
        return min(low, self.left), min(high, self.left)


def advice(
    stopped: str,
    trials: int,
    wanted: int,
    pace: tuple[float, float] | None,
    never: Sequence[str],
    tasks: int,
) -> list[str]:
    """Return advice for a user whose budget was too small.

    ``stopped`` says what ended the search, ``trials`` of ``wanted`` are in the log, ``pace`` is
    seconds per trial; ``never`` names the tasks, out of ``tasks``, that were never measured.
    """
    enough = max(wanted, EACH * tasks)
    need = f", about {counted(math.ceil(enough * max(pace)), 'second')} of them" if pace else ""
    if never and stopped in ("time", "budget"):
        more = f" and {len(never) - NAMED} more" if len(never) > NAMED else ""
        return [
            f"the budget was too small: {len(never)} of {counted(tasks, 'task')} "
            f"{'was' if len(never) == 1 else 'were'} never measured "
            f"({', '.join(never[:NAMED])}{more}); {enough} trials would do{need}"
        ]
    if stopped == "time" and trials < wanted:
        return [
            f"the budget was too small: time was up after {trials} of "
            f"{counted(wanted, 'trial')}; {enough} trials would do{need}"
        ]
    return []
