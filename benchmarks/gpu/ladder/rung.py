"""``Rung``: one mechanism that works or does not, its limits, and its messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from nestwright.ir.arrays import Array

WORST_SHOWN = 3  # wrong elements that a message has


class Skipped(Exception):
    """A rung cannot be tried here; the text says why."""


class Wrong(Exception):
    """A rung was tried and its mechanism does not work; the first line says how it shows."""


class Needs(Enum):
    """The least that a rung needs in a dry run."""

    KERNELS = "kernels"  # simulated ones will do
    DRIVER = "driver"  # a driver's functions, with simulated kernels behind them
    GPU = "gpu"


@dataclass(frozen=True)
class Program:
    """A program to build: HLO, target options, and forced choices of a sketch of products."""

    name: str
    hlo: str
    options: str = ""
    choices: Mapping[str, int | str] = field(default_factory=dict)
    sketch: str = "gpu_mma"


@dataclass(frozen=True)
class Rung:
    """A row of the table. ``run`` gets a ``site.Site`` and gives the fact that its line ends with.

    ``program`` makes the program of each of the ``sizes`` (of those of ``dry`` in a dry run).
    ``seconds`` is the limit from when it may use the GPU, ``prepare`` that of the builds before.
    ``env`` is set in its process. One that ``ends`` the GPU's context needs a process of its own.
    """

    name: str
    run: Callable[[Any], str]
    about: str
    program: Callable[[int], Program] | None = None
    sizes: tuple[int, ...] = ()
    dry: tuple[int, ...] = ()
    needs: Needs = Needs.KERNELS
    seconds: float = 20.0
    prepare: float = 120.0
    env: Mapping[str, str] = field(default_factory=dict)
    ends: bool = False

    def programs(self, dry: bool) -> dict[int, Program]:
        """Return the programs to build, by size."""
        sizes = self.dry if dry else self.sizes
        return {} if self.program is None else {size: self.program(size) for size in sizes}


def expect(holds: object, message: str) -> None:
    """``Wrong`` with this message unless it holds."""
    if not holds:
        raise Wrong(message)


def expect_equal(got: Array, want: Array, what: str) -> None:
    """``Wrong`` unless all elements are the same, bit by bit but for the sign of zero."""
    _same_kind(got, want, what)
    with np.errstate(invalid="ignore"):
        bad = got != want
    if bad.any():
        raise Wrong(f"{what}: {_where(bad, got, want)}")


def expect_near(got: Array, want: Array, tolerance: float, what: str) -> float:
    """Return the largest error relative to the root of the mean square; ``Wrong`` beyond the
    tolerance.
    """
    _same_kind(got, want, what)
    wide, right = got.astype(np.float64), np.asarray(want, np.float64)
    scale = max(float(np.sqrt((right**2).mean())), 1e-30) if right.size else 1.0
    with np.errstate(invalid="ignore"):
        errors = np.abs(wide - right) / scale
        bad = ~(errors <= tolerance)
    if bad.any():
        raise Wrong(f"{what}: off by more than {tolerance:g}: {_where(bad, got, want)}")
    return float(errors.max(initial=0.0))


def _same_kind(got: Array, want: Array, what: str) -> None:
    expect(got.shape == want.shape, f"{what}: shape {got.shape} for {want.shape}")


def _where(bad: Array, got: Array, want: Array) -> str:
    """Describe wrong elements: their number, bounding box, and some of them."""
    places = np.argwhere(bad)
    box = "".join(f"[{a}:{b + 1}]" for a, b in zip(places.min(0), places.max(0), strict=True))
    some = "; ".join(
        f"{tuple(map(int, p))}: {got[tuple(p)]} for {want[tuple(p)]}" for p in places[:WORST_SHOWN]
    )
    return f"{len(places)} of {bad.size} wrong, within {box or '[]'}: {some}"
