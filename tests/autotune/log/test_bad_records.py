"""Building with a log that holds records which are broken, or were changed."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.autotune.log.journal import LogWriter, check, read, stamped
from nestwright.autotune.log.records import Best, Verdict, device_id
from nestwright.autotune.tasks.extract import extract
from nestwright.codegen.plan.notes import SCHEDULED
from nestwright.ir.errors import NestwrightWarning
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.schedule.sketches.generate import default_schedule

TEXT = """HloModule m
ENTRY main { x = f32[4,64] parameter(0)  ROOT y = f32[4,64] tanh(x) }
"""
X = np.ones((4, 64), np.float32)


@pytest.fixture
def best() -> Best:
    """The model's winner, with a schedule that replays."""
    target = nw.Target.parse("cpu")
    (task,) = extract(optimize(nw.parse(TEXT)), target)
    trace: Any = default_schedule(task.program.func, target).trace.to_json()
    return Best(
        task.key, device_id(target), "t", "s", {}, trace, (1e-6,), (2e-6,), 0.0, time.time()
    )


def log(tmp_path: Path, *records: Best | Verdict) -> Path:
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as writer:
        for record in records:
            found = stamped(record)
            assert isinstance(found, Best | Verdict)
            writer.append(found)
    return path


def scheduled(path: Path, complaints: Sequence[str]) -> str:
    """How many schedules of the log the build used; it complained just so."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exe = nw.build(nw.parse(TEXT), log=path, cache=False)
    np.testing.assert_allclose(exe(X), np.tanh(X), rtol=1e-6)
    assert len(caught) == len(complaints)
    for found, wanted in zip(caught, complaints, strict=True):
        assert found.category is NestwrightWarning and wanted in str(found.message)
    return exe.bundle.notes[SCHEDULED]


def test_a_good_record_is_used(tmp_path: Path, best: Best) -> None:
    assert scheduled(log(tmp_path, best), []) == "1"


def test_a_model_whose_default_won_the_race_has_its_record(tmp_path: Path, best: Best) -> None:
    verdict = Verdict("m", best.device, ((best.workload, ""),), (1e-6,), (1e-6,), ts=time.time())
    foreign = replace(verdict, device="cpu-other")
    assert scheduled(log(tmp_path, foreign), ["no record for m"]) == "0"
    assert scheduled(log(tmp_path, foreign, verdict), []) == "0"


@pytest.mark.parametrize("trace", [[{"nonsense": 1}], [["split", [], [3]]], [[]], [["x"] * 99]])
def test_a_broken_record_of_another_workload_blocks_nothing(
    tmp_path: Path, best: Best, trace: Any
) -> None:
    other = replace(best, workload="f" * 64, trace=trace)
    assert scheduled(log(tmp_path, best, other), ["1 schedules in "]) == "1"


def test_a_broken_record_of_this_workload_leaves_the_default(tmp_path: Path, best: Best) -> None:
    path = log(tmp_path, replace(best, trace=[{"nonsense": 1}]))
    assert scheduled(path, [f"workload {best.workload[:16]}", "no record for m"]) == "0"


def test_a_schedule_that_was_changed_is_not_used(tmp_path: Path, best: Best) -> None:
    path = log(tmp_path, best)
    *head, line = path.read_text().splitlines()
    changed = json.loads(line) | {"trace": []}
    path.write_text("\n".join([*head, json.dumps(changed)]) + "\n")
    assert read(path).bests == []
    assert "its content does not have that id" in check(path)[0]
    assert scheduled(path, ["skipped 1 line of", "no record for m"]) == "0"


def test_a_record_with_fields_of_a_later_version_is_used(tmp_path: Path, best: Best) -> None:
    """The id covers fields that this version does not know."""
    from nestwright.autotune.log.records import digest

    path = log(tmp_path, best)
    *head, line = path.read_text().splitlines()
    fields = json.loads(line) | {"later": [1.5, {"a": None}]}
    body = {k: v for k, v in fields.items() if k not in ("k", "v", "id")}
    path.write_text("\n".join([*head, json.dumps(fields | {"id": digest(body)})]) + "\n")
    assert scheduled(path, []) == "1"


@pytest.mark.parametrize("version", [None, -1, "x", 1e308])
def test_a_record_that_has_no_version_blocks_nothing(
    tmp_path: Path, best: Best, version: object
) -> None:
    path = log(tmp_path, best)
    *before, last = path.read_text().splitlines()
    broken = json.dumps({**json.loads(last), "v": version})
    path.write_text("\n".join((*before, broken, last)) + "\n")
    assert scheduled(path, ["skipped 1 line of"]) == "1"
