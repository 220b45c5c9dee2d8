"""Built models in a measuring child: called as a user calls them, whatever their arguments are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.autotune.log.records import DEFAULT_SKETCH
from nestwright.autotune.measure import models
from nestwright.autotune.measure.host.lock import MachineLock
from nestwright.autotune.measure.protocol import Candidate, Job
from nestwright.codegen.plan.saved.read import read
from nestwright.codegen.plan.saved.write import write
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.targets.registry import codec
from nestwright.ir.hlo.text import parse

ARRAYS = """HloModule arrays
ENTRY e {
  a = f32[5] parameter(0)
  b = f32[5] parameter(1)
  ROOT y = f32[5] subtract(a, b)
}
"""
TUPLES = """HloModule tuples
ENTRY e {
  p = (f32[5], (f32[5], f32[])) parameter(0)
  s = f32[5] parameter(1)
  a = f32[5] get-tuple-element(p), index=0
  q = (f32[5], f32[]) get-tuple-element(p), index=1
  b = f32[5] get-tuple-element(q), index=0
  d = f32[5] subtract(a, b)
  ROOT y = (f32[5], f32[5]) tuple(d, s)
}
"""
NONE = "HloModule none\nENTRY e {\n ROOT c = f32[] constant(3)\n}\n"


@dataclass
class Phases:
    entered: list[str] = field(default_factory=list)

    def __call__(self, phase: str) -> None:
        self.entered.append(phase)


@pytest.mark.parametrize("text", [ARRAYS, TUPLES, NONE])
def test_models_race_whatever_their_arguments_are(text: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))
    exe = nw.build(parse(text), "cpu -threads=1")
    places = [tmp_path / "one.nw", tmp_path / "other.nw"]
    for place in places:
        write(exe.bundle, place)
    candidates = tuple(Candidate(DEFAULT_SKETCH, {}, bundle=str(p)) for p in places)
    job = Job(0, "models", "k", "", "", "cpu -threads=1", candidates, "", 0, fill=0.0)
    phases = Phases()
    outcomes = models.race_models(job, phases, MachineLock())
    assert [o.status for o in outcomes] == ["ok", "ok"] and phases.entered[-1] == "run"
    assert len(outcomes[0].runs) == len(outcomes[1].runs) > 0


def test_a_saved_model_draws_tuples(tmp_path: Path) -> None:
    nw.build(parse(TUPLES)).save(tmp_path / "m.nw")
    exe = Executable(read(tmp_path / "m.nw", codec))
    (a, (b, _)), s = given = exe.random_arguments(4)
    first, second = exe(*given)
    assert np.array_equal(first, a - b) and np.array_equal(second, s)
