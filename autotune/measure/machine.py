"""What a measuring child times candidates on: this processor, or a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...ir.loop.nodes import Func
from ..log.records import Json
from .timing import Clock

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """One run on trial: every output, valid until the next run, and what it did that it may not
    ("": nothing)."""

    results: Sequence[Array]
    damage: str = ""


class Runnable(Protocol):
    """A candidate's code, loaded. ``facts`` are what its compiler says of it."""

    facts: Mapping[str, Json]

    def trial(self, arguments: Sequence[Array], pattern: int, upper: bool) -> CheckedRun:
        """One run in buffers of its own, of which all but the inputs hold the byte ``pattern``.

        What lies beside them is watched or may not be touched at all: behind them with ``upper``,
        else before them.
        """

    def again(self, pattern: int) -> CheckedRun:
        """One more run where timing ran, in a workspace as that left it."""

    def call(self, times: int) -> None:
        """Run so many times, on one set of buffers after the other."""


class Machine(Protocol):
    """One program's buffers on the machine, and a clock that is fair to what runs there."""

    clock: Clock

    def compile(self, func: Func) -> Runnable:
        """Compile and load a schedule of the program's function."""

    def alone(self) -> AbstractContextManager[None]:
        """In force while code is timed."""


def copies(size: int, caches: int, most: int) -> int:
    """How many sets of ``size`` bytes it takes until one has left the caches by its next turn."""
    return max(1, min(most, -(-caches // max(1, size))))
