"""Logs found by themselves: exact records, those of the family, seeds from near machines, sizes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import nestwright as nw
from nestwright.autotune.log import automatic
from nestwright.autotune.log.journal import LogWriter, stamped
from nestwright.autotune.log.records import Best, DeviceRecord, Trial, device_id
from nestwright.autotune.search.seeds import nearest_point
from nestwright.autotune.tasks.extract import Task, extract
from nestwright.autotune.tuner.seeding import SEEDS, seeds
from nestwright.ir.errors import NestwrightWarning
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule

HLO = """HloModule product
ENTRY main {{
  x = f32[{m},{k}] parameter(0)
  w = f32[{k},{n}] parameter(1)
  ROOT d = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
TARGET = Target.parse("cpu -mcpu=skylake-avx512 -threads=1")
KIN = Target.parse("cpu -mcpu=skylake-avx512 -threads=2")
OTHER = Target.parse("cpu -mcpu=haswell -threads=1")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch) -> Path:
    folder = tmp_path / "tuning_logs"
    monkeypatch.setattr(automatic, "places", lambda: (folder,))
    return folder


def task(m: int, n: int, k: int, target: Target = TARGET) -> Task:
    (found,) = extract(optimize(nw.parse(HLO.format(m=m, n=n, k=k))), target)
    return found


def winner(t: Task, target: Target, place: Path, name: str = "a.jsonl") -> Mapping[str, Any]:
    """Log another schedule than the default as the winner of a task; return its decisions."""
    space = t.space
    point = next(
        n for p in space.defaults() for n in space.neighbors(p) if n not in space.defaults()
    )
    sketch, choices = space.sketches[point.sketch], space.choices(point)
    sch = Schedule(t.program.func)
    sketch.apply(sch, choices)
    device, trace = device_id(target), sch.trace.to_json()
    trial = stamped(Trial(t.key, device, sketch.name, choices, "ok", "prior", (1e-6,) * 3, trace))
    best = Best(t.key, device, trial.id, sketch.name, choices, trace, (1e-6,) * 3, (2e-6,) * 3, 0.0)
    with LogWriter(place / target.key / name) as writer:
        writer.append(DeviceRecord(device, target.spec, {}), t.workload, trial, stamped(best))
    return choices


def built(t: Task, target: Target) -> Any:
    return nw.build(nw.parse(t.program.text), target, log="auto", cache=False)


def test_without_any_log_models_are_built_by_default() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert built(task(64, 64, 64), TARGET).bundle.notes["scheduled"] == "0"


def test_what_was_tuned_on_this_processor_is_used_silently(place: Path) -> None:
    t = task(64, 64, 64)
    winner(t, TARGET, place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert built(t, TARGET).bundle.notes["scheduled"] == "1"


def test_a_processor_of_the_family_lends_its_winner_and_is_named(place: Path, monkeypatch) -> None:
    t, cousin = task(64, 64, 64), Target.parse("cpu -mcpu=cascadelake -threads=1")
    monkeypatch.setattr(automatic, "family", lambda target: target.vector_bits)
    winner(t, cousin, place)
    with pytest.warns(NestwrightWarning, match="tuned on cascadelake, not on skylake-avx512"):
        assert built(t, TARGET).bundle.notes["scheduled"] == "1"
    winner(t, TARGET, place, "own.jsonl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        built(t, TARGET)


def test_a_processor_of_another_family_lends_nothing(place: Path) -> None:
    assert automatic.family(OTHER) != automatic.family(TARGET) == automatic.family(KIN)
    t = task(64, 64, 64, OTHER)
    winner(t, OTHER, place)
    with pytest.warns(NestwrightWarning, match="tuned only on .*haswell.*default schedules") as got:
        assert built(t, TARGET).bundle.notes["scheduled"] == "0"
    assert "\n" not in str(got[0].message)


def test_seeds_are_winners_of_the_group_then_of_the_nearest_sizes(place: Path) -> None:
    t = task(64, 64, 64)
    assert seeds(t, automatic.automatic_log(), TARGET) == []
    winner(task(512, 512, 512), TARGET, place, "far.jsonl")
    winner(task(64, 64, 128), TARGET, place, "near.jsonl")
    own = winner(t, TARGET, place, "own.jsonl")
    found = seeds(t, automatic.automatic_log(), TARGET)
    assert 1 <= len(found) <= SEEDS
    assert t.space.choices(found[0]) == own
    assert all(t.space.valid(p) for p in found)
    other = extract(
        optimize(
            nw.parse(
                "HloModule m\nENTRY e { x = f32[999] parameter(0)\nROOT y = f32[999] tanh(x) }"
            )
        ),
        TARGET,
    )
    assert [seeds(o, automatic.automatic_log(), TARGET) for o in other] == [[] for _ in other]
    wide = task(64, 64, 64, OTHER)
    assert seeds(wide, automatic.automatic_log(), OTHER) == [], "vectors of another width"


def test_decisions_move_to_the_nearest_that_the_space_has() -> None:
    t = task(96, 96, 96)
    space = t.space
    sketch = space.sketches[0]
    point = nearest_point(space, sketch.name, dict(sketch.default))
    assert point == space.defaults()[0]
    far = {
        n: 10**9 if isinstance(v, int) and not isinstance(v, bool) else v
        for n, v in sketch.default.items()
    }
    moved = nearest_point(space, sketch.name, far)
    assert moved is None or space.valid(moved)
    assert nearest_point(space, sketch.name, {}) == point, "what is missing is as by default"
    assert nearest_point(space, "flying@9", {}) is None


def test_tuning_tries_seeds_first(place: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    host = Target.parse("cpu -threads=1")
    t = task(24, 40, 32, host)
    choices = winner(task(24, 48, 32, host), host, place)
    assert choices
    result = nw.tune(nw.parse(t.program.text), host, trials=3, log="auto", simulate_cost=True)
    rows = [line for line in result.log.read_text().splitlines() if '"k":"trial"' in line]
    assert ['"src":"seed"' in r for r in rows[:2]] == [False, True]
    assert result.log == Path("tuning_logs") / host.key / f"{result.model}.jsonl"
