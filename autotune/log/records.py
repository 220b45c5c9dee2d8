"""Records of the tuning log: one frozen value per line kind, and their JSON form.

A log is JSON lines. Every line is an object with ``k`` (its kind), ``v`` (the version of this
format) and, but for the header, ``id`` (a hash of its content). A log explains itself: workload
lines hold the program text, device lines say what a target key stands for, trial lines hold the
trace that replays. Reading a line runs nothing; a line that is not what it claims is a ``BadLine``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...ir.target import Target

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

VERSION = 1
MAX_LINE = 16 << 20  # bytes; a workload line holds a whole group's text
MAX_DEPTH = 64
STATUSES = ("ok", "estimated", "invalid", "build", "timeout", "wrong", "crash", "oom")
DEFAULT_SKETCH = "default"
CLEAR = 0.98  # what takes at most this share of another's time is clearly faster


class BadLine(ValueError):
    """A log line that does not hold what its kind promises."""


class UnknownVersion(BadLine):
    """A line written by a newer format."""


@dataclass(frozen=True, slots=True)
class Header:
    """What wrote the log, and when (seconds since 1970)."""

    tool: Mapping[str, str]
    created: float


@dataclass(frozen=True, slots=True)
class Workload:
    """A program that is tuned. ``id`` is its key; ``form`` says how to read it: hlo, loop."""

    id: str
    name: str
    form: str
    text: str
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """What a target key stands for: the specification that parses to it, and facts for people."""

    id: str
    spec: str
    facts: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Model:
    """Which workloads a model consists of, with how often each occurs."""

    id: str
    name: str
    device: str
    tasks: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One schedule tried. ``runs``: seconds per call; ``trace`` replays it (None: never made).

    Where the status is ``estimated`` nothing was measured: the one run is the analytic estimate.
    ``drift`` says how much slower the machine was than when the task's yardstick was taken,
    ``code`` what the compiler said of the code, such as the registers that a GPU's kernels take.
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

    @property
    def cost(self) -> float:
        """Seconds per call to choose by, infinite if it failed.

        That is the lower quartile of the runs, corrected by how much slower the machine was.
        """
        ran = self.ran and self.runs
        return typical(self.runs) / self.drift if ran else math.inf

    @property
    def ran(self) -> bool:
        """Whether there is a time, measured or estimated."""
        return self.status in ("ok", "estimated")

    @property
    def point(self) -> tuple[str, str, str, str]:
        """What was tried: two trials with equal points tried the same schedule."""
        return self.workload, self.device, self.sketch, canonical(dict(self.decisions))


@dataclass(frozen=True, slots=True)
class Best:
    """A task's winner of a race against the default schedule, timed side by side.

    ``trial`` is the winner's id; ``trace`` is repeated so that the line stands alone. ``error`` is
    the winner's largest difference from the interpreter, relative to the result's root mean square.
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
        """The winner's seconds per call, typical of its runs."""
        return typical(self.runs)

    @property
    def default_seconds(self) -> float:
        """The same of the default schedule in the same race."""
        return typical(self.default_runs)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of racing a whole model, built with its groups' winners, against its default.

    ``model`` and ``device`` are ids. ``picks`` pairs each tuned workload of the model with the id
    of the ``Trial`` whose schedule it keeps, "" for the default schedule. ``runs`` and
    ``default_runs`` are seconds per call, timed in turns; both are empty where every group keeps
    its default, because the two are one and the same program then. ``cut``: time was up before
    every winner had been tried.
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
        """Default over tuned: the median over the rounds; 1 for one and the same program."""
        return quantile(ratios(self.default_runs, self.runs), 0.5) if self.runs else 1.0


Record: TypeAlias = Header | Workload | DeviceRecord | Model | Trial | Best | Verdict


def device_id(target: Target) -> str:
    """What trials are filed under: the code's target and the number of threads that ran it."""
    return f"{target.key}-t{target.threads}"


_ESTIMATED = "-estimated"


def estimates_id(target: Target) -> str:
    """What estimates are filed under, where they cannot be taken for measurements."""
    return target.key + _ESTIMATED


def holds_estimates(device: str) -> bool:
    """Whether what is filed under a device was never measured."""
    return device.endswith(_ESTIMATED)


