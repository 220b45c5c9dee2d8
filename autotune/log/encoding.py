"""JSON lines of the tuning log: encoding and decoding of records.

Every line is an object with ``k`` (its kind), ``v`` (the version of this format) and, except for
the header, ``id`` (a hash of its content). Decoding never executes anything; a malformed line
raises ``BadLine``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from .records import (
    Best,
    DeviceRecord,
    Header,
    Json,
    Model,
    Record,
    Trial,
    Verdict,
    Workload,
    digest,
)

VERSION = 1
MAX_LINE = 16 << 20  # bytes; a workload line holds a whole group's text
MAX_DEPTH = 64
STATUSES = ("ok", "estimated", "invalid", "build", "timeout", "wrong", "crash", "oom")


class BadLine(ValueError):
    """A malformed log line."""


class UnknownVersion(BadLine):
    """A line written by a newer format."""


def _body(record: Record) -> dict[str, Any]:
    """Return the fields of a line without ``k``, ``v`` and a derived ``id``."""
    match record:
        case Header(tool=tool, created=created):
            return {"tool": dict(tool), "created": created}
        case Workload(id=key, name=name, form=form, text=text, flops=flops, bytes=size):
            return {
                "id": key,
                "name": name,
                "form": form,
                "text": text,
                "flops": flops,
                "bytes": size,
            }
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
        "w": t.workload,
        "d": t.device,
        "sketch": t.sketch,
        "dec": dict(t.decisions),
        "trace": t.trace,
        "status": t.status,
        "t": {"unit": "s", "runs": list(t.runs), "drift": t.drift},
        "src": t.source,
        "seed": t.seed,
        "tool": dict(t.tool),
        "ts": t.ts,
    }
    if t.code:
        body["code"] = dict(t.code)
    if t.machine:
        body["machine"] = t.machine
    if t.predicted is not None:
        body["predicted"] = t.predicted
    return body | {"note": t.note} if t.note else body


def _best_body(b: Best) -> dict[str, Any]:
    return {
        "w": b.workload,
        "d": b.device,
        "trial": b.trial,
        "sketch": b.sketch,
        "dec": dict(b.decisions),
        "trace": b.trace,
        "t": {"unit": "s", "runs": list(b.runs), "default": list(b.default_runs)},
        "error": b.error,
        "ts": b.ts,
    }


def _verdict_body(v: Verdict) -> dict[str, Any]:
    return {
        "m": v.model,
        "d": v.device,
        "picks": [list(p) for p in v.picks],
        "t": {"unit": "s", "runs": list(v.runs), "default": list(v.default_runs)},
        "cut": v.cut,
        "ts": v.ts,
    }


def identify(record: Record) -> str:
    """Return a record's id: given for workloads and devices, else the hash of its content."""
    match record:
        case Workload(id=key) | DeviceRecord(id=key):
            return key
        case _:
            return digest(_body(record))


def encode(record: Record) -> str:
    """Return the line of a record, without its line feed."""
    head: dict[str, Any] = {"k": _KINDS[type(record)], "v": VERSION}
    if not isinstance(record, Header):
        head["id"] = identify(record)
    return json.dumps(head | _body(record), separators=(",", ":"), allow_nan=False)


class UnusableField(ValueError):
    """A field whose value is none of its kind; the text is its name."""


def decode(line: bytes) -> Record | None:
    """Return the record on a line; None for a kind that this version does not know.

    Raises ``UnknownVersion`` for another version, ``BadLine`` if the line is not a record.
    """
    return record_of(fields_of(line))


