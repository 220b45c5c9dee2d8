"""Progress of a call of ``tune``, told to its listener, and the notes that its result keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from ..measure.protocol import Underway
from .progress import Listener, Progress, totals
from .state import TuningState

Phase: TypeAlias = Literal["starting", "measuring", "racing groups", "racing the whole model"]
DOING = {
    "start": "starting a process for",
    "load": "preparing",
    "build": "building",
    "wait": "about to time",
    "run": "timing",
    "away": "measuring",
}
"""What a child does in each phase of a job (``measure.protocol``)."""


class Reporter:
    """Tells a listener, if there is one, what happens; ``phase`` is that of the call."""

    def __init__(self, state: TuningState, listener: Listener | None) -> None:
        self.phase: Phase = "starting"
        self.notes: list[str] = []
        self._state = state
        self._listener = listener
        self._workers = ""  # of a fleet, described

    def note(self, text: str) -> None:
        """Tell what the user should know, and keep it for the result."""
        self.notes.append(text)
        self.tell("note", "", text)

    def wait(self, text: str) -> None:
        """Tell what is being done while no trial ends."""
        self.tell("wait", "", text)

    def held_up(self, strangers: Sequence[int]) -> None:
        """Tell the processes, by their ids, that this tuning waits for."""
        named = ", ".join(f"process {pid}" for pid in strangers)
        self.wait(f"waiting for the machine, which {named or 'a timed run'} has")

    def watch(self, underway: Underway, strangers: Callable[[], Sequence[int]]) -> None:
        """Tell what the children do, but not while one of them is timing.

        ``strangers`` returns the processes that they may wait for.
        """
        self._workers = underway.workers
        for text in underway.news:
            self.note(text)
        phases = {phase for _, phase in underway.jobs}
        if phases == {"wait"}:
            self.held_up(strangers())
        elif "run" not in phases:
            named = {s.task.key: s.task.name for s in self._state.tasks}
            did = [f"{DOING[phase]} {named.get(j.key, 'the model')}" for j, phase in underway.jobs]
            self.wait(", ".join(dict.fromkeys(did)))

    def tell(self, event: str, task: str, text: str) -> None:
        """Give the listener a ``Progress`` with this event."""
        if self._listener is None:
            return
        state = self._state
        tasks = tuple(s.result() for s in state.tasks)
        before, after = totals(tasks)
        self._listener(
            Progress(
                event=event,
                task=task,
                text=text,
                trials=state.trials,
                budget=max(state.plan.trials, state.trials),
                failures=state.failures,
                elapsed=state.budget.elapsed,
                left=self._left(),
                default_seconds=before,
                best_seconds=after,
                tasks=tasks,
                phase=self.phase,
                workers=self._workers,
            )
        )

    def _left(self) -> tuple[float, float] | None:
        state, searching = self._state, self.phase in ("starting", "measuring")
        trials = state.plan.trials - state.trials if searching else 0
        return state.budget.range(max(0, trials), *state.to_race)
