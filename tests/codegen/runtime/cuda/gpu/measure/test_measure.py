"""`benchmarks/gpu/measure` without a GPU: a dry run, and its parts over stand-ins for a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu.measure import clocks, exchange, main, ours, parts, peers, prebuilt, tuning, workloads
from gpu.measure.part import Part, rows_of
from gpu.measure.table import table

from nestwright.codegen.plan.notes import SCHEDULED
from nestwright.ir.gpus import runs_here
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

SCRIPT = Path(main.__file__)
CUDA = "cuda -arch=sm_90a"


def part_of(name: str, out: Path, *options: str) -> Part:
    return Part(name, main._options(["--dry-run", "--out", str(out), *options]))


def rows_in(out: Path, *kinds: str) -> list[dict[str, Any]]:
    found = rows_of(out / main.ROWS)
    return [r for r in found if not kinds or r["kind"] in kinds]


@pytest.mark.skipif(runs_here("sm_90"), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--out", tmp_path / "r"], capture_output=True, text=True
    )
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("gpu/measure: there is no GPU to measure: ")
    assert not (tmp_path / "r").exists()


def test_a_dry_run_checks_and_times_and_writes(tmp_path: Path) -> None:
    parts_run = "machine,passes,models,tuning"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--dry-run", "--only", parts_run, "--out", tmp_path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "checked 5: 5 right, 0 wrong" in done.stdout and "NOTES: none" in done.stdout
    timed = rows_in(tmp_path, "timed")
    assert len(timed) == 5 and all(clocks.seconds(r["contenders"]["nestwright"]) for r in timed)
    assert len(rows_in(tmp_path, "kernel")) == 5
    for row in rows_in(tmp_path, "tuned"):
        assert row["trials"] == tuning.DRY_TRIALS and (tmp_path / row["log"]).stat().st_size
    softmax = next(r["log"] for r in rows_in(tmp_path, "tuned") if "softmax" in r["name"])
    log = "--log", str(tmp_path / softmax)
    exe, _ = part_of("passes", tmp_path, "--target", CUDA, *log).build(
        workloads.softmax(16, 64).hlo
    )
    assert exe.bundle.notes[SCHEDULED] == "1"
    assert (tmp_path / "gpu.txt").read_text() == done.stdout.removesuffix("\n")
    again = subprocess.run(
        [sys.executable, SCRIPT, "--table", tmp_path], capture_output=True, text=True
    )
    assert again.stdout == done.stdout


def test_a_part_that_dies_or_hangs_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = main._options(["--dry-run", "--out", str(tmp_path)])
    told = {"kind": "right", "part": "small", "name": "before", "ok": True, "error": 0.0}

    def dying(status: int, hang: bool) -> Any:
        def run(command: list[str], stdout: Any, timeout: float, **rest: Any) -> Any:
            with (tmp_path / main.ROWS).open("a") as file:
                file.write(json.dumps(told) + '\n{"kind": "ri')
            stdout.write(b"its last words\n")
            stdout.flush()
            if hang:
                raise subprocess.TimeoutExpired(command, timeout)
            return subprocess.CompletedProcess(command, status)

        return run

    for status, hang, why in (
        (-11, False, "status -11: its last words"),
        (0, True, "stopped after"),
    ):
        (tmp_path / main.ROWS).unlink(missing_ok=True)
        monkeypatch.setattr(main.subprocess, "run", dying(status, hang))
        main._child("small", 30, options)
        before, note = rows_in(tmp_path)
        assert before == told and note["kind"] == "failed" and why in note["why"]
    main._child("small", 1, options)
    assert "the time is up" in rows_in(tmp_path)[-1]["why"]


def test_parts_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SystemExit):
        main._options(["--only", "matmull"])
    assert list(main.LIMITS) == list(parts.PARTS)
    assert sum(main.LIMITS.values()) <= main.TOTAL < 10 * 60


def test_every_workload_is_what_its_reference_says() -> None:
    work = workloads
    for w in work.every(True):
        module = parse(w.hlo)
        args = w.arguments(3)
        assert w.error(args, evaluate(module, args)) < w.tolerance, w.name
        wrong = np.asarray(evaluate(module, args), np.float64) * 1.5 + 1
        assert w.error(args, wrong) > w.tolerance, w.name
    for w in work.every(False):
        shapes = [p.array.dims for p in parse(w.hlo).entry.parameters]
        assert shapes == list(w.shapes), w.name
        assert w.flops or w.bytes >= 2 * (256 << 20)
    assert sum(s[-1] for s in work.RESNET50) == 53


@pytest.fixture
def over(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in for the driver, on which parts build and run."""
    fake.total = 1 << 34
    monkeypatch.setattr(ours, "COPIED", 1 << 12)
    monkeypatch.setattr(ours, "LAUNCHES", 4)
    monkeypatch.setattr(clocks, "TURN", 1e-3)
    monkeypatch.setattr(Part, "build", lambda part, text, options="": (fake.executable(text), 0.1))
    return fake


