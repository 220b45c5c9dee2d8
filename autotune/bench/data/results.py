"""The result of a benchmark sweep, as frozen data that is written as JSON and read back.

Times are in seconds, rates per second, sizes in bytes. A latency is the time of one call from NumPy
arrays to NumPy arrays, as a user makes it. No text in here is an absolute path.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ....ir.errors import ReportError
from ....ir.files import whole_file
from ....ir.lazy import resolve
from ...attribute import Attribution
from ...explain.graph import ModelGraph
from ...log.records import Json, quantile, ratios
from ...measure.host.peak import Peak
from .decode import Mismatch, decoded

VERSION: Final = 1
DEFAULT, TUNED, CONTROL = "default", "tuned", "control"
"""Ways that every cell has: both builds, and the tuned one once more as if it were another."""

LEAST = 0.02  # spread that is assumed at least: timing has errors that no control shows
CENTER = 0.9  # share of a control's rounds that make its spread
MOST = 256 << 20  # bytes of a file


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of ``calls`` calls that were timed one by one, in seconds."""

    p50: float
    p90: float
    p99: float
    calls: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """Calls that ``callers`` Python threads finished together in ``seconds``.

    ``shared``: all called one executable; else each had an executable of its own.
    """

    callers: int
    shared: bool
    calls: int
    seconds: float

    @property
    def rate(self) -> float:
        """Calls per second of all callers together."""
        return self.calls / self.seconds


@dataclass(frozen=True, slots=True)
class WayBench:
    """One way to run a cell: a build of ours or a peer, or the ``problem`` that prevented it.

    ``runs`` are the seconds per call of each round; the rounds of all ways of a cell interleave, so
    that run n of two ways belongs together. ``detail`` says what runs, with its version. ``first``
    are the seconds from the model to the first result, compilation included. ``error`` is the
    largest ``relative_error`` of its results to the interpreter's (None: not checked).
    """

    name: str
    detail: str = ""
    runs: tuple[float, ...] = ()
    latency: Latency | None = None
    throughput: tuple[Throughput, ...] = ()
    first: float | None = None
    error: float | None = None
    problem: str = ""

    @property
    def seconds(self) -> float | None:
        """The median of the rounds; None if it did not run."""
        return quantile(self.runs, 0.5) if self.runs else None


@dataclass(frozen=True, slots=True)
class TrialBench:
    """A trial of the log: its number in the group's history, from 1, and its seed.

    ``seconds`` are None if it failed; ``at`` are the seconds since the first trial of the group
    with this seed; ``predicted`` are the analytic model's seconds where it has an estimate,
    ``learned`` those that the learned model told when the trial was chosen.
    """

    number: int
    seed: int
    at: float
    seconds: float | None
    status: str
    source: str
    predicted: float | None = None
    learned: float | None = None


@dataclass(frozen=True, slots=True)
class ScheduleBench:
    """A schedule of a group: its sketch, decisions and trace, its times and the predicted one.

    ``record`` is the id of the log's trial, "" for a default that no log decides. ``nest`` is the
    scheduled loop nest as text, "" where both schedules of a group are the same.
    """

    sketch: str
    decisions: Mapping[str, Json]
    trace: list[Json]
    runs: tuple[float, ...]
    predicted: float | None = None
    record: str = ""
    nest: str = ""

    @property
    def seconds(self) -> float:
        """The median of the runs; 0 if it did not run."""
        return quantile(self.runs, 0.5) if self.runs else 0.0


