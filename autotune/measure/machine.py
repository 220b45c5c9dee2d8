"""What a measuring child times candidates on: this processor, or a GPU.

``METERS`` has a row for each place where code may run; the module that measures there is imported
when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...ir.errors import TargetError
from ...ir.loop.nodes import Func
from ...ir.target import Place, Target
from ..log.records import Json
from ..tasks.programs import Program
from .peak import Peak
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


@dataclass(frozen=True, slots=True)
class Meter:
    """How code is run and timed in one kind of place.

    ``machine`` makes a program ready there: its arguments, and for each input how many bytes pass
    between two uses of it in the model. ``clock`` is fair to what runs there, ``alone`` is in force
    while it is read. ``peak`` measures what the place can do at best, ``rate`` no more than its f32
    operations per second, 0 where no one figure bounds them.
    """

    machine: Callable[[Program, Sequence[Array], Target, Sequence[float]], Machine]
    clock: Callable[[Target], Clock]
    alone: Callable[[Target], AbstractContextManager[None]]
    peak: Callable[[Target], Peak]
    rate: Callable[[Target], float]


@dataclass(frozen=True, slots=True)
class MeterRow:
    """A kind of place, and the module that has its ``METER``.

    ``ahead`` times as many candidates are compiled as are timed, where what the compiler says of
    them helps to choose. The address space of a measuring child is ``limited`` but where a driver
    reserves more than a machine has.
    """

    module: str
    ahead: int = 1
    limited: bool = True


METERS: Mapping[Place, MeterRow] = {
    "process": MeterRow(".processor"),
    "device": MeterRow(".device", ahead=2, limited=False),
}


def meter_row(target: Target) -> MeterRow:
    """Return the row of the place where code for a target runs."""
    return METERS[target.row.place]


def meter(target: Target) -> Meter:
    """Return how code for a target is run and timed."""
    found: Meter = import_module(meter_row(target).module, __package__).METER
    return found


@cache
def measure_peak(target: Target) -> Peak:
    """Return what the target can do at best."""
    return meter(target).peak(target)


@cache
def measure_rate(target: Target) -> float:
    """Return the most f32 operations per second of a target; 0 where no one figure bounds them."""
    return meter(target).rate(target)


def require_timeable(target: Target, doing: str, hint: str = "") -> None:
    """Raise ``TargetError`` where time says nothing; ``doing`` is what was asked."""
    if target.row.simulated:
        why = "a simulator's time says nothing about a GPU's"
        raise TargetError(f"cannot {doing} {target.spec}", why, hint=hint)


def copies(size: int, caches: int, most: int) -> int:
    """How many sets of ``size`` bytes it takes until one has left the caches by its next turn."""
    return max(1, min(most, -(-caches // max(1, size))))
