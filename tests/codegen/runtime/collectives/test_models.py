"""Models of JAX's ``shard_map`` on all of their devices, beside one process.

``data/make.py`` writes them; the tests need no JAX.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.hlo.interp.devices import evaluate_devices
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.shardings import tiles
from nestwright.ir.hlo.text import parse

from .on_threads import run_on_threads

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("count", [2, 4])
def test_a_data_parallel_step_is_the_step_of_one_process(count: int) -> None:
    one = parse((DATA / "step_1.hlo").read_text())
    model = parse((DATA / f"step_{count}.hlo").read_text())
    draw = np.random.default_rng(count)
    whole = [draw.normal(size=p.array.dims).astype("f4") for p in one.entry.parameters]
    cuts = [tiles(p) for p in model.entry.parameters]
    dims = [p.array.dims for p in model.entry.parameters]
    args = [
        [
            a if cut is None else cut.part(a, d, n)
            for a, cut, d in zip(whole, cuts, dims, strict=True)
        ]
        for n in range(count)
    ]
    assert [a.shape for a in args[1]] == dims
    wanted = evaluate(one, whole)
    for results in (run_on_threads(build(model), args), evaluate_devices(model, args)):
        for found in results:
            for a, b, first in zip(found, wanted, results[0], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
                np.testing.assert_array_equal(a, first)  # all ranks agree to the last bit


@pytest.mark.parametrize("count", [2, 4])
def test_each_collective_of_jax(count: int) -> None:
    model = parse((DATA / f"every_{count}.hlo").read_text())
    draw = np.random.default_rng(count)
    parts = [draw.integers(-9, 9, (4, 8)).astype("f4") for _ in range(count)]
    for rank, found in enumerate(run_on_threads(build(model), [[p] for p in parts])):
        total, largest, least, whole, piece, turned, moved, numbered = found
        np.testing.assert_array_equal(total, sum(parts))
        np.testing.assert_array_equal(largest, np.maximum.reduce(parts))
        np.testing.assert_array_equal(least, np.minimum.reduce(parts))
        np.testing.assert_array_equal(whole, np.concatenate(parts))
        np.testing.assert_array_equal(piece, np.split(sum(parts), count)[rank])
        rows = [np.split(p, count)[rank] for p in parts]
        np.testing.assert_array_equal(turned, np.concatenate(rows, axis=1))
        np.testing.assert_array_equal(moved, parts[rank - 1])
        np.testing.assert_array_equal(numbered, parts[rank] + rank)