@dataclass(frozen=True, slots=True)
class GroupBench:
    """One distinct group: its default and tuned schedules, raced alone on caches as in the model.

    ``weight`` is how often one run of the model executes it, ``flops`` and ``bytes`` are of one
    execution. ``error`` is the tuned schedule's, relative to the root mean square of the
    interpreter's result. ``trials`` are those of the log on this device, the oldest first.
    ``attribution`` is what the tuned schedule's decisions buy, if that was measured. ``reach`` are
    the bytes within which the model used half of its data before, 0 where that is not known.
    """

    key: str
    name: str
    kind: str
    weight: float
    flops: float
    bytes: float
    default: ScheduleBench
    tuned: ScheduleBench
    error: float
    trials: tuple[TrialBench, ...] = ()
    note: str = ""
    attribution: Attribution | None = None
    reach: float = 0.0

    @property
    def working_set(self) -> float:
        """The bytes that a level of memory has to hold so that the group finds its data there."""
        return max(self.bytes, self.reach)

    @property
    def default_seconds(self) -> float:
        """Seconds per execution with the default schedule; 0 if it did not run."""
        return self.default.seconds

    @property
    def tuned_seconds(self) -> float:
        """Seconds per execution with the tuned schedule; 0 if it did not run."""
        return self.tuned.seconds

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """Pairs of a trial's number and the best seconds so far, from the first that ran."""
        points: list[tuple[int, float]] = []
        for t in self.trials:
            if t.seconds is not None:
                points.append((t.number, min(t.seconds, points[-1][1] if points else t.seconds)))
        return tuple(points)


@dataclass(frozen=True, slots=True)
class EdgeBench:
    """An edge of the model's graph, why it is fused or not, and the groups at its ends, by name."""

    producer: str
    consumer: str
    fused: bool
    reason: str
    producer_group: str
    consumer_group: str


@dataclass(frozen=True, slots=True)
class CellKey:
    """A place in the sweep. ``batch`` is None where the model's own sizes are used.

    ``log`` is the name of one of the report's logs, "" for none.
    """

    model: str
    target: str
    threads: int
    batch: int | None = None
    log: str = ""

    def __str__(self) -> str:
        batch = "" if self.batch is None else f", batch {self.batch}"
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''}"
        return (
            f"{self.model} on {self.target}, {threads}{batch}{', ' if self.log else ''}{self.log}"
        )


@dataclass(frozen=True, slots=True)
class CellBench:
    """One cell of the sweep; with a ``problem`` it has nothing else.

    ``flops`` and ``bytes`` are of one call. ``profile`` is that of the tuned build, as
    ``Profile.to_json`` gives it. ``warnings`` say why figures of this cell are not to be trusted.
    ``graph`` has its groups and what flows between them. ``inputs`` is a digest of all that decides
    its figures, "" where that is not known.
    """

    key: CellKey
    ways: tuple[WayBench, ...] = ()
    groups: tuple[GroupBench, ...] = ()
    edges: tuple[EdgeBench, ...] = ()
    flops: float = 0.0
    bytes: float = 0.0
    warnings: tuple[str, ...] = ()
    profile: Mapping[str, Json] | None = None
    problem: str = ""
    graph: ModelGraph | None = None
    inputs: str = ""

    def way(self, name: str) -> WayBench | None:
        """Return a way by its name; None if the cell has no such way."""
        return next((w for w in self.ways if w.name == name), None)

    def seconds(self, name: str) -> float | None:
        """Return the median seconds per call of a way; None if it did not run."""
        way = self.way(name)
        return None if way is None else way.seconds

    def speedup(self, name: str = TUNED, over: str = DEFAULT) -> float | None:
        """Return the seconds of way ``over`` over those of ``name``, the median of the rounds."""
        first, second = self.way(over), self.way(name)
        if first is None or second is None or not (first.runs and second.runs):
            return None
        return quantile(ratios(first.runs, second.runs), 0.5)

    @property
    def spread(self) -> float:
        """The relative difference that this cell cannot tell from none, by its A/A control.

        At least ``LEAST``; infinite without a control. Nine of ten rounds of the same build, timed
        as two ways, differ less.
        """
        first, second = self.way(TUNED), self.way(CONTROL)
        if first is None or second is None or not (first.runs and second.runs):
            return math.inf
        off = tuple(abs(math.log(r)) for r in ratios(first.runs, second.runs))
        return max(LEAST, math.expm1(quantile(off, CENTER)))


