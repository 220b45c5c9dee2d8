"""`benchmarks/gpu.py` where there is no GPU: what it says, a dry run, parts over a stand-in."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright.ir.gpus import runs_here
from nestwright.ir.hlo.interp import evaluate
from nestwright.ir.hlo.text import parse

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPT = FOLDER / "gpu.py"


@pytest.fixture
def script() -> Iterator[Any]:
    """The script's modules."""
    sys.path.insert(0, str(FOLDER))
    names = ("gpu", "gpu_parts", "gpu_peers", "gpu_table", "gpu_work", "gpu_models")
    try:
        yield Namespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(FOLDER))


@pytest.mark.skipif(runs_here("sm_90"), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--out", tmp_path / "r"], capture_output=True, text=True
    )
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("gpu.py: there is no GPU to measure: ")
    assert not (tmp_path / "r").exists()


def test_a_dry_run_checks_and_times_and_writes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--dry-run", "--only", "machine,passes", "--out", tmp_path],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "checked 4: 4 right, 0 wrong" in done.stdout and "NOTES: none" in done.stdout
    facts = json.loads((tmp_path / "gpu.json").read_text())
    timed = [r for r in facts["rows"] if r["kind"] == "timed"]
    assert len(timed) == 4 and all(r["contenders"]["nestwright"]["seconds"] > 0 for r in timed)
    assert (tmp_path / "gpu.txt").read_text() == done.stdout.removesuffix("\n")


