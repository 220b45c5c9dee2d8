"""`run --profile`, `bench --profile`, `--trace`: tables, data, one trace file, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nestwright.autotune.bench import cell
from nestwright.autotune.bench.data import BenchReport
from nestwright.autotune.bench.race import run
from nestwright.codegen.runtime.profile.data import Profile

ONE = ("--target", "cpu -threads=1")


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """A model whose text says where each operation comes from."""
    path = tmp_path / "traced.hlo"
    path.write_text("""HloModule traced
ENTRY main {
  x = f32[64,32] parameter(0)
  w = f32[32,48] parameter(1)
  d = f32[64,48] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="[bold]net/dot" source_file="/home/someone/net.py" source_line=7}
  ROOT t = f32[64,48] tanh(d)
}
""")
    return path


def test_run_prints_the_steps(nestwright, traced: Path) -> None:
    said = nestwright("run", traced, "--random", 0, "--profile", *ONE)
    assert said.status == 0
    lines = said.out.splitlines()
    assert "a call" in lines[2] and "GFLOP/s FMA" in lines[3]
    (step,) = [line for line in lines if line.startswith("dot_tanh_0")]
    assert " dot " in step and " default " in step and step.rstrip().endswith("net.py:7")
    assert "/home" not in said.out and any(line.startswith("call ") for line in lines)


def test_a_built_model_has_the_same_steps(nestwright, traced: Path) -> None:
    assert nestwright("build", traced, "-o", "m.nw", *ONE).status == 0
    said = nestwright("run", "m.nw", "--random", 0, "--profile", "--json")
    found = Profile.from_json(json.loads(said.out)["profile"])
    assert found.rows[0].members[0].source == "/home/someone/net.py:7"
    assert found.flops == found.costs["flops"] and found.peak is not None
    assert found.roofline(found.rows[0]) == pytest.approx(
        max(found.rows[0].flop_rate / found.peak[0], found.rows[0].byte_rate / found.peak[1])
    )


def test_trace_is_one_file(nestwright, traced: Path) -> None:
    said = nestwright("run", traced, "--random", 0, "--trace", "t.json", *ONE)
    assert said.status == 0 and "dot_tanh_0" in said.out
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["dot_tanh_0"]


def test_bench_profiles_every_cell(nestwright, traced: Path, softmax: Path, monkeypatch) -> None:
    monkeypatch.setattr(cell, "SECONDS", 0.1)
    monkeypatch.setattr(run, "ROUNDS", 7)
    said = nestwright(
        *("bench", traced, softmax, "--profile", "--trace", "t.json", "--json", "b.json"),
        *("--threads", 1),
    )
    assert said.status == 0 and said.out.count(" a call, ") == 2
    report = BenchReport.from_json(json.loads(Path("b.json").read_text()))
    profiles = [Profile.from_json(c.profile) for c in report.cells]
    assert [p.name for p in profiles] == ["traced", "small"]
    assert "/home" not in Path("b.json").read_text()
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {1: "traced on cpu -threads=1", 2: "small on cpu -threads=1"}


def test_a_run_that_fails_writes_nothing(nestwright, traced: Path) -> None:
    wrong = nestwright("run", traced, "--profile", "--trace", "t.json", "--outputs", "y.npz")
    assert wrong.status == 2 and "it takes 2 arguments" in wrong.err
    bad = nestwright("run", traced, "--random", 0, "--trace", "no/such/t.json", *ONE)
    assert bad.status == 2 and "cannot use 'no/such/t.json'" in bad.err
    assert bad.err.count("\n") == 1
    assert not Path("t.json").exists() and not Path("y.npz").exists()


def test_a_failing_simulation_is_one_message(nestwright) -> None:
    Path("m.hlo").write_text(
        "HloModule m\nENTRY e { x = f32[8] parameter(0)\n"
        ' ROOT y = f32[8] custom-call(x), custom_call_target="nobody" }\n'
    )
    said = nestwright("run", "m.hlo", "--random", 0, "--profile", "--trace", "t.json")
    assert said.status == 2 and "nobody" in said.err and "Traceback" not in said.err
    assert not Path("t.json").exists()


def test_the_doctor_tells_how_far_figures_go(nestwright) -> None:
    said = nestwright("doctor")
    assert "\nmeasuring with " in said.out and "free cores" in said.out
    assert said.out.rstrip().endswith(".") and "mean nothing" in said.out.splitlines()[-1]
    found = json.loads(nestwright("doctor", "--json").out)["measuring"]
    assert found["level"] in ("good", "fair", "poor") and found["spread"] >= 0
    assert {c["name"] for c in found["conditions"]} >= {"load", "CPU quota", "governor", "SMT"}
