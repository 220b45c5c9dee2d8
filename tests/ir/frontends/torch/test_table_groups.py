"""Rows for groups of tokens, without torch: products of groups, histograms, grids of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import f32, f64
from nestwright.ir.errors import UnsupportedError

Called = Callable[..., Any]

ENDS = np.array([3, 3, 30, 40], np.int32)
PARTS = [slice(0, 3), slice(3, 3), slice(3, 30), slice(30, 40)]


def whole(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, dims).astype(np.float32)


def test_rows_are_multiplied_by_the_weights_of_their_group(called: Called) -> None:
    x, w = whole(40, 16), whole(4, 16, 8, seed=1)
    wanted = np.concatenate([x[p] @ w[n] for n, p in enumerate(PARTS)])
    for name in ("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default"):
        np.testing.assert_array_equal(called(name, [(f32, (40, 8))], x, w, ENDS), wanted)


def test_columns_and_terms_may_be_in_groups(called: Called) -> None:
    name = "aten._grouped_mm.default"
    x, w = whole(4, 8, 16), whole(16, 40, seed=1)
    wanted = np.concatenate([x[n] @ w[:, p] for n, p in enumerate(PARTS)], 1)
    np.testing.assert_array_equal(called(name, [(f32, (8, 40))], x, w, ENDS), wanted)
    x, w = whole(8, 40), whole(40, 16, seed=1)
    sums = np.stack([x[:, p] @ w[p] for p in PARTS])
    np.testing.assert_array_equal(called(name, [(f32, (4, 8, 16))], x, w, ENDS), sums)
    x, w = whole(4, 8, 16), whole(4, 16, 5, seed=1)
    np.testing.assert_array_equal(called(name, [(f32, (4, 8, 5))], x, w), x @ w)
    with pytest.raises(UnsupportedError, match="bias"):
        called(name, [(f32, (4, 8, 5))], x, w, None, whole(5))
    with pytest.raises(UnsupportedError, match="offs"):
        called(name, [(f32, (4, 8, 5))], x, w, ENDS)


def test_gradients_of_groups(called: Called) -> None:
    x, w, g = whole(40, 16), whole(4, 16, 8, seed=1), whole(40, 8, seed=2)
    name = "transformers.grouped_mm_fallback_backward.default"
    of_x, of_w = called(name, [(f32, x.shape), (f32, w.shape)], x, w, ENDS, g)
    rows = np.concatenate([g[p] @ w[n].T for n, p in enumerate(PARTS)])
    np.testing.assert_array_equal(of_x, rows)
    np.testing.assert_array_equal(of_w, np.stack([x[p].T @ g[p] for p in PARTS]))


@pytest.mark.parametrize("ends", [(), (0, 7), (-1, 2), (3, 3)])
def test_a_histogram_counts_parts_of_a_range(called: Called, ends: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=(20, 31))
    x[0, :3], x[0, 3:5] = np.round(x[0, :3]), (-1, 2)
    low, high = ends if ends and ends[0] != ends[1] else (x.min(), x.max())
    wanted = np.histogram(x, 8, (low, high))[0]
    found = called("aten.histc.default", [(f64, (8,))], x, 8, *ends)
    np.testing.assert_array_equal(found, wanted)


def test_a_histogram_of_one_value_and_of_what_is_no_number(called: Called) -> None:
    x = np.full(5, 2, np.float32)
    # torch 2.13: the range of equal elements is one wider at each end
    found = called("aten.histc.default", [(f32, (4,))], x, 4)
    np.testing.assert_array_equal(found, [0, 0, 5, 0])
    x = np.array([np.nan, np.inf, -np.inf, 0, 1], np.float32)
    np.testing.assert_array_equal(called("aten.histc.default", [(f32, (2,))], x, 2, 0, 1), [1, 1])
    x = np.zeros(0, np.float32)
    np.testing.assert_array_equal(called("aten.histc.default", [(f32, (3,))], x, 3), [0, 0, 0])
    with pytest.raises(UnsupportedError, match="s32"):
        called("aten.histc.default", [(f32, (3,))], np.zeros(3, np.int32), 3, 0, 1)


@pytest.mark.parametrize("indexing", ["ij", "xy"])
@pytest.mark.parametrize("sizes", [(3,), (3, 4), (3, 4, 2)])
def test_grids_of_vectors(called: Called, sizes: tuple[int, ...], indexing: Any) -> None:
    lines = [np.arange(n, dtype=np.float32) for n in sizes]
    wanted = np.meshgrid(*lines, indexing=indexing)
    results = [(f32, w.shape) for w in wanted]
    found = called("aten.meshgrid.indexing", results, lines, indexing=indexing)
    for f, w in zip(found if len(sizes) > 1 else [found], wanted, strict=True):
        np.testing.assert_array_equal(f, w)
