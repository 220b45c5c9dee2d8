"""Sweeps of small models: cells in order, checks, problems that do not end them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nestwright.autotune.api import tune
from nestwright.autotune.bench import cell, sweep
from nestwright.autotune.bench.data import BenchReport, CellBench
from nestwright.autotune.bench.race import run
from nestwright.autotune.bench.sweep import bench
from nestwright.autotune.log.journal import LogWriter
from nestwright.autotune.measure.host.peak import Peak
from nestwright.ir.errors import ArgumentError, TargetError
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.text import parse

SMALL = (
    "HloModule s\nENTRY main {\n  x = f32[40,30] parameter(0)\n  ROOT y = f32[40,30] sqrt(x)\n}\n"
)
TUPLE = (
    "HloModule t\nENTRY main {\n  x = (f32[4], f32[4]) parameter(0)\n"
    "  a = f32[4] get-tuple-element(x), index=0\n  b = f32[4] get-tuple-element(x), index=1\n"
    "  ROOT y = f32[4] add(a, b)\n}\n"
)


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "lock"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cell, "SECONDS", 0.1)
    monkeypatch.setattr(run, "ROUNDS", 7)
    monkeypatch.setattr(run, "OPEN_TIME", 0.05)
    monkeypatch.setattr(sweep, "measure_peak", lambda target: Peak(target.threads, 1e11, 1e10))


@pytest.fixture
def small() -> HloModule:
    return parse(SMALL)


def keys(cells: Sequence[CellBench]) -> list[str]:
    return [str(c.key) for c in cells]


def test_sweep_times_checks_and_goes_on_after_a_bad_model(small: HloModule, tmp_path: Path) -> None:
    report = bench([tmp_path / "none.hlo", small], "cpu", threads=1)
    bad, good = report.cells
    assert good.seconds("default") and good.speedup() == 1.0, "the same code is timed once"
    for name in ("default", "tuned", "control"):
        way = good.way(name)
        assert way is not None and way.error is not None and way.error < 1e-6
        assert way.latency is not None and way.first is not None and way.first > 0
    assert good.spread < float("inf")
    assert [g.note for g in good.groups] == [""]
    assert "No such file" in bad.problem
    assert str(tmp_path) not in report.text()
    assert BenchReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("what", ["model", "log"])
def test_files_that_cannot_be_read_are_told_before_anything_is_measured(
    small: HloModule, mixed: bool, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sweep, "bench_cell", lambda key, *_: CellBench(key))
    with LogWriter(Path("l.jsonl")):
        pass
    logs = ["no.jsonl", *["l.jsonl"] * mixed] if what == "log" else None
    models = ["no.hlo", *[small] * mixed] if what == "model" else small
    report = bench(models, log=logs, batch=[40, 40], progress=told.append)
    assert [bool(c.problem) for c in report.cells].count(True) == 2
    if what == "model":
        bad = bench(small, batch=[3], progress=told.append)
        assert "batch 3 of s" in bad.cells[0].problem and not bad.peaks
    assert told[0].startswith(("no.hlo: cannot read", "no.jsonl: "))
    assert told[1:2] == ["measuring the machine's peaks"] * mixed
    assert bool(report.peaks) == mixed and report.text()
    assert BenchReport.from_json(report.to_json()) == report


def test_axes_make_cells_in_order(small: HloModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "bench_cell", lambda key, *_: CellBench(key))
    report = bench([small, parse(SMALL)], ["cpu -threads=1", "cpu"], threads=None)
    names = [f"{m} on {t}" for m in ("s", "s (2)") for t in ("cpu -threads=1, 1 thread", "cpu, ")]
    assert all(map(str.startswith, keys(report.cells), names))
    assert not any(c.problem for c in report.cells)
    assert report.peak(report.cells[0].key) == Peak(1, 1e11, 1e10)
    threads = bench(small, threads=[1, 2]).cells
    assert keys(threads) == ["s on cpu, 1 thread", "s on cpu, 2 threads"]


def test_an_empty_axis_is_refused(small: HloModule) -> None:
    with pytest.raises(ArgumentError, match="empty sweep"):
        bench([])
    with pytest.raises(ArgumentError, match="no such form"):
        bench(small, weights="int3")
    with pytest.raises(ArgumentError, match="empty sweep"):
        bench(small, threads=[])


def test_an_axis_of_nonsense_is_refused(small: HloModule) -> None:
    with pytest.raises(TargetError, match="-threads='0'"):
        bench(small, threads=0)
    with pytest.raises(ArgumentError, match="callers=0: at least one"):
        bench(small, callers=[1, 0])


def test_hlo_refuses_another_batch(small: HloModule) -> None:
    taken, refused = bench(small, batch=[40, 8]).cells
    assert taken.key.batch == 40 and not taken.problem
    assert refused.problem.splitlines()[0] == (
        "batch 8 of s: the first sizes of its inputs are fixed (40)"
    )


def test_a_batch_settles_the_first_sizes_that_are_open(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(n, kind, ["n", 6]) for n in ("x", "y"))
    w = helper.make_tensor_value_info("w", kind, [1, 6])
    node = helper.make_node("Sub", ["x", "w"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [x, w], [y]))
    onnx.save(model, tmp_path / "sub.onnx")
    found = bench(tmp_path / "sub.onnx", batch=[1, 8], peers=["jax"]).cells
    assert [c.key.batch for c in found] == [1, 8] and not any(c.problem for c in found)
    assert [c.flops for c in found] == [6.0, 48.0]
    jax = found[0].way("jax")
    assert jax is not None and "jax runs HLO" in jax.problem


def test_peers_run_beside_and_say_why_not(small: HloModule) -> None:
    found = bench([small, parse(TUPLE)], peers=["numpy", "onnxruntime"], callers=[2]).cells
    numpy, ort = (found[0].way(n) for n in ("numpy", "onnxruntime"))
    assert numpy is not None and numpy.error is not None and numpy.error < 1e-6
    assert len(numpy.runs) == len(found[0].way("tuned").runs)
    assert {(t.callers, t.shared) for t in numpy.throughput} == {(2, True), (2, False)}
    assert ort is not None and "runs ONNX files" in ort.problem
    assert "tuple" in found[1].way("numpy").problem and found[1].seconds("tuned")


def test_logs_are_named_hashed_and_found_odd(small: HloModule, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with LogWriter(tmp_path / "a" / "l.jsonl"):
        pass
    tune(small, target="cpu -threads=1", trials=3, log=tmp_path / "l.jsonl")
    text = (tmp_path / "l.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "l.jsonl").write_text("".join([*text, "{]\n"]))
    (tmp_path / "old.jsonl").write_text(json.dumps({**json.loads(text[0]), "v": 99}) + "\n")
    logs = [tmp_path / "l.jsonl", tmp_path / "a" / "l.jsonl", tmp_path / "old.jsonl"]
    report = bench(small, "cpu -threads=1", log=logs)
    full, empty, old = report.cells
    assert [c.key.log for c in report.cells] == ["l.jsonl", "l.jsonl (2)", ""]
    assert [log.trials for log in report.logs] == [3, 0]
    assert "l.jsonl (2) has no trial" in empty.warnings
    assert len(full.groups[0].trials) == 3
    assert full.groups[0].trials[0].predicted and full.groups[0].default.trace is not None
    assert "log version 99" in old.problem
    assert any(
        w.startswith("1 line of l.jsonl skipped, the first: l.jsonl:") for w in report.warnings
    )
    assert str(tmp_path) not in report.text()
