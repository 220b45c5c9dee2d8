"""Races: ways in processes of their own, in turns; those that fail, hang or compute otherwise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nestwright.autotune.bench.peers.table import FORMS, PEERS, WAYS, Opened, ways_of
from nestwright.autotune.bench.race import entrant, run
from nestwright.autotune.bench.race.arrays import read_arrays, write_arrays
from nestwright.autotune.bench.race.child import SINGLY, many, turn
from nestwright.autotune.bench.race.entrant import Lost, WayEntry
from nestwright.autotune.bench.race.run import RaceRules, race
from nestwright.ir.errors import ArgumentError
from nestwright.ir.lazy import resolve

HERE = Path(__file__).parent
SQUARES = "ways_to_square"


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setattr(run, "OPEN_TIME", 0.05)


def entry(name: str, tmp_path: Path) -> WayEntry:
    place = tmp_path / "arguments"
    write_arrays(place, [np.arange(12, dtype=np.float32)])
    return WayEntry(name, f"{SQUARES}:{name}", "", tmp_path, 1, names=("x",), arguments=place)


def rules(tmp_path: Path, **more: Any) -> RaceRules:
    return RaceRules(0.2, tmp_path, **more)


def test_ways_take_turns_and_are_checked(tmp_path: Path) -> None:
    wanted = np.arange(12, dtype=np.float32) ** 2

    def error(found: Sequence[Any]) -> float:
        return float(np.abs(found[0] - wanted).max())

    names = ("plain", "slow", "off_by_one")
    found = race([entry(n, tmp_path) for n in names], rules(tmp_path, error=error))
    plain, slow, wrong = found
    assert [w.name for w in found] == list(names) and not any(w.problem for w in found)
    assert len(plain.runs) == len(slow.runs) == len(wrong.runs) >= run.FEW
    assert plain.error == 0.0 and wrong.error == 1.0
    assert slow.seconds is not None and plain.seconds is not None
    assert slow.seconds > 0.002 > plain.seconds
    assert slow.latency is not None and slow.latency.calls >= run.FEW
    assert slow.latency.p50 <= slow.latency.p90 <= slow.latency.p99
    assert plain.detail == "NumPy's product"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("refuses", "UnsupportedError"),
        ("dies", "its process ended with signal SIGKILL"),
        ("exits", "its process ended with status 3"),
        ("is_nowhere", "AttributeError"),
        ("fails_later", "ValueError: no more"),
    ],
)
def test_a_way_that_fails_has_its_problem_and_others_go_on(
    tmp_path: Path, name: str, told: str
) -> None:
    bad, good = race([entry(name, tmp_path), entry("plain", tmp_path)], rules(tmp_path))
    assert told in bad.problem and "Traceback" not in bad.problem
    assert good.problem == "" and good.runs


def test_a_way_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrant, "LOAD", 3.0)
    began = time.monotonic()
    (bad,) = race([entry("hangs", tmp_path)], rules(tmp_path))
    assert "killed after 3 s" in bad.problem and time.monotonic() - began < 60


def test_results_of_another_shape_are_a_problem(tmp_path: Path) -> None:
    def error(found: Sequence[Any]) -> float:
        raise Lost("its results are [(12,)]")

    (way,) = race([entry("plain", tmp_path)], rules(tmp_path, error=error))
    assert "its results are" in way.problem and way.runs == ()


def test_callers_share_one_or_have_their_own(tmp_path: Path) -> None:
    found = race(
        [entry("plain", tmp_path), entry("alone", tmp_path)], rules(tmp_path, callers=(2,))
    )
    plain, alone = ([(t.callers, t.shared) for t in w.throughput] for w in found)
    assert plain == [(2, True), (2, False)]
    assert alone == [(2, False)], "it says that it serves one caller at a time"
    assert all(t.calls > 0 and t.seconds > 0 for w in found for t in w.throughput)


def test_short_calls_are_timed_in_a_loop_and_singly() -> None:
    told = turn(lambda: None, 5000)
    assert 0 < told["seconds"] < SINGLY and len(told["each"]) == 50


def test_long_calls_are_timed_singly() -> None:
    told = turn(lambda: time.sleep(1e-3), 4)
    assert len(told["each"]) == 4 and told["seconds"] == sum(told["each"]) / 4


def test_an_error_of_a_caller_ends_all() -> None:
    def fail() -> None:
        raise ValueError("no")

    fine = Opened(lambda: None, lambda found: [], "")
    with pytest.raises(ValueError, match="no"):
        many([fine, Opened(fail, lambda found: [], "")], 5.0)


def test_arrays_of_every_kind_pass(tmp_path: Path) -> None:
    given = [
        np.float32(3.0),
        np.zeros((0, 4), np.int8),
        np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3),
        np.array([True, False]),
        np.arange(4.0).reshape(2, 2).T,
        np.array([1 + 2j]),
    ]
    write_arrays(tmp_path / "a", [np.asarray(a) for a in given])
    found = read_arrays(tmp_path / "a")
    for a, b in zip(given, found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)


def test_rows_of_peers_open_what_is_there() -> None:
    for way in WAYS:
        assert way.form in FORMS
        assert callable(resolve(way.open, "nestwright.autotune.bench.peers"))
    assert {w.peer for w in ways_of(PEERS)} == set(PEERS)


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no such peer"):
        ways_of(["tvm"])


def test_a_peer_says_why_it_cannot_run(tmp_path: Path) -> None:
    way = ways_of(["onnxruntime"])[0]
    assert "runs ONNX files" in way.problem({"hlo": tmp_path})
    assert ways_of(["numpy"])[0].problem({"hlo": tmp_path}) == ""
