"""Holes: decisions that a schedule leaves open, in its trace and as a sketch of the tuner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nestwright as nw
import nestwright.te as te
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.visit import equal
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule, Trace
from nestwright.schedule.sketches.generate import default_schedule, generate
from nestwright.schedule.sketches.sampled import RULES, sketch_of, written_sketch

CPU = Target.parse("cpu -mcpu=haswell -threads=2")


def product(n: int = 24) -> Func:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis(n, "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_func([a, b, c], name="product")


def tiled(sch: Schedule) -> Schedule:
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, *sch.sample_tile(i, 1, 8, "rows")])
    j0, j1, j2 = sch.split(j, [None, *sch.sample_tile(j, 2, 16, "columns")])
    sch.reorder(i0, j0, k, i1, j1, j2)
    if sch.sample_choice(["serial", "unrolled"], "inner") == "unrolled":
        sch.unroll(i1)
    sch.split(k, [None, sch.sample_choice([4, 6], decision=6)])
    return sch


def test_holes_stand_in_the_trace_and_replay() -> None:
    sch = tiled(Schedule(product()))
    text = sch.trace.show()
    assert '(v0,) = sch.sample_tile(l0, 1, 8, "rows", [8])\n' in text
    assert "l3, l4 = sch.split(l0, [None, v0])\n" in text
    assert 'v1, v2 = sch.sample_tile(l1, 2, 16, "columns", [3, 8])\n' in text
    assert 'v3 = sch.sample_choice(["serial", "unrolled"], "inner", "serial")\n' in text
    assert 'v4 = sch.sample_choice([4, 6], "hole3", 6)\n' in text
    again = Trace.from_json(json.loads(json.dumps(sch.trace.to_json()))).replay(product())
    assert equal(again.func, sch.func) and again.trace == sch.trace
    shown: dict[str, Any] = {"sch": Schedule(product())}
    exec(compile(text, "trace", "exec"), shown)
    assert shown["sch"].trace == sch.trace


def test_other_decisions_fill_the_holes_of_a_trace() -> None:
    first = tiled(Schedule(product())).trace
    other = first.replay(product(), {"rows": 4, "columns_0": 2, "columns_1": 4})
    by_hand = tiled(Schedule(product(), {"rows": 4, "columns_0": 2, "columns_1": 4}))
    assert equal(other.func, by_hand.func)
    assert [other.extent(n) for n in ("i_in", "j_tile_1", "j_in")] == [4, 2, 4]
    assert '"rows", [4])' in other.trace.show()


def test_a_decision_that_names_no_hole_is_refused() -> None:
    told = "cannot decide `row` = 4: .* the holes are rows, columns_0, columns_1, inner, hole3\n"
    first = tiled(Schedule(product()))
    sketch = written_sketch(first)
    assert sketch is not None
    wrong = tiled(Schedule(product(), {"row": 4}))
    for use in (
        lambda: first.trace.replay(product(), {"row": 4}),
        lambda: nw.build(wrong),
        lambda: nw.tune(wrong, trials=1, simulate_cost=True),
        lambda: sketch.apply(Schedule(product()), {**sketch.default, "row": 4}),
    ):
        with pytest.raises(ScheduleError, match=told + "  hint: did you mean `rows`") as e:
            use()
        assert e.value.where == ""
    with pytest.raises(ScheduleError, match="it has no holes"):
        nw.build(Schedule(product(), {"rows": 4}))


def test_a_decision_may_be_for_a_hole_that_others_lead_to() -> None:
    def rule(sch: Schedule) -> None:
        if sch.sample_choice(["plain", "tiled"], "how") == "plain":
            sch.split("i", [None, sch.sample_choice([2, 4], "width")])

    sketch = sketch_of("rule", rule, product())
    assert sketch is not None and list(sketch.decisions) == ["how", "width"]
    sketch.apply(Schedule(product()), {"how": "tiled", "width": 4})


def test_decisions_left_over_by_a_trace_are_for_the_steps_to_come() -> None:
    first = Schedule(product())
    first.sample_choice([1, 2], "a")
    sch = first.trace.onto(Schedule(product(), {"a": 2, "b": 3}))
    assert sch.sample_choice([1, 3], "b") == 3
    sch.require_decisions()


def test_a_copy_is_independent() -> None:
    sch = Schedule(product())
    sch.sample_choice([1, 2], "a")
    twin = sch.copy()
    twin.sample_choice([1, 2], "b")
    assert [h.names for h in sch.holes] == [("a",)]
    assert [h.names for h in twin.holes] == [("a",), ("b",)]
    assert twin.origin is sch.origin


REFUSED: list[tuple[Callable[[Schedule], object], str]] = [
    (lambda s: s.sample_choice([]), "the options are empty"),
    (lambda s: s.sample_choice([1, 2], "a", 3), "3 is not one of its options"),
    (lambda s: s.sample_tile("i", 0), "the tile is empty"),
    (lambda s: s.sample_tile("i", 2, decision=[4]), "it takes 2 decisions"),
    (lambda s: s.sample_tile("i", 2, decision=[8, 8]), "8, 8 is not one of its options"),
    (lambda s: (s.sample_choice([1], "x"), s.sample_choice([2], "x")), "another hole has that"),
]


@pytest.mark.parametrize(("ask", "why"), REFUSED, ids=[w for _, w in REFUSED])
def test_refused(ask: Callable[[Schedule], object], why: str) -> None:
    with pytest.raises(ScheduleError) as e:
        ask(Schedule(product()))
    assert why in str(e.value) and e.value.hint


@pytest.mark.parametrize("n", [1, 2, 3, 5, 24, 97, 1000])
def test_every_option_of_a_tile_splits(n: int) -> None:
    for n_inner in (1, 2, 3):
        sch = Schedule(product(n))
        sch.sample_tile("i", n_inner, 16, "t")
        (hole,) = sch.holes
        assert hole.allows(dict(zip(hole.names, hole.default, strict=True)))
        assert all(d[0] == 1 and d[-1] <= 16 for d in hole.domains)
        sch.split("i", [None, *hole.default])


def test_a_schedule_with_holes_is_a_sketch() -> None:
    assert written_sketch(Schedule(product())) is None
    sketch = written_sketch(tiled(Schedule(product())))
    assert sketch is not None
    assert list(sketch.decisions) == ["rows", "columns_0", "columns_1", "inner", "hole3"]
    assert sketch.decisions["rows"] == (1, 2, 3, 4, 6, 8)
    assert not sketch.valid({**sketch.default, "columns_0": 16, "columns_1": 16})
    choices = {**sketch.default, "rows": 6, "hole3": 4}
    sch = Schedule(product())
    sketch.apply(sch, choices)
    assert sketch.trace is not None
    plain = sketch.trace(choices)
    assert plain == sch.trace.to_json()
    assert equal(Trace.from_json(plain).replay(product()).func, sch.func)


@pytest.fixture
def rule() -> Iterator[None]:
    @nw.schedule_rule
    def toy(sch: Schedule, target: Target) -> None:
        tiled(sch)
        if sch.sample_choice([0, 1], "parallel"):
            sch.parallel("i_tile")

    yield
    RULES.pop("toy", None)


@pytest.mark.usefixtures("rule")
def test_a_rule_is_a_sketch_beside_ours() -> None:
    sketches = generate(product(), CPU)
    assert [s.name for s in sketches] == ["tiling@2", "alone@1", "rule:toy"]
    ours, mine = sketches[0], sketches[-1]
    assert mine.cost(mine.default) == ours.cost(ours.default)
    func = product()
    default = default_schedule(func, CPU)
    del RULES["toy"]
    assert equal(default.func, default_schedule(func, CPU).func), "ours are preferred"
    assert mine.decisions["parallel"] == (0, 1)
    sch = Schedule(func)
    mine.apply(sch, {**mine.default, "parallel": 1})
    assert "sch.parallel(" in sch.trace.show()


@pytest.mark.usefixtures("rule")
def test_a_rule_that_does_not_fit_is_no_sketch() -> None:
    a = te.placeholder((8,), name="A")
    func = te.create_func([a, te.compute((8,), lambda i: a[i] + 1.0, name="B")], name="other")
    assert "rule:toy" not in [s.name for s in generate(func, CPU)]
    gpu = generate(product(), Target.parse("cuda -arch=sm_90"))
    assert gpu[-1].name == "rule:toy" and gpu[-2].name == "gpu_alone@1"


def test_refused_decisions_have_no_trace() -> None:
    sch = Schedule(product())
    sch.bind("i", sch.sample_choice(["blockIdx.x", "nowhere"], "thread"))
    sketch = written_sketch(sch)
    assert sketch is not None and sketch.trace is not None
    assert sketch.trace(sketch.default) is not None
    assert sketch.trace({**sketch.default, "thread": "nowhere"}) is None
