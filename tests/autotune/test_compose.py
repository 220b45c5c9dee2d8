"""Which winners a whole model keeps: whatever a race of each group said, the whole decides."""

from __future__ import annotations

from nestwright.autotune.measure.compare import SpeedComparison
from nestwright.autotune.tuner.compose import Composition, Kept, TimeUp, compose

ROUNDS = 12


class Model:
    """A model whose time is a sum over its groups: 10 each, and what a winner changes of it."""

    def __init__(self, limit: int = 1000, **gains: float) -> None:
        self.gains, self.limit = gains, limit
        self.races: list[tuple[Kept, Kept]] = []

    def seconds(self, kept: Kept) -> float:
        return 10.0 * len(self.gains) - sum(self.gains[g] for g in kept)

    def race(self, first: Kept, second: Kept) -> SpeedComparison | None:
        if len(self.races) == self.limit:
            raise TimeUp
        self.races.append((first, second))
        if "broken" in second:
            return None
        return SpeedComparison((self.seconds(first),) * ROUNDS, (self.seconds(second),) * ROUNDS)


def test_what_helps_as_a_whole_is_kept_in_one_race() -> None:
    model = Model(a=3, b=2, c=-0.5)
    made = compose(["a", "b", "c"], model.race)
    kept, found = made.kept, made.found
    assert not made.cut
    assert kept == {"a", "b", "c"} and len(model.races) == 1
    assert found is not None and found.speedup > 1.1


def test_what_slows_the_whole_down_is_dropped_and_the_rest_kept() -> None:
    # Each of these won the race of its group: three were charged wrongly there.
    model = Model(a=3, b=-4, c=2, d=-3, e=-2)
    made = compose(["a", "b", "c", "d", "e"], model.race)
    kept, found = made.kept, made.found
    assert kept == {"a", "c"}
    assert model.races[-1] == (frozenset(), kept), "the whole has the last word"
    assert found is not None and found.speedup == 50 / 45


def test_nothing_is_kept_of_what_only_seemed_faster() -> None:
    model = Model(a=-1, b=-2, c=0.1)
    assert compose(["a", "b", "c"], model.race) == Composition()
    assert compose([], model.race) == Composition()


def test_a_winner_that_cannot_run_in_the_whole_is_found_and_dropped() -> None:
    model = Model(a=3, broken=5, c=2)
    assert compose(["broken", "a", "c"], model.race).kept == {"a", "c"}


def test_when_time_is_up_only_what_beat_the_default_stands() -> None:
    gains = dict(a=3, b=-6, c=2, d=-3)
    names = list(gains)
    for limit in range(8):
        model = Model(limit=limit, **gains)
        made = compose(names, model.race)
        kept, found = made.kept, made.found
        assert made.cut
        if kept:
            assert found is not None and found.faster
            assert (frozenset(), kept) in model.races
            assert model.seconds(kept) < model.seconds(frozenset())
        else:
            assert found is None
    made = compose(names, Model(limit=8, **gains).race)
    assert made.kept == {"a", "c"} and not made.cut