def quantile(values: tuple[float, ...], q: float) -> float:
    """The ``q`` quantile of a few numbers, by linear interpolation."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def typical(runs: tuple[float, ...]) -> float:
    """What stands for several timings of one thing: their lower quartile."""
    return quantile(runs, 0.25)


def ratios(default: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """Default over the other, run by run: above 1 the other is faster."""
    return tuple(d / t for d, t in zip(default, other, strict=True))


def clearly_faster(seconds: float, default: float) -> bool:
    """Whether a schedule beats the default by more than timing can be wrong about."""
    return seconds <= CLEAR * default


def canonical(value: Json) -> str:
    """The one JSON text of a value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Json) -> str:
    """A content hash of a JSON value, 32 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:32]


def _body(record: Record) -> dict[str, Any]:
    """The fields of a line without ``k``, ``v`` and a derived ``id``."""
    match record:
        case Header(tool=tool, created=created):
            return {"tool": dict(tool), "created": created}
        case Workload(id=key, name=name, form=form, text=text, flops=flops, bytes=size):
            return {"id": key, "name": name, "form": form, "text": text, "flops": flops,
                    "bytes": size}  # fmt: skip
        case DeviceRecord(id=key, spec=spec, facts=facts):
            return {"id": key, "spec": spec, "facts": dict(facts)}
        case Model(name=name, device=device, tasks=tasks):
            return {"name": name, "d": device, "tasks": [list(t) for t in tasks]}
        case Trial():
            return _trial_body(record)
        case Best():
            return _best_body(record)
        case Verdict():
            return _verdict_body(record)


def _trial_body(t: Trial) -> dict[str, Any]:
    body: dict[str, Any] = {
        "w": t.workload, "d": t.device, "sketch": t.sketch, "dec": dict(t.decisions),
        "trace": t.trace, "status": t.status,
        "t": {"unit": "s", "runs": list(t.runs), "drift": t.drift},
        "src": t.source, "seed": t.seed, "tool": dict(t.tool), "ts": t.ts,
    }  # fmt: skip
    if t.code:
        body["code"] = dict(t.code)
    return body | {"note": t.note} if t.note else body


def _best_body(b: Best) -> dict[str, Any]:
    return {
        "w": b.workload, "d": b.device, "trial": b.trial, "sketch": b.sketch,
        "dec": dict(b.decisions), "trace": b.trace,
        "t": {"unit": "s", "runs": list(b.runs), "default": list(b.default_runs)},
        "error": b.error, "ts": b.ts,
    }  # fmt: skip


def _verdict_body(v: Verdict) -> dict[str, Any]:
    return {
        "m": v.model, "d": v.device, "picks": [list(p) for p in v.picks],
        "t": {"unit": "s", "runs": list(v.runs), "default": list(v.default_runs)},
        "cut": v.cut, "ts": v.ts,
    }  # fmt: skip


def identify(record: Record) -> str:
    """The id of a record: as given for workloads and devices, else the hash of its content."""
    match record:
        case Workload(id=key) | DeviceRecord(id=key):
            return key
        case _:
            return digest(_body(record))


def encode(record: Record) -> str:
    """One line, without its line feed."""
    head: dict[str, Any] = {"k": _KINDS[type(record)], "v": VERSION}
    if not isinstance(record, Header):
        head["id"] = identify(record)
    return json.dumps(head | _body(record), separators=(",", ":"), allow_nan=False)


def decode(line: bytes) -> Record | None:
    """The record on a line; None for a kind that this version does not know.

    Raises ``UnknownVersion`` for another version, ``BadLine`` for what is not a record.
    """
    return record_of(fields_of(line))


def fields_of(line: bytes) -> dict[str, Any]:
    """The fields of a line of this version; raises as ``decode``."""
    if len(line) > MAX_LINE:
        raise BadLine(f"{len(line)} bytes; a line has at most {MAX_LINE}")
    try:
        value = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise BadLine(f"not JSON ({type(e).__name__})") from None
    if not isinstance(value, dict) or "k" not in value:
        raise BadLine("not a log line: an object with a kind (k) is wanted")
    version = value.get("v")
    if type(version) is not int or version < 1:
        raise BadLine("the version (v) is not a whole number from 1 on")
    if version != VERSION:
        raise UnknownVersion(f"log version {version}; this program reads {VERSION}")
    if _depth(value) > MAX_DEPTH:
        raise BadLine(f"nested deeper than {MAX_DEPTH}")
    return value


def is_unchanged(value: Mapping[str, Any]) -> bool:
    """Whether the fields of a line have the id that they claim; some kinds' ids are keys."""
    if value["k"] in _KEYED:
        return True
    body = {name: field for name, field in value.items() if name not in ("k", "v", "id")}
    return digest(body) == value.get("id")