@pytest.mark.parametrize("name", ["machine", "small", "passes", "matmul", "convolutions"])
def test_a_part_runs_over_the_driver_beside_its_peers(
    name: str, over: Any, libraries: Any, graph: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(exchange, "TOLERANCE", float("inf"))  # strided ones take a kernel in PTX
    parts.run_part(name, part_of(name, tmp_path, "--target", CUDA).options)
    rows = rows_in(tmp_path)
    assert rows and not rows_in(tmp_path, "failed")
    assert all(r["ok"] for r in rows_in(tmp_path, "right"))
    timed = {r["name"]: r for r in rows_in(tmp_path, "timed")}.values()
    for row in timed:
        mine, theirs = row["contenders"]["nestwright"], row["contenders"]["torch"]
        assert all(c["device"] and c["host"] for c in (mine, theirs))
        decided = name == "convolutions"  # the host asks whether the weights are finite
        assert (mine["how"], theirs["how"]) == ("calls" if decided else "graph", "graph")
        assert row["ratios"]["torch"] > 0 and row["predicted"] > 0
        if name != "convolutions":
            assert row["contenders"]["jax"]["device"] is None and row["ratios"]["jax"] > 0
    assert bool(timed) == (name in ("passes", "matmul", "convolutions"))
    assert not timed or graph.replays > 0
    if name == "machine":
        numbers = {r["name"] for r in rows_in(tmp_path, "fact") if r.get("number")}
        assert numbers == {"the row it is taken for", "copy bandwidth", "launch in a graph"}
    assert table(rows)


def test_arrays_of_each_library_change_hands(over: Any, libraries: Any, tmp_path: Path) -> None:
    exchange.exchange(part_of("small", tmp_path, "--target", CUDA))
    whole = {r["name"]: r for r in rows_in(tmp_path, "right") if r["name"].endswith("as it is")}
    assert list(whole) == [f"{name}: as it is" for name in ("torch", "jax", "cupy")]
    assert all(r["ok"] for r in whole.values())


def test_a_model_of_the_kit_is_checked_and_timed_beside_jax(
    over: Any, libraries: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = parse(
        "HloModule m\nENTRY main { x = f32[64] parameter(0)\n ROOT y = f32[64] add(x, x) }"
    )
    built = over.executable(
        "HloModule m\nENTRY main { x = f32[64] parameter(0)\n  ROOT y = f32[64] add(x, x) }\n"
    )
    (thunk,) = built.plan.thunks
    recipe = prebuilt.Recipe("x", (64,))
    right = prebuilt.sample(np.asarray(evaluate(text, [recipe.drawn()])))
    predicted = {thunk.task: prebuilt.Prediction("gpu_pointwise@1", 1e-6)}
    made = prebuilt.Prebuilt("doubled", built, (recipe,), (right,), predicted, b"what jax wrote")
    prebuilt.write(tmp_path / "kit" / "models" / "doubled", made)
    part = part_of("models", tmp_path, "--target", CUDA, "--kit", str(tmp_path / "kit"))
    part.options.dry_run = False
    parts.run_part("models", part.options)
    assert not rows_in(tmp_path, "failed", "skipped")
    assert rows_in(tmp_path, "timed")[-1]["ratios"]["jax"] > 0
    assert rows_in(tmp_path, "kernel")[0]["sketch"] == "gpu_pointwise@1"
    assert made.error([np.full(64, np.nan)]) == made.error([np.ones(63)]) == float("inf")


def test_tuning_races_the_winner(
    over: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def tune(module: Any, target: Any, **how: Any) -> Namespace:
        asked.append({"target": target.spec, **how})
        return Namespace(trials=64, stopped="budget", tasks=())

    monkeypatch.setattr("nestwright.autotune.api.tune", tune)
    limit = str(main.LIMITS["tuning"])
    part = part_of("tuning", tmp_path, "--target", CUDA, "--seconds", limit)
    parts.run_part("tuning", part.options)
    assert not rows_in(tmp_path, "failed", "skipped")
    assert all(set(r["seconds"]) == {"default", "tuned"} for r in rows_in(tmp_path, "tuned"))
    assert [a["simulate_cost"] for a in asked] == [False, False]
    first, second = (a["seconds"] for a in asked)
    assert first <= 0.4 * main.LIMITS["tuning"] and second <= 0.8 * main.LIMITS["tuning"]
    assert "times as fast" in table(rows_in(tmp_path))


def test_a_workload_is_called_and_nothing_else(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert main.main(["--dry-run", "--out", str(out), "--once", "softmax_1024"]) == 0
    assert not out.exists() and not capsys.readouterr().out
    with pytest.raises(SystemExit, match="there are matmul_bf16_64, "):
        main.main(["--dry-run", "--once", "softmaxx"])


def test_a_wrong_result_is_not_timed(tmp_path: Path) -> None:
    work = replace(workloads.softmax(16, 64), tolerance=-1.0)
    parts._timed(part_of("passes", tmp_path), work, 1)
    rows = rows_in(tmp_path)
    assert [r["kind"] for r in rows] == ["right", "skipped"] and not rows[0]["ok"]
    assert "WRONG softmax" in table(rows)


def test_a_failure_is_a_row_and_the_part_goes_on(tmp_path: Path) -> None:
    part = part_of("passes", tmp_path, "--seconds", "1000")

    def fail() -> None:
        raise ValueError("what?")

    part.attempt("one", fail)
    part.attempt("two", fail, needs=10_000)
    one, two = rows_in(tmp_path)
    assert one["why"] == "ValueError: what?" and two["kind"] == "skipped"


def test_a_peer_that_fails_is_noted(over: Any, libraries: Any, tmp_path: Path) -> None:
    def broken(kind: str) -> Any:
        raise RuntimeError("no such device")

    def refused() -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    libraries["jax"].devices = broken
    libraries["torch"].cuda.CUDAGraph = refused
    part = part_of("passes", tmp_path, "--target", CUDA)
    parts._timed(part, workloads.softmax(16, 64), 1)
    assert "no such device" in rows_in(tmp_path, "skipped")[0]["why"]
    last = rows_in(tmp_path, "timed")[-1]
    assert last["contenders"]["torch"]["how"] == "calls" and last["ratios"]["torch"] > 0
    libraries["torch"].cuda.is_available = lambda: False
    assert isinstance(peers.torch_here(), peers.Unavailable)


def test_ratios_goals_and_predictions_are_shown() -> None:
    def row(name: str, part: str, **facts: Any) -> dict[str, Any]:
        took = {"nestwright": 2e-3, "torch": 1e-3}
        shown = {
            n: {"how": "graph", "calls": 8, "device": clocks.spread([s]), "host": None}
            for n, s in took.items()
        }
        base = {"kind": "timed", "part": part, "name": name, "contenders": shown, "weight": 3}
        return {**base, "flops": 0.0, "bytes": 0.0, "ratios": {"torch": 0.5}, **facts}

    def kernel(predicted: float) -> dict[str, Any]:
        told = {"sketch": "gpu_rows@1", "predicted": predicted, "measured": 1e-3}
        return {"kind": "kernel", "part": "passes", "name": "k", **told}

    rows = [
        row("matmul_bf16_8192", "matmul", flops=6e11, predicted=1e-3),
        row("softmax_256MiB", "passes", bytes=6.4e9),
        row("conv_a", "convolutions"),
        row("conv_b", "convolutions"),
        kernel(2e-3),
        kernel(5e-4),
        {"kind": "fact", "part": "machine", "name": "copy bandwidth", "value": "", "number": 4e12},
        {
            "kind": "fact",
            "part": "machine",
            "name": "the row it is taken for",
            "value": "",
            "number": 5e12,
        },
        {"kind": "failed", "part": "models", "name": "resnet50", "why": "no room"},
    ]
    text = " ".join(table(rows).split())
    assert "matmul_bf16_8192 2 g - 1 g - - 0.50 - (goal 0.4: reached)" in text
    assert "softmax_256MiB 3200 0.80 - - - - (goal 0.85: not reached)" in text
    assert "matmul_bf16_8192 - - 300 0.50 1 ms 0.50" in text
    assert "2 shapes, weighted 12 6 2" not in text and "2 shapes, weighted 12 6 0.50" in text
    assert "gpu_rows@1 2 1.00 0.50 2.00" in text
    assert "REACHED: the copy reaches 0.80 of the bandwidth in the row" in text
    assert "failed models: resnet50: no room" in text


def test_medians_take_turns() -> None:
    order: list[str] = []
    clock = [0.0]

    def contender(name: str, cost: float) -> Any:
        def submit() -> None:
            order.append(name)

        def events(action: Any) -> float:
            before = len(order)
            action()
            return cost * 2 * (len(order) - before)

        return clocks.Contender(name, "graph", 2, submit, lambda: clock[0], events, lambda: [])

    rows = clocks.medians([contender("a", 1e-3), contender("b", 4e-3)], 0.0)
    assert clocks.seconds(rows["a"], "device") == pytest.approx(1e-3)
    assert clocks.seconds(rows["b"]) == pytest.approx(4e-3)
    assert rows["a"]["device"]["rounds"] == clocks.ROUNDS[0]
    turns = [name for n, name in enumerate(order) if n == 0 or order[n - 1] != name]
    assert turns[:4] == ["a", "b", "a", "b"] and turns[4:7] == ["a", "b", "a"]


WARNING = """
import warnings

warnings.warn("on import")

def inside():
    warnings.warn("by itself")

def outside():
    warnings.warn("in its caller's name", stacklevel=2)
"""
TESTS = """
import warnings
import pytest
from gpu.measure import peers

pytestmark = pytest.mark.filterwarnings(peers.WARNINGS)

def test_a_peers_warnings_pass():
    import cupy
    cupy.inside()
    with peers.theirs():
        cupy.outside()

def test_ours_fail():
    with pytest.raises(UserWarning, match="ours"):
        warnings.warn("ours")
"""


def test_only_the_warnings_of_peers_pass(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text(WARNING)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    env = {**os.environ, "PYTHONPATH": f"{SCRIPT.parents[2]}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    assert "in its caller's name" in done.stdout
