"""Readings of a machine, faults that make them worthless, and what they say of its cores.

A reading is refused rather than corrected: the row of the processor's family is then used, which
is never far off, while one false figure would mislead every estimate on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from ...ir.cores import LEVELS, CpuCore
from ...ir.dtypes import f32
from ...ir.target import Target
from ..log.records import quantile
from ..measure.host.peak import Reading

Name: TypeAlias = tuple[str, str, int]
"""A reading's quantity, level (``l1`` to ``memory``, or ``""``) and number of threads."""

STREAMS = ("read", "copy")
QUIET = 0.9  # share of its core that a thread has on a quiet machine
SPREAD = 1.25  # between the best repetition and the median
TOLERANCE = 1.2  # between two rates of which one bounds the other
TURBO = 1.1  # clock of vector code relative to that of the chain of steps, at most
CLOCKS = (2e8, 1e10)  # Hz, of any processor
WIDEST = 2.0  # FMAs of full width per cycle that a processor of an unknown row may have


@dataclass(frozen=True, slots=True)
class Calibration:
    """The rates of a machine: Hz, operations, bytes or parallel loops per second."""

    rates: Mapping[Name, float]

    def of(self, what: str, level: str = "", threads: int = 1) -> float | None:
        """Return a rate; None if it was not measured."""
        return self.rates.get((what, level, threads))

    def core(self, target: Target) -> CpuCore:
        """Return the target's row with what was measured in place of its figures."""
        row, all_of = target.core, target.threads
        clock = self.of("clock") or row.clock
        caches = [
            c._replace(rate=rate / clock) if (rate := self.of("read", level)) else c
            for level, c in row.caches.items()
        ]
        forks = self.of("fork", "", all_of)
        flops = self.of("fma")
        per_cycle = (flops or 0.0) / (2 * target.lanes(f32) * clock)
        fmas = per_cycle * row.turns(target.vector_bits)
        return row._replace(
            clock=clock,
            fmas=max(0.5, round(2 * fmas) / 2) if flops else row.fmas,
            l1=caches[0],
            l2=caches[1],
            l3=caches[2],
            read=self.of("read", "memory") or row.read,
            read_all=self.of("read", "memory", all_of) or row.read_all,
            copy=self.of("copy", "memory") or row.copy,
            copy_all=self.of("copy", "memory", all_of) or row.copy_all,
            fork=clock / forks if forks else row.fork,
        )


def calibration(readings: Mapping[Name, Reading]) -> Calibration:
    """Return the rates of readings: of each the median of its repetitions."""
    return Calibration({name: quantile(r.rates, 0.5) for name, r in readings.items()})


def unsteady(name: Name, reading: Reading) -> str:
    """Return why a reading was not of a quiet machine, in one line; "" if it was."""
    share, typical = quantile(reading.shares, 0.5), quantile(reading.rates, 0.5)
    if share < QUIET:
        return f"{called(name)}: other programs had {1 - share:.0%} of a core"
    if not typical > 0 or reading.best > SPREAD * typical:
        faster = _over(reading.best, typical)
        return f"{called(name)}: the best repetition is {faster} than the typical one"
    return ""


def contradiction(found: Calibration, target: Target) -> str:
    """Return why rates cannot all be true, in one line; "" if they can."""
    for name, rate in found.rates.items():
        if not 0 < rate < math.inf:
            return f"{called(name)}: {rate} is no rate"
    for why in (*_clock(found), *_peak(found, target), *_threads(found, target), *_order(found)):
        return why
    return ""


def called(name: Name) -> str:
    """Return a reading's name in words."""
    what, level, threads = name
    words = {"read": f"reading {level}", "copy": f"copying in {level}", "fma": "multiply-adds"}
    words |= {"fork": "parallel loops", "clock": "clock"}
    many = f"{threads} threads" if threads > 1 else "one thread"
    return f"{words.get(what, what)} with {many}"


def _clock(found: Calibration) -> Iterator[str]:
    clock = found.of("clock")
    if clock is not None and not CLOCKS[0] <= clock <= CLOCKS[1]:
        yield f"a clock of {clock / 1e9:.2f} GHz"


def _peak(found: Calibration, target: Target) -> Iterator[str]:
    """Yield a rate of multiply-adds above what vectors and clock allow."""
    clock = found.of("clock") or target.core.clock
    per_cycle = max(WIDEST, target.core.fmas / target.core.turns(target.vector_bits))
    most = 2 * target.lanes(f32) * per_cycle * clock * TURBO
    for (what, _, threads), rate in found.rates.items():
        if what == "fma" and rate > most * threads:
            yield (
                f"{called((what, '', threads))}: {rate / 1e9:.0f} GFLOP/s are more than "
                f"{clock / 1e9:.2f} GHz allow"
            )


def _threads(found: Calibration, target: Target) -> Iterator[str]:
    """Yield rates of one thread that all threads together do not reach."""
    for (what, level, threads), rate in found.rates.items():
        both = found.of(what, level, target.threads)
        if threads < target.threads and both is not None and rate > TOLERANCE * both:
            yield f"{called((what, level, threads))} is {_over(rate, both)} than with all"


def _order(found: Calibration) -> Iterator[str]:
    """Yield a level that is faster than one nearer to the core."""
    for what in STREAMS:
        for near, far in pairwise(LEVELS):
            yield from _faster(found, what, near, far)
        yield from _faster(found, what, "l1", "l3")


def _faster(found: Calibration, what: str, near: str, far: str) -> Iterator[str]:
    a, b = found.of(what, near), found.of(what, far)
    if a is not None and b is not None and b > TOLERANCE * a:
        yield f"{called((what, far, 1))} is {_over(b, a)} than {near}"


def _over(a: float, b: float) -> str:
    return f"{a / b:.1f} times faster" if b > 0 else "without bound faster"


def names(levels: Sequence[str], threads: int) -> tuple[Name, ...]:
    """Return what is read of a machine with some levels: with one thread and with all."""
    counts = (1,) if threads == 1 else (1, threads)
    streams = [(s, level, n) for level in levels for s in STREAMS for n in counts]
    forks: list[Name] = [("fork", "", threads)] if threads > 1 else []
    return ("clock", "", 1), *(("fma", "", n) for n in counts), *streams, *forks
