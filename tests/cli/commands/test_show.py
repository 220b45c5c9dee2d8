"""`show --passes` and `show --dump`: what the graph passes do, and every stage as a file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from nestwright.codegen.driver.stages import STAGES
from nestwright.codegen.targets.registry import backend
from nestwright.ir.hlo import parse, show
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes import pipeline
from nestwright.ir.hlo.passes.pipeline import PIPELINE, instructions, optimize
from nestwright.ir.passes import Pass, Pipeline
from nestwright.ir.target import Target

NAMES = [p.name for p in PIPELINE.passes]
TWICE = """HloModule twice

ENTRY main {
  x = f32[8] parameter(0)
  a = f32[8] negate(x)
  b = f32[8] negate(x)
  ROOT y = f32[8] multiply(a, b)
}
"""
LATER = [
    "fused.hlo",
    "te.txt",
    "loop.txt",
    "scheduled.txt",
    "flat.txt",
    "llvm.ll",
    "asm.s",
    "plan.txt",
]


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    path = tmp_path / "twice.hlo"
    path.write_text(TWICE)
    return path


def test_passes_are_listed_in_order_with_their_effect(nestwright, twice: Path) -> None:
    said = nestwright("show", twice, "--passes")
    heading, first, *rows = said.out.splitlines()
    assert said.status == 0 and heading.split()[:4] == ["#", "pass", "changed", "instructions"]
    assert first.split() == ["0", "input", "4"]
    table = [r.split() for r in rows[: len(NAMES)]]
    assert [r[:2] for r in table] == [[str(n), name] for n, name in enumerate(NAMES, 1)]
    assert table[NAMES.index("simplify")][2] == "yes", "two equal instructions become one"
    assert table[NAMES.index("raise_erfc")][2] == "(unchanged)"
    left = str(instructions(optimize(parse(TWICE))))
    assert rows[len(NAMES)].split()[2] == table[-1][3] == left


@pytest.mark.parametrize("target", ["cpu", "cuda -arch=sm_80", "cuda-sim -arch=sm_80"])
def test_passes_of_lowering_are_listed_too(nestwright, twice: Path, target: str) -> None:
    rows = backend(Target.parse(target)).lowering.rows
    said = nestwright("show", twice, "--passes", "--target", target).out.splitlines()
    at = next(n for n, line in enumerate(said) if line.startswith("lowering 1 distinct group for"))
    table = said[at + 3 : at + 3 + len(rows)]
    assert [line.split()[:2] for line in table] == [[str(n), r.name] for n, r in enumerate(rows, 1)]
    assert all(line.endswith(row.then) for line, row in zip(table, rows, strict=True))
    changed = {row.name: line.split()[2] for line, row in zip(table, rows, strict=True)}
    assert changed["lower_blocks"] == "yes" and changed["place_buffers"] == "(unchanged)"
    facts = json.loads(nestwright("show", twice, "--passes", "--target", target, "--json").out)
    assert [p["name"] for p in facts["lowering"]["passes"]] == [r.name for r in rows]


def test_passes_as_data(nestwright, twice: Path) -> None:
    facts = json.loads(nestwright("show", twice, "--passes", "--json").out)
    assert facts["instructions"] == 4 and [p["name"] for p in facts["passes"]] == NAMES
    assert facts["seconds"] == pytest.approx(sum(p["seconds"] for p in facts["passes"]))
    by_name = {p["name"]: p for p in facts["passes"]}
    assert by_name["simplify"]["changed"] and "cse" in by_name["simplify"]["parts"]
    assert not by_name["raise_erfc"]["changed"]


def without_operands(module: HloModule) -> HloModule:
    """A pass that forgets that a product has factors."""
    root = replace(module.entry.root, operands=())
    kept = tuple(i for i in module.entry.instructions if i is not module.entry.root)
    entry = replace(module.entry, instructions=(*kept, root), root=root)
    return replace(module, computations=(entry,), entry=entry)


@pytest.mark.parametrize("how", [("--passes",), ("--dump", "d")])
def test_a_broken_pass_is_named(nestwright, twice: Path, monkeypatch, how) -> None:
    broken = Pipeline((Pass("forget", without_operands), *PIPELINE.passes))
    monkeypatch.setattr(pipeline, "PIPELINE", broken)
    said = nestwright("show", twice, *how)
    assert said.status == 3 and "pass 1, forget, broke the program: " in said.err
    assert [p.name for p in sorted(Path().glob("d/*"))] == (
        ["00_input.hlo", "01_forget.hlo"] if "d" in how else []
    )


def test_every_stage_is_dumped(nestwright, twice: Path) -> None:
    said = nestwright("show", twice, "--dump", "out/d", "--target", "cpu -threads=1")
    paths = [Path(line) for line in said.out.splitlines()]
    assert said.status == 0
    lowering = [p for p in paths if "lowering" in p.parts]
    assert lowering[0].name == "00_input.txt" and lowering[1].name == "02_lower_blocks.txt"
    paths = [p for p in paths if p not in lowering]
    assert paths == sorted(p for p in Path("out/d").iterdir() if p.is_file())
    assert lowering == sorted(p for p in Path("out/d/lowering").rglob("*") if p.is_file())
    flat = next(p for p in paths if p.stem.endswith("_flat")).read_text()
    assert lowering[-1].read_text() in flat
    first, *passes = [p for p in paths if int(p.name[:2]) <= len(NAMES)]
    assert first.name == "00_input.hlo" and first.read_text() == show(parse(TWICE))
    assert passes[-1].read_text() == show(optimize(parse(TWICE)))
    for p in passes:
        assert p.stem == f"{p.name[:2]}_{NAMES[int(p.name[:2]) - 1]}"
    later = paths[1 + len(passes) :]
    assert [p.name for p in later] == [f"{n}_{x}" for n, x in enumerate(LATER, len(NAMES) + 1)]
    for p in later:
        stage = p.stem[3:]
        shown = nestwright("show", twice, "--stage", stage, "--target", "cpu -threads=1").out
        assert stage in STAGES and p.read_text() == shown.removesuffix("\n")


def test_html_writes_the_graph_as_one_page(nestwright, twice: Path, tmp_path: Path) -> None:
    path = tmp_path / "g.html"
    said = nestwright("show", twice, "--html", path, "--stages", "hlo,asm")
    page = path.read_text()
    assert said.status == 0 and said.out.split(":")[0] == str(path)
    assert page.startswith("<!DOCTYPE html>") and "<title>twice: groups</title>" in page
    told = json.loads(nestwright("show", twice, "--html", path, "--json").out)
    assert told["bytes"] == path.stat().st_size and told["written"] == [str(path)]


def test_dot_is_printed_or_written(nestwright, twice: Path, tmp_path: Path) -> None:
    printed = nestwright("show", twice, "--dot").out
    assert printed.startswith('digraph "twice" {') and printed.endswith("}\n")
    said = nestwright("show", twice, "--dot", tmp_path / "g.dot")
    assert said.out == f"{tmp_path / 'g.dot'}\n"
    assert (tmp_path / "g.dot").read_text() == printed


@pytest.mark.parametrize("option", ["--html", "--dot"])
def test_a_name_of_other_bytes_than_utf_8_is_shown(nestwright, twice: Path, option: str) -> None:
    odd = os.fsdecode(b"caf\xe9.hlo")
    twice.rename(odd)
    said = nestwright("show", odd, option, "graph")
    assert said.status == 0, said.err
    assert "caf?" in Path("graph").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--html", "g.html", "--dot"), "exclude each other"),
        (("--html", "g.html", "--stage", "te"), "exclude each other"),
        (("--html", "g.html", "--group", "x"), "--group needs --stage"),
        (("--stages", "te"), "--stages needs --html"),
        (("--html", "g.html", "--stages", "fused"), "stage fused is of the whole model"),
        (("--html", "none/g.html"), "cannot use 'none/g.html'"),
    ],
)
def test_graphs_that_cannot_be_shown(nestwright, twice: Path, options, message: str) -> None:
    said = nestwright("show", twice, *options)
    assert said.status == 2 and message in said.err and "Traceback" not in said.err
