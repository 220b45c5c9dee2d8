"""The log's lines: what goes in comes out, and what is not a record is refused, never guessed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nestwright.autotune.log.encoding import (
    MAX_LINE,
    BadLine,
    UnknownVersion,
    decode,
    encode,
    identify,
)
from nestwright.autotune.log.records import (
    Best,
    DeviceRecord,
    Header,
    Model,
    Trial,
    Verdict,
    Workload,
    clearly_faster,
    quantile,
    typical,
)

TRIAL = Trial(
    workload="w" * 8,
    device="cpu-test-t2",
    sketch="tiled@1",
    decisions={"rows": 4, "order": "column"},
    status="ok",
    source="prior",
    runs=(2e-6, 1e-6, 3e-6),
    trace=[["split", "i", [4]]],
    seed=7,
    tool={"nestwright": "0.1.0"},
    ts=12.5,
)
RECORDS = [
    Workload("w" * 8, "dot_add", "hlo", "HloModule canonical\n", 2e6, 3e4),
    DeviceRecord("cpu-test-t2", "cpu", {"threads": 2}),
    TRIAL,
    replace(TRIAL, predicted=1.5e-6),
    replace(TRIAL, status="crash", runs=(), trace=None, note="SIGSEGV in run"),
    Best("w" * 8, "d", "t", "tiled@1", {"rows": 4}, [], (1e-6,), (2e-6,), 1e-7, 13.0),
    Verdict("m", "d", (("w1", "t1"), ("w2", "")), (1e-6, 2e-6), (2e-6, 2e-6), True, 14.0),
    Verdict("m", "d", (("w1", ""),), ts=14.0),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_round_trip(record) -> None:
    again = decode(encode(record).encode())
    assert again == replace(record, id=identify(record))


def test_header_and_model_round_trip() -> None:
    header = Header({"python": "3.11"}, 5.0)
    assert decode(encode(header).encode()) == header
    model = Model("", "mnist", "d", (("w1", 2.0), ("w2", 1.0)))
    again = decode(encode(model).encode())
    assert isinstance(again, Model) and again.tasks == model.tasks


def test_trial_line_follows_the_documented_form() -> None:
    line = json.loads(encode(TRIAL))
    assert (line["k"], line["v"], line["status"]) == ("trial", 1, "ok")
    assert line["t"] == {"unit": "s", "runs": [2e-6, 1e-6, 3e-6], "drift": 1.0}
    assert line["dec"] == {"rows": 4, "order": "column"}
    assert "predicted" not in line, "as in logs of before: the id is the same"
    told = {**line, "predicted": -1.0}
    with pytest.raises(BadLine, match="predicted"):
        decode(json.dumps(told).encode())


def test_id_depends_on_content_alone() -> None:
    assert identify(TRIAL) == identify(replace(TRIAL, id="anything"))
    assert identify(TRIAL) != identify(replace(TRIAL, ts=13.0))


def test_cost_is_the_lower_quartile_and_failures_cost_infinitely() -> None:
    assert TRIAL.cost == pytest.approx(1.5e-6)
    assert replace(TRIAL, status="wrong").cost == math.inf
    assert replace(TRIAL, drift=2.0).cost == pytest.approx(0.75e-6)
    assert quantile((5.0,), 0.25) == 5.0


def test_a_verdicts_gain_is_the_median_of_its_rounds() -> None:
    v = Verdict("m", "d", (("w", "t"),), (1.0, 2.0, 1.0), (2.0, 2.2, 1.1))
    assert v.speedup == pytest.approx(1.1)
    assert Verdict("m", "d", (("w", ""),)).speedup == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"picks": [["w"]]},
        {"picks": [["w", None]]},
        {"m": 3},
        {"picks": 7},
        {"t": {"runs": [1.0], "default": []}},
        {"t": {"runs": [-1.0], "default": [1.0]}},
    ],
)
def test_broken_verdicts_are_refused(change: dict[str, object]) -> None:
    line = json.loads(encode(Verdict("m", "d", (("w", "t"),), (1.0,), (2.0,)))) | change
    with pytest.raises(BadLine):
        decode(json.dumps(line).encode())


def test_what_is_clearly_faster_is_said_once() -> None:
    assert clearly_faster(0.98, 1.0) and not clearly_faster(0.981, 1.0)
    assert typical((4.0, 1.0, 2.0, 3.0, 5.0)) == 2.0


def _changed(**fields: object) -> bytes:
    return json.dumps(json.loads(encode(TRIAL)) | fields).encode()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"[1, 2]", "not a log line"),
        (b"[" * 100_000, "not JSON"),
        (b'{"k": "trial", "v": 1, "ts": NaN}', r"not JSON \(NaN is not a JSON number\)"),
        (_changed(ts=7.0).replace(b"7.0", b"1e999"), "not JSON"),
        (_changed(dec={"a": 7.0}).replace(b"7.0", b"-1e999"), "not JSON"),
        (b'{"k":"trial","v":1,"x":' + b"[" * 80 + b"]" * 80 + b"}", "nested deeper"),
        (_changed(status="fine"), "status"),
        (_changed(t={"unit": "s", "runs": [-1.0]}), "time"),
        (_changed(t={"unit": "s", "runs": [0.0]}), "time"),
        (_changed(t={"unit": "s", "runs": ["fast"]}), "trial line without a usable time"),
        (_changed(ts="now"), "trial line with a field of a wrong type: could not convert"),
        (b'{"k":"trial","v":1,"w":"x"}', "trial line without 'status'"),
        (_changed(t={"unit": "s", "runs": []}), "time"),
        (_changed(t={"unit": "ms", "runs": [2.0]}), "unit"),
        (_changed(trace="split"), "trace"),
        (_changed(dec=[1]), "dec"),
        (_changed(w=7), "w"),
        (b'{"k":"workload","v":1,"id":"x"}', "form"),
        (b" " * (MAX_LINE + 1), "bytes"),
        *((_changed(v=v), "version") for v in (None, True, "2", 0, -1, 1.5, [2], {})),
    ],
)
def test_broken_lines_are_refused(line: bytes, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        decode(line)


def test_other_versions_are_refused_by_name() -> None:
    with pytest.raises(UnknownVersion, match=r"log version 2; this program reads 1"):
        decode(_changed(v=2))


def test_unknown_kinds_are_let_pass() -> None:
    assert decode(b'{"k":"sentinel","v":1}') is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(json.loads(encode(TRIAL)))), JSON))
def test_no_line_breaks_the_reader(fields: dict[str, object]) -> None:
    try:
        record = decode(_changed(**fields))
    except BadLine:
        return
    assert record is None or decode(encode(record).encode()) is not None
