"""Strategies on a known landscape: they reach its bottom, validly and without repetition."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from nestwright.autotune.search.evolution import Evolution
from nestwright.autotune.search.optuna_strategy import OptunaSearch
from nestwright.autotune.search.optuna_study import to_study
from nestwright.autotune.search.random import RandomSearch
from nestwright.autotune.search.rounds import next_round
from nestwright.autotune.search.seeds import nearest_point
from nestwright.autotune.search.space import Point, Space, distance
from nestwright.autotune.tuner.plan import make_strategy
from nestwright.ir.errors import UnsupportedError
from nestwright.schedule.space.space import Batch, Sketch

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def sketch(name: str = "tiling@1", names: str = "abcd", wide: bool = False) -> Sketch:
    """a*b at most 64; the estimate likes a = 4, b = 8, the rest as small as can be."""
    decisions = {n: SIZES for n in names} | {"order": ("row", "column")}
    if wide:
        decisions |= {f"x{i}": SIZES for i in range(4)}

    def estimate(c) -> float:
        off = abs(math.log2(c["a"] / 4)) + abs(math.log2(c["b"] / 8))
        rest = sum(math.log2(c[n]) for n in decisions if n not in ("a", "b", "order"))
        return 1e-6 * (1 + off + 0.1 * rest)

    return Sketch(
        name=name,
        kind="dot",
        decisions=decisions,
        default={n: d[0] for n, d in decisions.items()},
        apply=lambda schedule, c: None,
        valid=lambda c: c["a"] * c["b"] <= 64,
        cost=estimate,
    )


def truth(space: Space, point: Point) -> float:
    """What measuring would say: the estimate is wrong about the order and about c."""
    c = space.choices(point)
    return space.cost(point) * (0.6 if c["order"] == "row" else 1.0) * (1 + abs(c["c"] - 6) / 6)


def search(strategy, space: Space, rounds: int, count: int = 8) -> list[tuple[Point, float]]:
    seen: list[tuple[Point, float]] = []
    for _ in range(rounds):
        for proposal in strategy.propose(count, None):
            assert space.valid(proposal.point)
            cost = truth(space, proposal.point)
            strategy.observe(proposal.point, cost)
            seen.append((proposal.point, cost))
    assert len({p for p, _ in seen}) == len(seen), "nothing is proposed twice"
    return seen


@pytest.fixture
def space() -> Space:
    return Space([sketch()])


def test_everything_lists_the_valid_points_of_small_spaces() -> None:
    assert Space([sketch(wide=True)]).everything() is None, "large ones are sampled"
    small = Space([sketch(names="abc")])
    listed = small.everything()
    assert listed is not None and len(set(listed)) == len(listed)
    assert all(small.valid(p) for p in listed)
    pairs = sum(a * b <= 64 for a in SIZES for b in SIZES)
    assert len(listed) == pairs * len(SIZES) * 2


def test_find_is_the_inverse_of_choices(space: Space) -> None:
    for point in space.sample(np.random.default_rng(0), 20):
        assert space.find("tiling@1", space.choices(point)) == point
    assert space.find("tiling@1", {"a": 1}) is None
    assert space.find("tiling@2", space.choices(Point(0, (0, 0, 0, 0, 0)))) is None
    assert space.find("tiling@1", {**space.choices(Point(0, (0,) * 5)), "a": 5}) is None


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ({"a": 5, "b": 7, "c": 100, "order": "column"}, {"a": 6, "b": 8, "c": 32}),
        ({"a": 0.1, "b": "many", "c": [3], "order": "column"}, {}),
        ({"a": 32, "b": 32, "order": "column"}, {"b": 32}),
        ({"a": 1, "b": 2, "order": "column"}, {"b": 2}),
        ({"c": 10**400, "order": "column"}, {"c": 32}),
    ],
    ids=["ratios", "nothing to compare", "one that makes it invalid", "as it was", "huge"],
)
def test_nearest_point_of_another_space(space: Space, wanted: dict, chosen: dict) -> None:
    """Decisions that are missing, or make the point invalid, are the defaults."""
    found = nearest_point(space, "tiling@1", wanted)
    assert found is not None
    usual = dict.fromkeys("abcd", 1)
    assert space.choices(found) == {**usual, **chosen, "order": "column"}
    assert nearest_point(space, "tiling@2", wanted) is None


def test_moves_stay_valid_and_change_what_they_say(space: Space) -> None:
    rng = np.random.default_rng(0)
    a, b = space.sample(rng, 2)
    assert all(distance(a, n) == 1 and space.valid(n) for n in space.neighbors(a))
    mutants = [m for _ in range(50) if (m := space.mutate(rng, a)) is not None]
    assert mutants and all(distance(a, m) == 1 and space.valid(m) for m in mutants)
    children = [c for _ in range(50) if (c := space.cross(rng, a, b)) is not None]
    assert all(
        space.valid(c) and all(z in (x, y) for x, y, z in zip(a.at, b.at, c.at, strict=True))
        for c in children
    )
    assert not {a, b} & set(children), "a parent is no child"
    assert space.cross(rng, a, a) is None


def test_points_of_two_sketches_differ_in_more_than_all_decisions() -> None:
    assert distance(Point(0, (0, 0)), Point(0, (1, 2))) == 2
    assert distance(Point(0, (0, 0)), Point(1, (0, 0))) == 3


def test_what_is_under_way_is_not_proposed_again(space: Space) -> None:
    strategy = Evolution(space, 0)
    first, second = ({p.point for p in strategy.propose(12, None)} for _ in range(2))
    assert len(first) == len(second) == 12
    assert not first & second


def test_neighbors_are_on_both_sides_up_to_the_ends(space: Space) -> None:
    last = len(SIZES) - 1
    near = {n.at[2] for n in space.neighbors(Point(0, (0, 0, last - 1, 0, 0)))}
    assert near == {last - 2, last - 1, last}
    assert {n.at[2] for n in space.neighbors(Point(0, (0, 0, last, 0, 0)))} == {last - 1, last}


@pytest.mark.parametrize(
    ("slots", "left", "chosen"),
    [
        (1, 100, [(1, 8)]),
        (4, 100, [(1, 8)]),
        (5, 100, [(1, 8), (0, 8)]),
        (16, 100, [(1, 16), (0, 16)]),
        (5, 9, [(1, 8), (0, 1)]),
    ],
    ids=[
        "the best alone",
        "enough for all slots",
        "the next, too",
        "larger rounds",
        "what is left",
    ],
)
def test_a_round_fills_the_slots_with_the_most_promising_tasks(
    slots: int, left: int, chosen: list[tuple[int, int]]
) -> None:
    promises = [(2.0, 9), (3.0, 9), (0.0, 9)]
    assert next_round(promises, full=8, slots=slots, trials=300, left=left) == chosen


def test_first_proposals_are_the_best_estimates_but_unlike_each_other(space: Space) -> None:
    chosen = Evolution(space, 0).propose(8, None)
    assert {p.source for p in chosen} == {"prior"}
    assert all(distance(p.point, q.point) >= 1 for p in chosen for q in chosen if p is not q)
    rng = np.random.default_rng(1)
    typical = np.median([space.cost(p) for p in space.sample(rng, 200)])
    assert max(space.cost(p.point) for p in chosen) < typical


@pytest.mark.parametrize("wide", [False, True], ids=["listed-like", "sampled"])
def test_evolution_beats_random_search(wide: bool) -> None:
    space = Space([sketch(wide=wide)])
    found = min(c for _, c in search(Evolution(space, 0), space, 8))
    random = min(c for _, c in search(RandomSearch(space, 0), space, 8))
    assert found < random


def test_evolution_uses_neighbors_a_model_and_chance(space: Space) -> None:
    strategy = Evolution(space, 0)
    sources = set()
    for _ in range(6):
        for p in strategy.propose(8, lambda ps: -np.array([truth(space, q) for q in ps])):
            sources.add(p.source)
            strategy.observe(p.point, truth(space, p.point))
    assert sources == {"prior", "model", "local", "random"}


def test_a_perfect_model_leads_to_the_bottom(space: Space) -> None:
    strategy = Evolution(space, 0)
    best = math.inf
    for _ in range(6):
        for p in strategy.propose(8, lambda ps: -np.array([truth(space, q) for q in ps])):
            best = min(best, truth(space, p.point))
            strategy.observe(p.point, truth(space, p.point))
    everywhere = min(truth(space, p) for p in sketch_points(space))
    assert best == pytest.approx(everywhere)


def sketch_points(space: Space) -> list[Point]:
    found = [space.find("tiling@1", c) for c in space.sketches[0].points()]
    return [p for p in found if p is not None]


@pytest.mark.parametrize("name", ["native", "random", "optuna:tpe", "optuna:random"])
def test_small_spaces_are_exhausted_without_repetition(name: str) -> None:
    tiny = Sketch(
        "alone@1",
        "elementwise",
        {"unroll": (1, 2, 4), "parallel": (0, 1)},
        {"unroll": 1, "parallel": 0},
        lambda s, c: None,
        lambda c: c["unroll"] < 4,
        lambda c: float(c["unroll"]),
    )
    space = Space([tiny])
    strategy = make_strategy(name, space, 0)
    seen: list[Point] = []
    while chosen := strategy.propose(4, None):
        for p in chosen:
            strategy.observe(p.point, 1.0)
            seen.append(p.point)
    assert len(seen) == len(set(seen)) == 4


@pytest.mark.parametrize("name", ["native", "random", "optuna:tpe"])
def test_what_is_given_back_may_come_again(name: str) -> None:
    one = Sketch(
        "alone@1",
        "elementwise",
        {"unroll": (1,)},
        {"unroll": 1},
        lambda s, c: None,
        lambda c: True,
        lambda c: 1.0,
    )
    strategy = make_strategy(name, Space([one]), 0)
    for _ in range(3):
        [only] = strategy.propose(2, None)
        strategy.release(only.point)
    [only] = strategy.propose(2, None)
    strategy.observe(only.point, 1.0)
    assert strategy.propose(2, None) == []


def test_a_dropped_sketch_is_proposed_no_more() -> None:
    space = Space([sketch("a@1", names="abc"), sketch("b@1", names="abc")])
    space.everything()
    space.drop(0)
    listed = space.everything()
    assert listed and all(p.sketch == 1 for p in listed)
    assert all(p.point.sketch == 1 for p in Evolution(space, 0).propose(8, None))
    space.drop(1)
    assert Evolution(space, 0).propose(8, None) == []


def test_a_sketch_that_always_fails_is_soon_left_alone() -> None:
    space = Space([sketch("broken@1", names="abc"), sketch("works@1", names="abcd")])
    strategy = Evolution(space, 0)
    tried: list[int] = []
    for _ in range(6):
        for p in strategy.propose(8, None):
            tried.append(p.point.sketch)
            strategy.observe(p.point, math.inf if p.point.sketch == 0 else 1e-6)
    assert tried[16:].count(0) == 0
    assert tried.count(1) >= 32


def test_a_sketch_that_works_at_times_is_not_left_alone() -> None:
    space = Space([sketch("shaky@1", names="abc")])
    strategy = Evolution(space, 0)
    points = [p.point for p in strategy.propose(8, None)]
    for n, p in enumerate(points):
        strategy.observe(p, math.inf if n else 1e-6)
    assert len(strategy.propose(8, None)) == 8


def test_neighbors_of_the_fastest_programs_are_tried(space: Space) -> None:
    strategy = Evolution(space, 0)
    ranked = space.sample(np.random.default_rng(2), 40)
    for n, p in enumerate(ranked):
        strategy.observe(p, n + 1.0)
    local = [p.point for p in strategy.propose(16, None) if p.source == "local"]
    assert local
    assert all(min(distance(p, fast) for fast in ranked[:3]) == 1 for p in local)


def test_same_seed_same_search(space: Space) -> None:
    assert search(Evolution(space, 3), space, 4) == search(Evolution(space, 3), space, 4)


def test_optuna_starts_with_the_shortlist_and_learns(space: Space) -> None:
    small = Space([sketch(names="abc")])
    listed = small.everything()
    assert listed is not None
    strategy = OptunaSearch(small, 0)
    first = [p.point for p in strategy.propose(8, None)]
    assert first == sorted(listed, key=small.cost)[:8]


@pytest.mark.parametrize("name", ["best", "optuna:magic", "native:x"])
def test_unknown_strategies_are_refused(name: str, space: Space) -> None:
    with pytest.raises(UnsupportedError, match="no such"):
        make_strategy(name, space, 0)


def test_a_log_becomes_a_study() -> None:
    from nestwright.autotune.log.contents import Log
    from nestwright.autotune.log.journal import stamped
    from nestwright.autotune.log.records import Trial

    log = Log(())
    for n, status in enumerate(["ok", "crash", "ok"]):
        runs, trace = (((n + 1) * 1e-6,), []) if status == "ok" else ((), None)
        log.add(stamped(Trial("w", "d", "s@1", {"a": n}, status, "model", runs, trace, ts=n)))
    study = to_study(log, "w", "d")
    assert [t.state.name for t in study.trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert study.best_value == pytest.approx(1e-6)
    assert study.best_params == {"sketch": "s@1", "s@1.a": "0"}


def test_first_trials_follow_the_closer_order_and_later_ones_do_not(space: Space) -> None:
    asked: list[Point] = []

    def closer(points):
        asked.extend(points)
        return -np.array([truth(space, p) for p in points])

    def coarse(points):
        return -np.array([space.cost(p) for p in points])

    strategy = Evolution(space, 0)
    first = [p.point for p in strategy.propose(4, coarse, closer)]
    assert len(first) == 4 and 4 < len(set(asked)) <= 4 * 4
    assert min(truth(space, p) for p in first) == min(truth(space, p) for p in asked)
    worst = sorted(set(asked), key=lambda p: truth(space, p))[8:]
    assert worst and not set(first) & set(worst)
    for point in [*first, *space.sample(np.random.default_rng(0), 12)]:
        strategy.observe(point, truth(space, point))
    asked.clear()
    strategy.propose(4, coarse, closer)
    assert not asked


def batched(s: Sketch) -> Sketch:
    """Return a sketch that prices many points at once, by the same rules as one."""

    def each(column: str):
        def one(columns):
            names = list(columns)
            rows = zip(*(np.broadcast_to(columns[n], _size(columns)) for n in names), strict=True)
            kept = [dict(zip(names, [x.item() for x in row], strict=True)) for row in rows]
            return np.array([getattr(s, column)(c) for c in kept])

        return one

    return replace(s, many=Batch(each("valid"), each("cost")))


def _size(columns) -> int:
    return max(np.size(x) for x in columns.values())


def test_points_priced_together_are_as_points_priced_alone() -> None:
    single = Space([sketch("a@1"), sketch("b@1", "abc")])
    many = Space([batched(sketch("a@1")), sketch("b@1", "abc")])
    rng = np.random.default_rng(3)
    points = [p for p in single.sample(rng, 300)]
    points += [Point(0, (9, 9, 0, 0, 0)), Point(1, (9, 9, 0, 0))]
    for p in points:
        assert many.valid(p) == single.valid(p)
        assert not single.valid(p) or many.cost(p) == pytest.approx(single.cost(p), rel=1e-6)
    assert not many.valid(points[-1]) and not many.valid(points[-2])


def test_the_cheapest_are_those_of_least_cost_in_order() -> None:
    space = Space([batched(sketch("a@1", "abc")), sketch("b@1", "abc")])
    found = space.cheapest(20)
    assert {p.sketch for p in found} == {0}, "the other is priced one by one"
    costs = sorted(space.cost(p) for p in space.everything() or () if p.sketch == 0)
    assert [space.cost(p) for p in found] == costs[:20]
    assert len(space.cheapest(10**6)) == len(costs), "and no invalid one"
    space.drop(0)
    assert space.cheapest(20) == []
    assert not space.valid(found[0])


def test_a_calibrated_machine_prices_them_together_too() -> None:
    s = batched(sketch("a@1", "abc"))
    slower = replace(
        s, cost=lambda c: 2 * s.cost(c), many=Batch(s.many.valid, lambda c: 2 * s.many.cost(c))
    )
    alone = replace(slower, many=None)
    space = Space([s])
    point = space.cheapest(1)[0]
    for other in (slower, alone):
        assert space.priced([other]).cost(point) == pytest.approx(2 * space.cost(point), rel=1e-6)