def test_a_part_that_dies_or_hangs_is_a_note(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = script.gpu._options(["--dry-run", "--out", str(tmp_path)])
    told = {"kind": "right", "part": "small", "name": "before", "ok": True, "error": 0.0}

    def dying(status: int, hang: bool) -> Any:
        def run(command: list[str], stdout: Any, timeout: float, **rest: Any) -> Any:
            (tmp_path / "small.jsonl").write_text(json.dumps(told) + '\n{"kind": "ri')
            stdout.write(b"its last words\n")
            if hang:
                raise subprocess.TimeoutExpired(command, timeout)
            return subprocess.CompletedProcess(command, status)

        return run

    for status, hang, why in (
        (-11, False, "status -11: its last words"),
        (0, True, "stopped after"),
    ):
        monkeypatch.setattr(script.gpu.subprocess, "run", dying(status, hang))
        before, note = script.gpu._child("small", 30, options)
        assert before == told and note["kind"] == "failed" and why in note["why"]
    (note,) = script.gpu._child("small", 1, options)
    assert "the time is up" in note["why"]


def test_parts_that_do_not_exist_are_refused(script: Any) -> None:
    with pytest.raises(SystemExit):
        script.gpu._options(["--only", "matmull"])
    assert sum(script.gpu.PARTS.values()) <= script.gpu.TOTAL < 8 * 60


def test_every_workload_is_what_its_reference_says(script: Any) -> None:
    work = script.gpu_work
    for w in (*work.products(True), *work.passes(True), *work.convolutions(True)):
        module = parse(w.hlo)
        args = w.arguments(3)
        assert w.error(args, evaluate(module, args)) < w.tolerance, w.name
        wrong = np.asarray(evaluate(module, args), np.float64) * 1.5 + 1
        assert w.error(args, wrong) > w.tolerance, w.name
    for w in (*work.products(False), *work.passes(False), *work.convolutions(False)):
        shapes = [p.array.dims for p in parse(w.hlo).entry.parameters]
        assert shapes == list(w.shapes), w.name
        assert w.flops or w.bytes >= 2 * (256 << 20)
    assert sum(s[-1] for s in work.RESNET50) == 53


@pytest.mark.parametrize("part", ["machine", "small", "passes", "convolutions"])
def test_a_part_runs_over_the_driver(
    script: Any, fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    fake.total = 1 << 34
    monkeypatch.setattr(script.gpu_parts, "COPIED", 1 << 12)
    monkeypatch.setattr(script.gpu_peers, "TURN", 1e-3)
    monkeypatch.setattr(
        script.gpu_parts, "build", lambda p, text, o="": (fake.executable(text), 0.1)
    )
    monkeypatch.setattr(script.gpu_parts, "_against_interpreter", lambda part, module: None)
    options = script.gpu._options(
        ["--dry-run", "--out", str(tmp_path), "--target", "cuda -arch=sm_90"]
    )
    script.gpu_parts.run_part(part, options)
    rows = script.gpu._rows(tmp_path / f"{part}.jsonl")
    assert rows and not [r for r in rows if r["kind"] == "failed"]
    assert all(r["ok"] for r in rows if r["kind"] == "right")
    if part == "passes":
        timed = [r for r in rows if r["kind"] == "timed"]
        assert len(timed) == 4 and all(r["of_copy"] > 0 for r in timed)
        assert all(r["contenders"]["nestwright"]["events"] for r in timed)
    assert script.gpu_table.table(rows)


def test_a_wrong_result_is_not_timed(script: Any, tmp_path: Path) -> None:
    options = script.gpu._options(["--dry-run", "--out", str(tmp_path)])
    part = script.gpu_parts.Part("passes", options)
    work = replace(script.gpu_work.softmax(16, 64), tolerance=-1.0)
    script.gpu_parts._timed(part, work, 1)
    rows = script.gpu._rows(tmp_path / "passes.jsonl")
    assert [r["kind"] for r in rows] == ["right", "skipped"] and not rows[0]["ok"]
    assert "WRONG softmax" in script.gpu_table.table(rows)


def test_a_failure_is_a_row_and_the_part_goes_on(script: Any, tmp_path: Path) -> None:
    options = script.gpu._options(["--dry-run", "--out", str(tmp_path), "--seconds", "1000"])
    part = script.gpu_parts.Part("passes", options)

    def fail() -> None:
        raise ValueError("what?")

    part.attempt("one", fail)
    part.attempt("two", fail, needs=10_000)
    one, two = script.gpu._rows(tmp_path / "passes.jsonl")
    assert one["why"] == "ValueError: what?" and two["kind"] == "skipped"


def test_ratios_and_goals_are_shown(script: Any) -> None:
    def row(name: str, part: str, **facts: Any) -> dict[str, Any]:
        seconds = {"nestwright": 2e-3, "torch": 1e-3}
        shown = {n: {"seconds": s} for n, s in seconds.items()}
        base = {"kind": "timed", "part": part, "name": name, "contenders": shown, "weight": 3}
        return {**base, "ratios": {"torch": 0.5}, **facts}

    rows = [
        row("matmul_bf16_8192", "matmul", tflops=300.0),
        row("softmax_256MiB", "passes", of_copy=0.8),
        row("conv_a", "convolutions"), row("conv_b", "convolutions"),
        {"kind": "fact", "part": "machine", "name": "GPU", "value": "one"},
        {"kind": "failed", "part": "models", "name": "resnet50", "why": "no room"},
    ]  # fmt: skip
    text = script.gpu_table.table(rows)
    assert "torch 0.50, 300 TFLOP/s, (goal 0.4: reached)" in text
    assert "copy bandwidth 0.80 (goal 0.85: not reached)" in text
    assert "2 shapes, weighted" in text and "12 ms" in text
    assert "failed models: resnet50: no room" in text


def test_medians_take_turns(script: Any) -> None:
    order: list[str] = []

    def contender(name: str, cost: float) -> Any:
        def seconds(times: int) -> float:
            order.append(name)
            return cost * times

        return script.gpu_peers.Contender(name, seconds, True, lambda: [])

    rows = script.gpu_peers.medians([contender("a", 1e-3), contender("b", 4e-3)], 0.0)
    assert rows["a"]["seconds"] == pytest.approx(1e-3) and rows["b"]["seconds"] == pytest.approx(
        4e-3
    )
    assert rows["a"]["calls"] == 30 and rows["a"]["rounds"] == 5
    assert order[4:8] == ["a", "b", "b", "a"]


def test_peers_are_timed_beside_ours_and_their_failures_noted(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torch(kind: str, sets: Any, more: Any) -> Any:
        return script.gpu_peers.Contender("torch", lambda times: 2e-3 * times, True, lambda: [])

    def jax(kind: str, sets: Any, more: Any) -> Any:
        raise RuntimeError("no such device")

    monkeypatch.setattr(script.gpu_peers, "torch_peer", torch)
    monkeypatch.setattr(script.gpu_peers, "jax_peer", jax)
    options = script.gpu._options(["--out", str(tmp_path), "--target", "cpu"])
    part = script.gpu_parts.Part("passes", options)
    script.gpu_parts._timed(part, script.gpu_work.softmax(16, 64), 1)
    rows = script.gpu._rows(tmp_path / "passes.jsonl")
    assert [r["kind"] for r in rows] == ["right", "timed", "skipped", "timed"]
    assert "no such device" in rows[2]["why"] and rows[3]["ratios"]["torch"] > 0
    text = script.gpu_table.table(rows)
    assert sum(x.startswith("softmax_1024 ") for x in text.split("\n")) == 1 and "2 ms" in text
