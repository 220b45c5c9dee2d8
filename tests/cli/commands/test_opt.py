"""`nestwright opt`: one pass at a time, from text to text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nestwright.codegen.lower.pipeline import PASSES
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse, show

HLO = """HloModule m
ENTRY main { x = f32[4] parameter(0)
  one = f32[] constant(1)
  ones = f32[4] broadcast(one), dimensions={}
  unused = f32[4] add(x, ones)
  ROOT y = f32[4] multiply(x, ones) }
"""
LOOPS = """
@func(outputs=1)
def double(A: f32[4, 6], B: f32[4, 6]):
    for i in range(4):
        for j in range(6):
            with block("B"):
                vi, vj = spatial(4, i), spatial(6, j)
                reads(A[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] + A[vi, vj]
"""


@pytest.fixture
def graph(tmp_path: Path) -> str:
    (tmp_path / "m.hlo").write_text(HLO)
    return str(tmp_path / "m.hlo")


@pytest.fixture
def loops(tmp_path: Path) -> str:
    (tmp_path / "double.loop").write_text(LOOPS)
    return str(tmp_path / "double.loop")


def test_one_graph_pass_runs_alone(nestwright, graph: str) -> None:
    out = nestwright("opt", graph, "--pass", "dce").out
    assert "unused" not in out and "multiply" in out
    parse(out)


def test_a_pass_inside_of_a_repeated_one_has_a_name(nestwright, graph: str) -> None:
    assert "multiply" not in nestwright("opt", graph, "--pass", "simplify_algebra").out


def test_all_graph_passes_one_by_one_are_the_pipeline(nestwright, graph: str) -> None:
    found = json.loads(nestwright("opt", graph, "--list", "--json").out)["passes"]
    whole = show(optimize(parse(HLO)))
    names = [a for name in found for a in ("--pass", name)]
    assert nestwright("opt", graph, *names).out.rstrip() == whole.rstrip()


def test_lowering_goes_pass_by_pass(nestwright, loops: str, tmp_path: Path) -> None:
    opened = nestwright("opt", loops, "--pass", "lower_blocks").out
    assert "block" not in opened and "B[i, j] = A[i, j] + A[i, j]" in opened
    (tmp_path / "opened.loop").write_text(opened)
    flat = nestwright("opt", str(tmp_path / "opened.loop"), "--pass", "flatten").out
    assert "B: f32[24]" in flat


def test_passes_are_listed_with_what_holds_after_them(nestwright, loops: str) -> None:
    lines = nestwright("opt", loops, "--list").out.splitlines()
    assert [line.split()[0] for line in lines] == [row.name for row in PASSES]
    assert all(line.endswith(".") for line in lines)
    assert "bind_threads" in nestwright("opt", loops, "--list", "--target", "cuda -arch=sm_80").out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--pass", "flaten"), "did you mean 'flatten'?"),
        (("--pass", "dce"), "no pass 'dce' applies to this text"),
        ((), "give either --list or passes to run"),
        (("--list", "--pass", "flatten"), "give either --list or passes to run"),
    ],
)
def test_what_cannot_be_run_is_told(nestwright, loops: str, arguments, told: str) -> None:
    answer = nestwright("opt", loops, *arguments)
    assert answer.status == 2 and told in answer.err


def test_a_file_that_is_not_there_is_told(nestwright) -> None:
    answer = nestwright("opt", "nowhere.hlo", "--list")
    assert answer.status == 2 and "cannot read the text" in answer.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"module @m { func.func public @main() }", "it looks like StableHLO text"),
        (b"\x08\x07\xff\xfe", "it is not text"),
    ],
)
def test_other_models_are_no_text_of_ours(nestwright, tmp_path, content, told) -> None:
    file = tmp_path / "a.model"
    file.write_bytes(content)
    answer = nestwright("opt", str(file), "--pass", "dce")
    assert answer.status == 2 and told in answer.err and "--stage hlo" in answer.err
