"""Sorts on GPUs: every pass is one launch of all its stages; the simulator sees no race."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.dtypes import bf16, to_numpy
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


LEXICAL = """HloModule m
before {{
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  p = bf16[] parameter(2)
  q = bf16[] parameter(3)
  first = pred[] compare(a, b), direction=LT
  same = pred[] compare(a, b), direction=EQ
  then = pred[] compare(p, q), direction=GT
  tie = pred[] and(same, then)
  ROOT c = pred[] or(first, tie)
}}
ENTRY e {{
  x = bf16[{dims}] parameter(0)
  zero = bf16[] constant(0)
  zeros = bf16[{dims}] broadcast(zero), dimensions={{}}
  low = pred[{dims}] compare(x, zeros), direction=LT
  s = (pred[{dims}], bf16[{dims}]) sort(low, x), dimensions={{1}}, to_apply=before
  ROOT p = bf16[{dims}] get-tuple-element(s), index=1
}}
"""


@cache
def group(text: str, rows: int, n: int) -> Func:
    module = optimize(parse(text.format(dims=f"{rows},{n}")))
    return lower_group(module.entry, "main", vectors=False)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MOST": 4, "LEAST": 4, "BLOCKS": 4}.items():
        monkeypatch.setattr(tiles, name, value)
    group.cache_clear()


def test_each_pass_is_one_launch_without_a_race(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    func = group(ARGSORT, 2, 50)
    scheduled = default_schedule(func, SIM).func
    assert len(launches(lower(scheduled, SIM))) == 2  # tiles of 28, then rows
    x = np.random.default_rng(0).integers(-9, 9, (2, 50)).astype(np.float32)
    kernel = compile_func(scheduled, SIM)
    for seed in ("0", "3", "8"):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        np.testing.assert_array_equal(kernel(x), np.argsort(x, 1, kind="stable"))


def test_any_comparator_makes_no_race(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By sign, then descending: 3, 2, .., then -1, -2, .."""
    x = np.random.default_rng(0).integers(-9, 9, (2, 40)).astype(to_numpy(bf16))
    x[0, 3] = np.nan  # which is neither before nor behind anything
    kernel = compile_func(default_schedule(group(LEXICAL, 2, 40), SIM).func, SIM)
    for seed in ("0", "5"):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        found = kernel(x).astype(np.float32)
        np.testing.assert_array_equal(np.sort(found, 1), np.sort(x.astype(np.float32), 1))
        np.testing.assert_array_equal(found[1], sorted(found[1], key=lambda v: (v < 0, -v)))


def test_a_long_row_is_sorted_by_all_multiprocessors() -> None:
    for n in (200_000, 1_000_000):
        g = tiles.grid_of(1, n, 8)
        assert g.tiles * g.threads >= 128 * 132


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_nothing_is_spilled(small: None, arch: str) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    flat = lower(default_schedule(group(ARGSORT, 2, 40), target).func, target)
    found = ptxas.assemble(nvptx.compile(emit(flat, target), target), arch).kernels.values()
    assert len(found) == 2
    assert all(x.stack == x.spill_stores == x.spill_loads == 0 for x in found)