@dataclass(frozen=True, slots=True)
class LogBench:
    """A log of the sweep by its name, and the SHA-256 of its contents in 64 hex digits.

    ``problems`` are lines that were skipped, ``devices`` the targets that have trials, with their
    numbers of threads.
    """

    name: str
    sha256: str
    trials: int
    problems: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetPeak:
    """The peaks of a target with a number of threads."""

    target: str
    threads: int
    peak: Peak


@dataclass(frozen=True, slots=True)
class Change:
    """A way whose time is compared with an older report's.

    ``spread`` is the relative difference that both controls together allow; ``kind`` is
    ``regression``, ``gain`` or ``same``.
    """

    cell: CellKey
    way: str
    before: float
    after: float
    spread: float
    kind: str

    @property
    def ratio(self) -> float:
        """Time now over time before: above 1 it is slower."""
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class Against:
    """A comparison with an older report: when that was made, differences in kind, the changes."""

    created: float
    notes: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def regressions(self) -> tuple[Change, ...]:
        """The changes for the worse."""
        return tuple(c for c in self.changes if c.kind == "regression")


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The result of a sweep: data, JSON and one HTML page.

    ``machine`` has facts such as ``cpu``, ``cores``, ``vector_bits``, ``l1``, ``l2``, ``l3``;
    ``load`` is the one-minute load average before and after; ``versions`` are those of nestwright,
    its compiler, and the peers; ``created`` is in seconds since 1970. ``missing`` is the number of
    cells that a sweep had not measured when it was interrupted.
    """

    machine: Mapping[str, Json]
    load: tuple[float, ...]
    versions: Mapping[str, str]
    seed: int
    created: float
    cells: tuple[CellBench, ...]
    peaks: tuple[TargetPeak, ...] = ()
    logs: tuple[LogBench, ...] = ()
    warnings: tuple[str, ...] = ()
    against: Against | None = None
    missing: int = 0
    version: int = field(default=VERSION)

    def peak(self, key: CellKey) -> Peak | None:
        """Return the peaks of a cell's target; None if they were not measured."""
        found = (p.peak for p in self.peaks if (p.target, p.threads) == (key.target, key.threads))
        return next(found, None)

    def to_json(self) -> dict[str, Any]:
        """Return plain data: objects, lists, numbers and text, none of them infinite or NaN."""
        return asdict(self)

    @staticmethod
    def from_json(value: object) -> BenchReport:
        """Return the report that ``to_json`` gave; ``ReportError`` for anything else."""
        version = value.get("version") if isinstance(value, dict) else None
        if type(version) is not int:
            raise ReportError("not a benchmark report", "it has no version", hint=HINT)
        if version != VERSION:
            why = f"it is of version {version}, and this is nestwright of version {VERSION} reports"
            raise ReportError("cannot read the benchmark report", why, hint=HINT)
        try:
            return decoded(BenchReport, value)
        except Mismatch as e:
            raise ReportError("damaged benchmark report", str(e), hint=HINT) from None

    def text(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False) + "\n"

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Write the data as JSON, atomically."""
        _write(Path(path), self.text())

    def _repr_html_(self) -> str:
        table: str = resolve("...report.page:render_table", __package__)(self)
        return table

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Write the HTML page, atomically; it has no external resources."""
        page: str = resolve("...report.page:render", __package__)(self)
        _write(Path(path), page)


HINT = "`nestwright bench MODEL --json FILE` writes one"


def read_report(path: str | os.PathLike[str]) -> BenchReport:
    """Return the report of a JSON file; ``ReportError`` if it has none that can be read."""
    place = Path(path)
    try:
        if place.stat().st_size > MOST:
            raise ReportError("cannot read the report", "it is over 256 MiB", str(path))
        value = json.loads(place.read_bytes())
    except OSError as e:
        raise ReportError("cannot read the report", e.strerror or str(e), str(path)) from None
    except (ValueError, RecursionError):  # no JSON, no UTF-8, or too deep
        raise ReportError("not a benchmark report", "it is not JSON", str(path), HINT) from None
    try:
        return BenchReport.from_json(value)
    except ReportError as e:
        raise ReportError(e.what, e.why, str(path), e.hint) from None


def _write(path: Path, text: str) -> None:
    """Write a file atomically, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(text.encode())
