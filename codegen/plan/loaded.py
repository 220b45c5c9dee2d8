"""The interface of loaded bundles and functions on every target, and the times they report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ThunkTime:
    """The time of one thunk.

    ``seconds`` is the best of the runs, including a fraction of a microsecond for the call from
    Python. ``name`` is the group's name, ``task`` its canonical key (empty for copies and control
    flow); ``bytes`` are read and written by one run.
    """

    name: str
    task: str
    seconds: float
    bytes: int


class Loaded(Protocol):
    """A bundle that can run in this process."""

    @property
    def call(self) -> Callable[..., Any]:
        """The function that Python calls with a call's arguments."""

    def run(self, args: Sequence[object], out: object) -> Any:
        """Run the program; the results go to ``out`` unless it is None."""

    def put(self, value: Any) -> Any:
        """Copy an array to where the program runs, so that a call need not."""

    def seconds(self, action: Callable[[], object]) -> float:
        """Return the time of the work that an action runs or submits."""

    def join(self, communicator: Any) -> None:
        """Run collectives by a communicator from now on."""

    def profile(self, args: Sequence[object], rounds: int) -> tuple[ThunkTime, ...]:
        """Return the time of each thunk of the plan, run one at a time."""


class LoadedFunc(Protocol):
    """A single function that can run in this process or on a device."""

    def run(self, args: Sequence[object], out: object) -> Any:
        """Run the function; the results go to ``out`` unless it is None."""
