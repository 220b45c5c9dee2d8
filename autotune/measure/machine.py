"""Machines that a measuring child times candidates on: this CPU, or a GPU.

``METERS`` has a row for each place where code can run; the module that measures there is imported
on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Protocol

from ...ir.arrays import Array
from ...ir.errors import TargetError
from ...ir.loop.nodes import Func
from ...ir.target import Place, Target
from ..log.records import Json
from ..tasks.programs import Program
from .host.peak import Peak
from .timing import Clock, Regain


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """The outputs of a checked run, valid until the next run, and its damage ("" if none)."""

    results: Sequence[Array]
    damage: str = ""


class Runnable(Protocol):
    """A candidate's loaded code. ``facts`` are the compiler's facts about it."""

    facts: Mapping[str, Json]

    def trial(self, arguments: Sequence[Array], pattern: int, upper: bool) -> CheckedRun:
        """Run once in separate buffers, of which all but the inputs hold the byte ``pattern``.

        The memory around them is watched or guarded: above them with ``upper``, else below.
        """

    def again(self, pattern: int) -> CheckedRun:
        """Run once more in the buffers used for timing, with the workspace as timing left it."""

    def call(self, times: int) -> None:
        """Run ``times`` times, with the caches as in the model each time."""


class Machine(Protocol):
    """One program's buffers on the machine, and a clock for code that runs there.

    A timed sample should have calls for ``sample`` seconds; 0 if each call is prepared and timed
    alone.
    """

    clock: Clock
    sample: float

    def compile(self, func: Func) -> Runnable:
        """Compile and load a schedule of the program's function."""

    def library(self, name: str) -> Runnable:
        """Return a library function on the program's buffers."""

    def alone(self) -> AbstractContextManager[None]:
        """Return a context for timing code."""

    def regain(self, least: float) -> bool:
        """Wait until the cores run at their usual pace, as a ``Regain`` does."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Running and timing of code in one kind of place.

    ``machine`` prepares a program there, from its arguments and the reuse distance of each input in
    bytes. ``clock`` times code there, in the context ``alone`` and where ``regain`` finds the cores
    at their pace. ``peak`` measures the place's peaks, ``rate`` only its f32 operations per second,
    and ``stream`` the bytes per second from beyond the L2 caches; 0 if no single figure bounds
    them. ``kind`` names the class of machines whose times may be compared with each other.
    """

    machine: Callable[[Program, Sequence[Array], Target, Sequence[float]], Machine]
    clock: Callable[[Target], Clock]
    alone: Callable[[Target], AbstractContextManager[None]]
    regain: Callable[[Target], Regain]
    peak: Callable[[Target], Peak]
    rate: Callable[[Target], float]
    stream: Callable[[Target], float]
    kind: Callable[[Target], str]


@dataclass(frozen=True, slots=True)
class MeterRow:
    """A kind of place, and the module that has its ``METER``.

    ``ahead`` times as many candidates are compiled as are timed, if the compiler's facts help to
    choose. The address space of a measuring child is ``limited``, unless a driver reserves more
    than the machine has.
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
    """Measure the peaks of a target, once per process."""
    return meter(target).peak(target)


@cache
def measure_rate(target: Target) -> float:
    """Measure the peak f32 operations per second; 0 if no single figure bounds them."""
    return meter(target).rate(target)


@cache
def measure_stream(target: Target) -> float:
    """Measure the bytes per second from beyond the L2 caches; 0 if no single figure bounds them."""
    return meter(target).stream(target)


def machine_class(target: Target) -> str:
    """Return the class of this machine: processor and caches, or GPU; times of it compare."""
    return meter(target).kind(target)


def require_timeable(target: Target, doing: str, hint: str = "") -> None:
    """Raise ``TargetError`` if timing is meaningless; ``doing`` is the requested action."""
    if target.row.simulated:
        why = "a simulator's time says nothing about a GPU's"
        raise TargetError(f"cannot {doing} {target.spec}", why, hint=hint)


def copies(size: int, caches: int, most: int) -> int:
    """Return the number of sets of ``size`` bytes that evicts each from the caches between uses."""
    return max(1, min(most, -(-caches // max(1, size))))
