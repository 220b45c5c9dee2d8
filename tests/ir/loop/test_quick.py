"""Dataclasses that are quick to make are dataclasses as they were, and frozen."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from nestwright.ir.loop.nodes import quick


@dataclass(frozen=True, slots=True)
class Plain:
    """One of each kind of field."""

    given: int
    known: str = "known"
    made: list[int] = field(default_factory=list)
    own: dict[str, int] = field(default_factory=dict, init=False)


@quick
@dataclass(frozen=True, slots=True)
class Quick:
    """The same."""

    given: int
    known: str = "known"
    made: list[int] = field(default_factory=list)
    own: dict[str, int] = field(default_factory=dict, init=False)


@pytest.mark.parametrize(
    ("args", "named"),
    [((1,), {}), ((1, "x"), {}), ((1, "x", [2]), {}), ((), {"given": 1, "made": [3]})],
)
def test_values_are_those_of_the_plain_one(
    args: tuple[object, ...], named: dict[str, object]
) -> None:
    plain, made = (kind(*args, **named) for kind in (Plain, Quick))  # type: ignore[arg-type]
    assert repr(made) == repr(plain).replace("Plain", "Quick")
    again = Quick(*args, **named)  # type: ignore[arg-type]
    assert again == made and again.own is not made.own
    assert (again.made is made.made) == (len(args) == 3 or "made" in named)
    assert replace(made, given=5) == Quick(5, made.known, made.made)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


def test_it_is_frozen() -> None:
    made = Quick(1)
    with pytest.raises(FrozenInstanceError):
        made.given = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("args", "named"),
    [((), {}), ((1, "x", [], {}), {}), ((1,), {"other": 2}), ((1,), {"given": 2})],
)
def test_what_the_plain_one_refuses(args: tuple[object, ...], named: dict[str, object]) -> None:
    for kind in (Plain, Quick):
        with pytest.raises(TypeError):
            kind(*args, **named)  # type: ignore[arg-type]
