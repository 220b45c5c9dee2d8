"""The interface of loaded bundles and functions on every target, and the times they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ThunkTime:
    """The time of a thunk in one call of a model.

    ``seconds`` are those of all ``calls`` of the thunk together, without the thunks inside it.
    ``busy`` is the time of all threads in the ``parts`` of its parallel loops; None if that is not
    measured.
    """

    seconds: float
    calls: int
    busy: float | None = None
    parts: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """A thunk, or with ``part`` a piece of its parallel loop, on a thread.

    ``row`` is its number in the plan, outer thunks first. Thread 0 is the one that made the call.
    ``begin`` counts from the call's first event, in seconds.
    """

    row: int
    thread: int
    begin: float
    seconds: float
    part: bool = False


@dataclass(frozen=True, slots=True)
class Times:
    """Times of calls of a loaded model, in seconds.

    ``whole`` is that of calls as they are, ``probed`` of those in which thunks were timed, each the
    mean of the quicker half of the rounds. ``thunks`` are by number in the plan, and ``outside`` is
    what a probed call spent outside of them; on a device only the outermost thunks are timed, and
    nothing else. ``events`` are those of the quickest probed call, ``lost`` the number of those
    that were not kept. Of ``probed``, ``timing`` is what it takes to read the clocks.
    """

    rounds: int
    whole: float
    probed: float
    thunks: Mapping[int, ThunkTime]
    outside: float | None = None
    events: tuple[Event, ...] = ()
    lost: int = 0
    timing: float = 0.0


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

    def profile(self, args: Sequence[object], rounds: int | None) -> Times:
        """Return the times of calls and of their thunks, by default for about a second."""


class LoadedFunc(Protocol):
    """A single function that can run in this process or on a device."""

    def run(self, args: Sequence[object], out: object) -> Any:
        """Run the function; the results go to ``out`` unless it is None."""
