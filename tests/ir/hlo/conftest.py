"""What the tests of graph passes share: text before and after, and what both compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.text.canonical import canonical_text

GraphPass = Callable[[HloModule], HloModule]


def flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, tuple | list):
        return [x for part in value for x in flat(part)]
    return [np.asarray(value)]


def agree(before: HloModule, after: HloModule, tolerance: float = 1e-5) -> None:
    """Both modules give the same for the same random arguments."""
    for seed in range(2):
        arguments = random_arguments(before.entry, seed)
        expected, found = flat(evaluate(before, arguments)), flat(evaluate(after, arguments))
        assert len(expected) == len(found)
        for x, y in zip(expected, found, strict=True):
            assert x.shape == y.shape and x.dtype == y.dtype
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            a, b = x.astype(wide), y.astype(wide)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.fixture
def becomes() -> Callable[..., HloModule]:
    """``becomes(graph_pass, before, after)``: the pass turns one text into the other.

    Texts are modules without their first line; ``after`` None means that nothing changes.
    """

    def check(graph_pass: GraphPass, before: str, after: str | None) -> HloModule:
        old = parse(f"HloModule test\n{before}")
        new = graph_pass(old)
        if after is None:
            assert new.entry is old.entry
            return new
        wanted = parse(f"HloModule test\n{after}")
        assert canonical_text(new.entry) == canonical_text(wanted.entry)
        agree(old, new)
        again = graph_pass(new)
        assert canonical_text(again.entry) == canonical_text(new.entry), "not stable"
        return new

    return check


@pytest.fixture
def same_meaning() -> Callable[..., None]:
    """``same_meaning(before, after)``: two modules compute the same on random arguments."""
    return agree