_KEYED = ("header", "workload", "device")


def record_of(value: Mapping[str, Any]) -> Record | None:
    """The record that a line's fields are, None for an unknown kind; ``BadLine`` as ``decode``."""
    reader = _READERS.get(str(value["k"]))
    try:
        return None if reader is None else reader(dict(value))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
        raise BadLine(f"{value['k']} line without a usable {e}") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _depth(value: Json) -> int:
    level, deepest = [value], 0
    while level:
        deepest += 1
        inner: list[Json] = []
        for v in level:
            if isinstance(v, dict):
                inner.extend(v.values())
            elif isinstance(v, list):
                inner.extend(v)
        level = inner
        if deepest > MAX_DEPTH:
            break
    return deepest


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(name)
    return value


def _times(value: Any, name: str) -> tuple[float, ...]:
    runs = tuple(float(x) for x in value)
    if not all(0 < x < 1e6 for x in runs):
        raise ValueError(name)
    return runs


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(name)
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(name)
    return value


def _read_header(v: dict[str, Any]) -> Header:
    return Header(_mapping(v["tool"], "tool"), float(v["created"]))


def _read_workload(v: dict[str, Any]) -> Workload:
    if v["form"] not in ("hlo", "loop"):
        raise ValueError("form")
    return Workload(
        _text(v["id"], "id"), _text(v["name"], "name"), v["form"], _text(v["text"], "text"),
        float(v["flops"]), float(v["bytes"]),
    )  # fmt: skip


def _read_device(v: dict[str, Any]) -> DeviceRecord:
    return DeviceRecord(
        _text(v["id"], "id"), _text(v["spec"], "spec"), _mapping(v["facts"], "facts")
    )


def _read_model(v: dict[str, Any]) -> Model:
    tasks = tuple((_text(k, "tasks"), float(n)) for k, n in v["tasks"])
    return Model(_text(v["id"], "id"), _text(v["name"], "name"), _text(v["d"], "d"), tasks)


def _read_trial(v: dict[str, Any]) -> Trial:
    if v["status"] not in STATUSES:
        raise ValueError("status")
    trace = None if v["trace"] is None else _list(v["trace"], "trace")
    runs = _times(v["t"]["runs"], "time")
    if v["status"] in ("ok", "estimated") and (not runs or trace is None):
        raise ValueError("time or trace")
    return Trial(
        _text(v["w"], "w"), _text(v["d"], "d"), _text(v["sketch"], "sketch"),
        _mapping(v["dec"], "dec"), v["status"], _text(v["src"], "src"), runs, trace,
        int(v["seed"]), str(v.get("note", "")), _mapping(v["tool"], "tool"), float(v["ts"]),
        _text(v["id"], "id"), _times([v["t"].get("drift", 1.0)], "drift")[0],
        _mapping(v.get("code", {}), "code"),
    )  # fmt: skip


def _read_best(v: dict[str, Any]) -> Best:
    runs, default = _times(v["t"]["runs"], "time"), _times(v["t"]["default"], "time")
    if not runs or not default:
        raise ValueError("time")
    return Best(
        _text(v["w"], "w"), _text(v["d"], "d"), _text(v["trial"], "trial"),
        _text(v["sketch"], "sketch"), _mapping(v["dec"], "dec"), _list(v["trace"], "trace"),
        runs, default, float(v["error"]), float(v["ts"]), _text(v["id"], "id"),
    )  # fmt: skip


def _read_verdict(v: dict[str, Any]) -> Verdict:
    runs, default = _times(v["t"]["runs"], "time"), _times(v["t"]["default"], "time")
    if len(runs) != len(default):
        raise ValueError("time")
    picks = tuple((_text(w, "picks"), _text(pick, "picks")) for w, pick in v["picks"])
    return Verdict(
        _text(v["m"], "m"), _text(v["d"], "d"), picks, runs, default, bool(v["cut"]),
        float(v["ts"]), _text(v["id"], "id"),
    )  # fmt: skip


_KINDS: dict[type[Record], str] = {
    Header: "header",
    Workload: "workload",
    DeviceRecord: "device",
    Model: "model",
    Trial: "trial",
    Best: "best",
    Verdict: "verdict",
}
_READERS: dict[str, Callable[[dict[str, Any]], Record]] = {
    "header": _read_header,
    "workload": _read_workload,
    "device": _read_device,
    "model": _read_model,
    "trial": _read_trial,
    "best": _read_best,
    "verdict": _read_verdict,
}
