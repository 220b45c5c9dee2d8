"""Records of the tuning log: one frozen value per line kind.

A log is self-contained: workload lines hold the program text, device lines describe what a target
key means, trial lines hold a trace that can be replayed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ...ir.target import Target

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

DEFAULT_SKETCH = "default"
LIBRARY_SKETCH = "library"
"""The sketch of a trial of a library function; its one decision is the function's name."""
CLEAR = 0.98  # largest share of another's time that counts as clearly faster


@dataclass(frozen=True, slots=True)
class Header:
    """The tool that wrote the log, and when (seconds since 1970)."""

    tool: Mapping[str, str]
    created: float


@dataclass(frozen=True, slots=True)
class Workload:
    """A program to tune. ``id`` is its key; ``form`` is the language of ``text``: hlo or loop."""

    id: str
    name: str
    form: str
    text: str
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A target: its key, the specification that parses to it, and facts about the machine."""

    id: str
    spec: str
    facts: Mapping[str, Json]

    @property
    def accuracy(self) -> float:
        """The error that its schedules may add to rounding; infinite if it is not a number."""
        told = self.facts.get("accuracy", 0.0)
        return float(told) if isinstance(told, int | float) else math.inf


@dataclass(frozen=True, slots=True)
class Model:
    """A model: its workloads, each with the number of times that it occurs."""

    id: str
    name: str
    device: str
    tasks: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One schedule tried. ``runs``: seconds per call; ``trace`` replays it (None: never made).

    With status ``estimated`` nothing was measured: the only run is the analytic estimate.
    ``drift`` is the slowdown of the machine since the task's yardstick was taken, ``code`` the
    compiler's facts about the code, such as the registers of a GPU's kernels. ``machine`` is the
    class of the machine that measured, "" in logs that do not tell; times of one class compare.
    ``predicted`` are the seconds that the learned model told when it was chosen, None without one.
    """

    workload: str
    device: str
    sketch: str
    decisions: Mapping[str, Json]
    status: str
    source: str
    runs: tuple[float, ...] = ()
    trace: list[Json] | None = None
    seed: int = 0
    note: str = ""
    tool: Mapping[str, str] = field(default_factory=dict)
    ts: float = 0.0
    id: str = ""
    drift: float = 1.0
    code: Mapping[str, Json] = field(default_factory=dict)
    machine: str = ""
    predicted: float | None = None

    @property
    def cost(self) -> float:
        """Seconds per call to rank by, infinite if it failed.

        The typical run, corrected by the slowdown of the machine.
        """
        ran = self.ran and self.runs
        return typical(self.runs) / self.drift if ran else math.inf

    @property
    def ran(self) -> bool:
        """True if there is a time, measured or estimated."""
        return self.status in ("ok", "estimated")

    @property
    def point(self) -> tuple[str, str, str, str]:
        """The identity of the schedule: trials with equal points tried the same one."""
        return self.workload, self.device, self.sketch, canonical(dict(self.decisions))


@dataclass(frozen=True, slots=True)
class Best:
    """A task's winner of a race against the default schedule, timed side by side.

    ``trial`` is the winner's id; ``trace`` is repeated so that the line is self-contained.
    ``error`` is the winner's largest difference from the interpreter, relative to the result's root
    mean square.
    """

    workload: str
    device: str
    trial: str
    sketch: str
    decisions: Mapping[str, Json]
    trace: list[Json]
    runs: tuple[float, ...]
    default_runs: tuple[float, ...]
    error: float
    ts: float = 0.0
    id: str = ""

    @property
    def seconds(self) -> float:
        """The winner's seconds per call, the typical run."""
        return typical(self.runs)

    @property
    def default_seconds(self) -> float:
        """The default schedule's seconds per call in the same race."""
        return typical(self.default_runs)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of racing a whole model, built with its groups' winners, against its default.

    ``model`` and ``device`` are ids. ``picks`` pairs each tuned workload of the model with the id
    of the ``Trial`` whose schedule it keeps, "" for the default schedule. ``runs`` and
    ``default_runs`` are seconds per call, timed in turns; both are empty if every group keeps its
    default, because both programs are the same then. ``cut``: time was up before every winner had
    been tried.
    """

    model: str
    device: str
    picks: tuple[tuple[str, str], ...]
    runs: tuple[float, ...] = ()
    default_runs: tuple[float, ...] = ()
    cut: bool = False
    ts: float = 0.0
    id: str = ""

    @property
    def speedup(self) -> float:
        """Default over tuned, the median over the rounds; 1 if both programs are the same."""
        return quantile(ratios(self.default_runs, self.runs), 0.5) if self.runs else 1.0


Record: TypeAlias = Header | Workload | DeviceRecord | Model | Trial | Best | Verdict


def device_id(target: Target) -> str:
    """Return the device id of measured trials: the target's key and its number of threads."""
    return f"{target.key}-t{target.threads}"


_ESTIMATED = "-estimated"


def estimates_id(target: Target) -> str:
    """Return the device id of estimates, distinct from that of measurements."""
    return target.key + _ESTIMATED


def holds_estimates(device: str) -> bool:
    """True if a device id is one of estimates."""
    return device.endswith(_ESTIMATED)


def quantile(values: tuple[float, ...], q: float) -> float:
    """Return the ``q`` quantile of numbers, by linear interpolation."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def typical(runs: tuple[float, ...]) -> float:
    """Return the representative of several timings: their lower quartile."""
    return quantile(runs, 0.25)


def ratios(default: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """Return default over the other, run by run: above 1 the other is faster."""
    return tuple(d / t for d, t in zip(default, other, strict=True))


def clearly_faster(seconds: float, default: float) -> bool:
    """True if a schedule is faster than the default by more than the error of timing."""
    return seconds <= CLEAR * default


def canonical(value: Json) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Json) -> str:
    """Return a content hash of a JSON value, 32 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:32]
