"""What a bundle offers once it is loaded, whatever runs it, and the times that it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ThunkTime:
    """``seconds`` is the best of the runs, a fraction of a microsecond of Python's call included.

    ``name`` is the group's name, ``task`` its canonical key (empty for copies and control flow);
    ``bytes`` is what one run reads and writes.
    """

    name: str
    task: str
    seconds: float
    bytes: int


class Loaded(Protocol):
    """A bundle that can run in this process."""

    @property
    def call(self) -> Callable[..., Any]:
        """What Python calls with a call's arguments."""

    def run(self, args: Sequence[object], out: object) -> Any:
        """A call; the results go to ``out`` unless it is None."""

    def put(self, value: Any) -> Any:
        """An array where the program runs, so that a call need not move it."""

    def seconds(self, action: Callable[[], object]) -> float:
        """How long what an action runs or submits takes there."""

    def profile(self, args: Sequence[object], rounds: int) -> tuple[ThunkTime, ...]:
        """The time of each thunk of the plan, run one at a time."""
