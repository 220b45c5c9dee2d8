"""A machine that is played: a loop advances the clock of the thread that calls it."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import Any

from nestwright.autotune.measure.host.peak import Clocks, Looping

AMOUNT = 1e9  # of one call: bytes, operations, cycles, parallel loops
SIZES = (("l1", 40 << 10), ("l2", 800 << 10), ("l3", 16 << 20))  # the largest set in each level


def rates(**levels: float) -> dict[str, float]:
    """Return sensible rates of one thread, those named replaced."""
    plain = {"clock": 3e9, "fma": 170e9, "fork": 1e6}
    streams = {"l1": 300e9, "l2": 100e9, "l3": 30e9, "memory": 14e9}
    return plain | streams | levels


@dataclass
class PlayedMachine:
    """A processor whose clocks advance by what its loops do.

    ``one`` has the rates of one thread, ``together`` those of all threads where they are not as
    many times as high. Other programs have ``stolen`` of every core. Repetitions are slower by
    ``slowdowns``, in turn.
    """

    one: dict[str, float] = field(default_factory=rates)
    together: dict[str, float] = field(default_factory=dict)
    stolen: float = 0.0
    slowdowns: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        self._now: Any = threading.local()
        self._slowdowns = itertools.cycle(self.slowdowns)
        self.called: list[str] = []

    @property
    def clocks(self) -> Clocks:
        """The CPU time of a thread, and the wall time, in which others run too."""
        return Clocks(self._spent, lambda: self._spent() / (1 - self.stolen))

    def _spent(self) -> float:
        return float(getattr(self._now, "spent", 0.0))

    def _loop(self, name: str, threads: int) -> Looping:
        rate = self.one[name] if threads == 1 else self._each(name, threads)
        self.called.append(name)

        def call(number: int) -> None:
            if not hasattr(self._now, "slower"):  # a thread's first call: a new repetition
                self._now.slower = next(self._slowdowns)
            self._now.spent = self._spent() + AMOUNT / rate * self._now.slower

        return Looping(call, AMOUNT, threads)

    def _each(self, name: str, threads: int) -> float:
        return self.together.get(name, threads * self.one[name]) / threads

    def _level(self, size: int) -> str:
        return next((level for level, most in SIZES if size <= most), "memory")

    def fma(self, threads: int) -> Looping:
        """Multiply-adds."""
        return self._loop("fma", threads)

    def read(self, size: int, threads: int) -> Looping:
        """Reads of a working set."""
        return self._loop(self._level(size), threads)

    def copy(self, size: int, threads: int) -> Looping:
        """Copies, as fast as reads."""
        return self._loop(self._level(size), threads)

    def cycles(self) -> Looping:
        """Steps of one cycle."""
        return self._loop("clock", 1)

    def forks(self) -> Looping:
        """Parallel loops."""
        return self._loop("fork", 1)
