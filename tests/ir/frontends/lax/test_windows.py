"""Pools against windows walked in Python: padding, dilation, counts rounded up, ties and NaN."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from nestwright.ir.frontends.lax import windows

CASES = [  # dims, sizes, strides, dilations, padding, rounded up
    ((7, 5), (3, 2), (2, 1), (1, 1), ((1, 1), (0, 0)), False),
    ((7, 5), (3, 2), (2, 2), (1, 2), ((1, 0), (1, 1)), False),
    ((6, 6), (3, 3), (2, 2), (1, 1), ((0, 0), (1, 1)), True),
    ((4, 1), (2, 1), (3, 1), (1, 1), ((1, 1), (0, 0)), True),
    ((5,), (2,), (4,), (1,), ((0, 0),), False),
    ((3,), (5,), (1,), (1,), ((0, 0),), False),  # no window fits
]


def made(case: Any) -> windows.Windows:
    dims, sizes, strides, dilations, padding, ceil = case
    counts = tuple(
        windows.number_of_windows(d, (k - 1) * a + 1, s, edge, ceil)
        for d, k, a, s, edge in zip(dims, sizes, dilations, strides, padding, strict=True)
    )
    return windows.Windows(dims, counts, sizes, strides, dilations, padding)


def inside(w: windows.Windows, at: Any) -> list[tuple[int, ...]]:
    """The places of one window's elements that the array has, in order."""
    every = [
        tuple(
            i * s - low + k * a
            for i, s, (low, _), k, a in zip(at, w.strides, w.padding, o, w.dilations, strict=True)
        )
        for o in product(*map(range, w.sizes))
    ]
    return [p for p in every if all(0 <= i < d for i, d in zip(p, w.dims, strict=True))]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} by {c[1]}")
@pytest.mark.parametrize("kind", ["numbers", "ties", "nan"])
def test_largest_elements_and_their_places(case: Any, kind: str, run: Any) -> None:
    w = made(case)
    x = np.random.default_rng(0).integers(-3, 3, (2, *w.dims)).astype(np.float32)
    if kind == "numbers":
        x = np.random.default_rng(1).permutation(x.size).astype(np.float32).reshape(x.shape)
    if kind == "nan":
        x[x == 1] = np.nan
    best, places = run(
        lambda t: (windows.pool(t, "maximum", w), windows.places_of_largest(t, w)), x
    )
    assert best.shape == places.shape == (2, *w.counts)
    for n, *at in np.ndindex(best.shape):
        values = [(x[(n, *p)], int(np.ravel_multi_index(p, w.dims))) for p in inside(w, at)]
        nans = [p for v, p in values if np.isnan(v)]
        top = max((v for v, _ in values if not np.isnan(v)), default=np.nan)
        expected = nans[-1] if nans else next(p for v, p in values if v == top)
        assert places[(n, *at)] == expected
        np.testing.assert_equal(best[(n, *at)], np.nan if nans else top)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} by {c[1]}")
def test_means_count_the_elements_of_the_array(case: Any, run: Any) -> None:
    w = made(case)
    x = np.random.default_rng(0).standard_normal((2, *w.dims)).astype(np.float32)
    counts = windows.elements_of_windows(w, include_pad=False)
    found = run(lambda t: windows.divided(windows.pool(t, "add", w), counts), x)
    for n, *at in np.ndindex(found.shape):
        wanted = np.mean([x[(n, *p)] for p in inside(w, at)])
        np.testing.assert_allclose(found[(n, *at)], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} by {c[1]}")
def test_spread_is_the_adjoint_of_part(case: Any, run: Any) -> None:
    w = made(case)
    if 0 in w.counts:
        pytest.skip("there is no window")
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, *w.dims)).astype(np.float32)
    y = rng.integers(-9, 9, (2, *w.counts)).astype(np.float32)
    for offset in w.offsets():
        parts, spread = run(
            lambda a, b, o=offset: (w.part(w.around(a, 0), o), w.spread(b, o)), x, y
        )
        assert (parts * y).sum() == (x * spread).sum()


@pytest.mark.parametrize("case", CASES[:-1], ids=lambda c: f"{c[0]} by {c[1]}")
def test_numbers_at_the_places_of_the_largest_elements(case: Any, run: Any) -> None:
    w = made(case)
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, *w.dims)).astype(np.float32)
    y = rng.integers(-9, 9, (2, *w.counts)).astype(np.float32)
    places, found = run(
        lambda a, b: ((p := windows.places_of_largest(a, w)), windows.at_places(b, p, w)), x, y
    )
    expected = np.zeros((2, int(np.prod(w.dims))), np.float32)
    for n, *at in np.ndindex(y.shape):
        expected[n, places[(n, *at)]] += y[(n, *at)]
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
