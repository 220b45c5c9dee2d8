"""`bench` as a user meets it: sweeps, older reports, options that make no sense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nestwright.autotune.bench import cell, sweep
from nestwright.autotune.bench.data import BenchReport, read_report
from nestwright.autotune.bench.race import run
from nestwright.cli.commands.bench import BETWEEN_TARGETS
from nestwright.cli.display.sweep import print_report

from ...autotune.bench.reports import CELL, REPORT


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "SECONDS", 0.1)
    monkeypatch.setattr(run, "ROUNDS", 7)
    monkeypatch.setattr(run, "OPEN_TIME", 0.05)


def scaled(report: BenchReport, times: float) -> BenchReport:
    """A report whose ways took so many times as long, with controls of no spread."""

    def ways(found):
        runs = {w.name: tuple(times * s for s in (w.seconds or 1.0,) * 7) for w in found}
        same = {**runs, "control": runs["tuned"]}
        return tuple(replace(w, runs=same[w.name]) for w in found)

    return replace(report, cells=tuple(replace(c, ways=ways(c.ways)) for c in report.cells))


def test_sweep_is_printed_and_compared(
    nestwright, dense: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("--callers", 2, "--peers", "numpy,torch", "--json", "new.json")
    said = nestwright("bench", dense, "--threads", "1,2", *more)
    assert said.status == 0, said.err
    assert "on cpu, 1 thread" in said.out and "on cpu, 2 threads" in said.out
    assert "2 callers, one" in said.out and "the control differs by" in said.out
    assert "torch: torch runs programs of torch.export, and this is none" in said.out
    report = read_report("new.json")
    assert [c.key.threads for c in report.cells] == [1, 2]
    scaled(report, 1e-4).write_json("fast.json")
    slower = nestwright(
        "bench", dense, "--threads", "1", "--against", "fast.json", "--fail-on-regression"
    )
    assert slower.status == 1 and "regression: " in slower.out
    assert "this report has no cell" in slower.out
    scaled(report, 1e4).write_json("slow.json")
    monkeypatch.setattr(sweep, "bench_cell", lambda *_: report.cells[0])  # measured above
    faster = nestwright(
        "bench", dense, "--threads", "1", "--against", "slow.json", "--fail-on-regression"
    )
    assert faster.status == 0 and "gain: " in faster.out and "regression" not in faster.out


def test_names_are_text(capsys) -> None:
    """What looks like markup of rich, or like its names of emoji, is printed as it is."""
    odd = "a [red] [/x] :warning: ü"
    cells = tuple(replace(c, key=replace(c.key, model=odd)) for c in REPORT.cells)
    group = replace(cells[0].groups[0], name=odd)
    torn = replace(CELL.ways[-1], name=odd, problem=odd)
    full = replace(cells[0], groups=(group,), ways=(*CELL.ways, torn), warnings=(odd,))
    print_report(replace(REPORT, cells=(full, cells[1]), warnings=(odd,)))
    said = capsys.readouterr().out
    assert said.count(odd) == 9, said
    assert f"{odd} on cpu" in said and f"{odd} x2 " in said and f"{odd}: {odd}" in said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--threads", "0"), "not from 1 to 1024"),
        (("--threads", "1,x"), "not whole numbers"),
        (("--batch", ""), "not whole numbers"),
        (("--peers", "tvm"), "no such peer"),
        (("--against", "none.json"), "No such file"),
        (("--fail-on-regression",), "there is no --against"),
        (("--target", "cpu,cpx"), "cpx"),
        (("--seed", "-5"), "seed -5: expected a non-negative integer"),
        (("--attribute", "nan"), "attribute=nan: expected seconds"),
        (("--attribute", "inf"), "attribute=inf: expected seconds"),
    ],
)
def test_bad_options_are_one_message(nestwright, dense: Path, options, told: str) -> None:
    said = nestwright("bench", dense, *options)
    assert said.status == 2 and told in said.err and "Traceback" not in said.err


def test_a_damaged_report_is_refused_before_anything_runs(nestwright, dense: Path) -> None:
    Path("old.json").write_text('{"version": 1, "cells": 3}')
    said = nestwright("bench", dense, "--against", "old.json", "--json", "new.json")
    assert said.status == 2 and "old.json: damaged benchmark report" in said.err
    assert not Path("new.json").exists() and "timing" not in said.err


def test_commas_within_a_target_stay() -> None:
    spec = "cpu,llvm -mattr=+avx2,-avx512f, cpu -threads=1"
    assert BETWEEN_TARGETS.split(spec) == ["cpu", "llvm -mattr=+avx2,-avx512f", "cpu -threads=1"]
