"""Sorts on GPUs: every pass is one launch of all its stages; the simulator sees no race."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import default_schedule
from nestwright.te.from_hlo import lower_group, tiles

SIM = Target.parse("cuda-sim -arch=sm_80")
ARGSORT = """HloModule m
before {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = s32[] parameter(2)
  q = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER
}}
ENTRY e {{
  x = f32[{dims}] parameter(0)
  i = s32[{dims}] iota(), iota_dimension=1
  s = (f32[{dims}], s32[{dims}]) sort(x, i), dimensions={{1}}, is_stable=true, to_apply=before
  ROOT p = s32[{dims}] get-tuple-element(s), index=1
}}
"""


@cache
def group(rows: int, n: int) -> Func:
    module = optimize(parse(ARGSORT.format(dims=f"{rows},{n}")))
    return lower_group(module.entry, "main", vectors=False)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MOST": 4, "LEAST": 4, "BLOCKS": 4}.items():
        monkeypatch.setattr(tiles, name, value)
    group.cache_clear()


def test_each_pass_is_one_launch_without_a_race(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    func = group(2, 71)
    scheduled = default_schedule(func, SIM).func
    assert len(launches(lower(scheduled, SIM))) == 3  # tiles of 28, then of 56, then rows
    x = np.random.default_rng(0).integers(-9, 9, (2, 71)).astype(np.float32)
    kernel = compile_func(scheduled, SIM)
    for seed in ("0", "3", "8"):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        np.testing.assert_array_equal(kernel(x), np.argsort(x, 1, kind="stable"))
    group.cache_clear()


def test_a_long_row_is_sorted_by_all_multiprocessors() -> None:
    for n in (200_000, 1_000_000):
        g = tiles.grid_of(1, n, 8)
        assert g.tiles * g.threads >= 128 * 132


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_nothing_is_spilled(small: None, arch: str) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    flat = lower(default_schedule(group(2, 40), target).func, target)
    found = ptxas.assemble(nvptx.compile(emit(flat, target), target), arch).kernels.values()
    assert len(found) == 2
    assert all(x.stack == x.spill_stores == x.spill_loads == 0 for x in found)
