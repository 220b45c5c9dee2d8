"""The tuner fills the holes of a schedule written by hand, and tries rules beside our sketches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright import te
from nestwright.autotune.log.journal import read
from nestwright.autotune.log.records import DEFAULT_SKETCH
from nestwright.autotune.tasks.extract import from_func
from nestwright.autotune.tuner.offers import complaints
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.sampled import RULES


def product(n: int = 32) -> Func:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis(n, "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_func([a, b, c], name="product")


def tiled(sch: Schedule, target: Target | None = None) -> Schedule:
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, *sch.sample_tile(i, 1, 8, "rows")])
    j0, j1 = sch.split(j, [None, sch.sample_choice([8, 16], "lanes")])
    sch.reorder(i0, j0, k, i1, j1)
    sch.vectorize(j1)
    return sch


def test_holes_are_filled(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    sch = tiled(Schedule(product()))
    result = nw.tune(sch, target="cpu -threads=1", trials=7, log=log, workers=1)
    trials = read(log).trials
    assert result.trials == len(trials) == 7
    found = [t for t in trials if t.sketch != DEFAULT_SKETCH]
    assert {t.sketch for t in found} == {"written"} and all(t.status == "ok" for t in found)
    assert all(set(t.decisions) == {"rows", "lanes"} for t in found)
    assert len({tuple(t.decisions.values()) for t in found}) == len(found) == 6
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (32, 32)).astype(np.float32) for _ in range(2))
    for built in (sch, product()):
        kernel = nw.build(built, target="cpu -threads=1", log=log)
        np.testing.assert_array_equal(kernel(a, b), a @ b)


@pytest.fixture
def rule() -> Iterator[None]:
    nw.schedule_rule(tiled)
    yield
    del RULES["tiled"]


@pytest.mark.usefixtures("rule")
def test_rules_are_tried(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    nw.tune(product(), target="cpu -threads=1", trials=12, log=log, simulate_cost=True)
    trials = read(log).trials
    mine = [t for t in trials if t.sketch == "rule:tiled"]
    assert mine and all(t.status == "estimated" for t in mine)
    assert {t.sketch for t in trials} > {"rule:tiled", DEFAULT_SKETCH}


@pytest.mark.usefixtures("rule")
def test_a_rule_that_never_fits_is_named() -> None:
    target = Target.parse("cpu -threads=1")
    a = te.placeholder((32, 32), name="A")
    other = te.create_func([a, te.compute((32, 32), lambda i, j: a[i, j] * 2, name="D")])
    (told,) = complaints(from_func(other, target), target)
    assert told.startswith("schedule rule tiled fits none of 1 task") and "no block `C`" in told
    assert not complaints(from_func(product(), target), target)
    assert not complaints(from_func(tiled(Schedule(product())), target), target)