def fields_of(line: bytes) -> dict[str, Any]:
    """Return the fields of a line of this version; raises as ``decode``."""
    if len(line) > MAX_LINE:
        raise BadLine(f"{len(line)} bytes; a line has at most {MAX_LINE}")
    try:
        value = json.loads(line, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as e:
        raise BadLine(f"not JSON ({e.msg} at column {e.colno})") from None
    except (ValueError, RecursionError) as e:
        raise BadLine(f"not JSON ({e if type(e) is ValueError else type(e).__name__})") from None
    if not isinstance(value, dict) or "k" not in value:
        raise BadLine("not a log line: expected an object with a kind (k)")
    version = value.get("v")
    if type(version) is not int or version < 1:
        raise BadLine("the version (v) is not a positive integer")
    if version != VERSION:
        raise UnknownVersion(f"log version {version}; this program reads {VERSION}")
    if _depth(value) > MAX_DEPTH:
        raise BadLine(f"nested deeper than {MAX_DEPTH}")
    return value


def is_unchanged(value: Mapping[str, Any]) -> bool:
    """True if the id of a line matches its content, or its kind has a key as id."""
    if value["k"] in _KEYED:
        return True
    body = {name: field for name, field in value.items() if name not in ("k", "v", "id")}
    return digest(body) == value.get("id")


_KEYED = ("header", "workload", "device")


def record_of(value: Mapping[str, Any]) -> Record | None:
    """Return the record of a line's fields; None for an unknown kind; raises ``BadLine``."""
    reader = _READERS.get(str(value["k"]))
    try:
        return None if reader is None else reader(dict(value))
    except UnusableField as e:
        raise BadLine(f"{value['k']} line without a usable {e}") from None
    except KeyError as e:
        raise BadLine(f"{value['k']} line without {e}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as e:
        raise BadLine(f"{value['k']} line with a field of a wrong type: {e}") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    """Return a float of JSON, which has no infinities, but numbers too large for a float."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


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
        raise UnusableField(name)
    return value


def _times(value: Any, name: str) -> tuple[float, ...]:
    try:
        runs = tuple(float(x) for x in value)
    except (TypeError, ValueError, OverflowError):
        raise UnusableField(name) from None
    if not all(0 < x < 1e6 for x in runs):
        raise UnusableField(name)
    return runs


def _runs(t: Any, name: str) -> tuple[float, ...]:
    """Return the times of a record's ``t`` by name; they are in seconds, if it says no unit."""
    if t.get("unit", "s") != "s":
        raise UnusableField("unit")
    return _times(t[name], "time")


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnusableField(name)
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise UnusableField(name)
    return value


def _read_header(v: dict[str, Any]) -> Header:
    return Header(_mapping(v["tool"], "tool"), float(v["created"]))


def _read_workload(v: dict[str, Any]) -> Workload:
    if v["form"] not in ("hlo", "loop"):
        raise UnusableField("form")
    return Workload(
        _text(v["id"], "id"),
        _text(v["name"], "name"),
        v["form"],
        _text(v["text"], "text"),
        float(v["flops"]),
        float(v["bytes"]),
    )


def _read_device(v: dict[str, Any]) -> DeviceRecord:
    return DeviceRecord(
        _text(v["id"], "id"), _text(v["spec"], "spec"), _mapping(v["facts"], "facts")
    )


def _read_model(v: dict[str, Any]) -> Model:
    tasks = tuple((_text(k, "tasks"), float(n)) for k, n in v["tasks"])
    return Model(_text(v["id"], "id"), _text(v["name"], "name"), _text(v["d"], "d"), tasks)


def _read_trial(v: dict[str, Any]) -> Trial:
    if v["status"] not in STATUSES:
        raise UnusableField("status")
    trace = None if v["trace"] is None else _list(v["trace"], "trace")
    runs = _runs(v["t"], "runs")
    if v["status"] in ("ok", "estimated") and (not runs or trace is None):
        raise UnusableField("time or trace")
    return Trial(
        workload=_text(v["w"], "w"),
        device=_text(v["d"], "d"),
        sketch=_text(v["sketch"], "sketch"),
        decisions=_mapping(v["dec"], "dec"),
        status=v["status"],
        source=_text(v["src"], "src"),
        runs=runs,
        trace=trace,
        seed=int(v["seed"]),
        note=str(v.get("note", "")),
        tool=_mapping(v["tool"], "tool"),
        ts=float(v["ts"]),
        id=_text(v["id"], "id"),
        drift=_times([v["t"].get("drift", 1.0)], "drift")[0],
        code=_mapping(v.get("code", {}), "code"),
        machine=_text(v.get("machine", ""), "machine"),
        predicted=None if v.get("predicted") is None else _times([v["predicted"]], "predicted")[0],
    )


def _read_best(v: dict[str, Any]) -> Best:
    runs, default = _runs(v["t"], "runs"), _runs(v["t"], "default")
    if not runs or not default:
        raise UnusableField("time")
    return Best(
        workload=_text(v["w"], "w"),
        device=_text(v["d"], "d"),
        trial=_text(v["trial"], "trial"),
        sketch=_text(v["sketch"], "sketch"),
        decisions=_mapping(v["dec"], "dec"),
        trace=_list(v["trace"], "trace"),
        runs=runs,
        default_runs=default,
        error=float(v["error"]),
        ts=float(v["ts"]),
        id=_text(v["id"], "id"),
    )


def _read_verdict(v: dict[str, Any]) -> Verdict:
    runs, default = _runs(v["t"], "runs"), _runs(v["t"], "default")
    if len(runs) != len(default):
        raise UnusableField("time")
    picks = tuple((_text(w, "picks"), _text(pick, "picks")) for w, pick in v["picks"])
    return Verdict(
        _text(v["m"], "m"),
        _text(v["d"], "d"),
        picks,
        runs,
        default,
        bool(v["cut"]),
        float(v["ts"]),
        _text(v["id"], "id"),
    )


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
