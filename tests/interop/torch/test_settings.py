"""Options and modes of the torch backend: read, and refused by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from nestwright.interop.torch.settings import TRIALS, Settings, parse
from nestwright.ir.errors import ArgumentError


def test_nothing_given_is_the_default() -> None:
    assert parse() == parse(None, {}) == parse("default") == Settings()


def test_options_are_the_fields() -> None:
    given = {"log": "x.jsonl", "tune": 8, "weights": "bf16", "denormals": "flush"}
    found = parse(None, given)
    assert {name: getattr(found, name) for name in given} == given


def test_max_autotune_tunes() -> None:
    assert parse("max-autotune").tune == TRIALS
    assert parse("max-autotune", {"tune": 3}).tune == 3


@pytest.mark.parametrize(
    ("mode", "options", "told"),
    [
        ("fast", None, "the modes are default, reduce-overhead"),
        (None, {"tunes": 3}, "did you mean 'tune'?"),
        (None, {"tune": "3"}, "expected int"),
        (None, {"tune": True}, "expected int"),
        (None, {"tune": -1}, "from 0 on"),
        (None, {"sizes": 0}, "from 1 on"),
        (None, {"weights": 8}, "expected str or None"),
        (None, ["tune"], "expected a dict"),
    ],
)
def test_others_are_refused(mode: object, options: Any, told: str) -> None:
    with pytest.raises(ArgumentError, match=r"torch\.compile") as caught:
        parse(mode, options)
    assert told in str(caught.value)


def test_every_field_has_a_kind() -> None:
    for field in fields(Settings):
        with pytest.raises(ArgumentError, match="expected"):
            parse(None, {field.name: object()})
