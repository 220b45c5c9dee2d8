"""Selections, scans and networks over rows: at their edges, what the interpreter of HLO says."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.te.from_hlo import lower_group, scans

TOP = """HloModule m
ENTRY e {{
  x = s8[2,{n}] parameter(0)
  ROOT t = (s8[2,{k}], s32[2,{k}]) topk(x), k={k}, largest=true
}}
"""
SUM = """HloModule m
add {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}}
ENTRY e {{
  x = s32[{n}] parameter(0)
  zero = s32[] constant(0)
  ROOT s = s32[{n}] reduce-window(x, zero), window={{size={n} pad={pad}}}, to_apply=add
}}
"""
SORT = """HloModule m
before {{
  a = s8[] parameter(0)
  b = s8[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}
ENTRY e {{
  x = s8[{n},3] parameter(0)
  ROOT s = s8[{n},3] sort(x), dimensions={{0}}, is_stable=true, to_apply=before
}}
"""
ROUND = """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  ROOT r = f32[8] reduce-precision(x), exponent_bits=4, mantissa_bits=3
}
"""


def same(text: str, x: np.ndarray, vectors: bool = True) -> None:
    module = parse(text)
    found = run(lower_group(module.entry, "main", vectors=vectors), [x])
    right = evaluate(module, [x])
    for a, b in zip(found, right if isinstance(right, tuple) else (right,), strict=True):
        np.testing.assert_array_equal(a, b)


def few(*dims: int) -> np.ndarray:
    """Few different values, so that most have equals."""
    return np.random.default_rng(1).integers(-2, 3, dims, np.int8)


@pytest.mark.parametrize("n", [70, 300])
def test_of_equal_elements_the_first_are_selected(n: int) -> None:
    same(TOP.format(n=n, k=5), few(2, n))


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("side", ["low", "high"])
def test_the_last_segment_of_a_scan_may_be_shorter(
    vectors: bool, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SHORTEST": 16, "SHORTEST_LANE": 16, "LONGEST_ROW": 16}.items():
        monkeypatch.setattr(scans, name, value)
    n = 130
    pad = f"{n - 1}_0" if side == "low" else f"0_{n - 1}"
    same(SUM.format(n=n, pad=pad), np.arange(n, dtype=np.int32), vectors)


@pytest.mark.parametrize("n", [17, 48, 100])
def test_a_network_sorts_rows_that_end_inside_of_a_run(n: int) -> None:
    same(SORT.format(n=n), np.random.default_rng(n).integers(-99, 99, (n, 3), np.int8))


def test_numbers_below_the_least_normal_one_are_rounded_to_zero() -> None:
    least = 2.0**-6  # of four bits of exponent
    same(ROUND, np.float32([least, least * 0.99, least / 2, -least, 240, 248, -256, 0]))
