"""Products of a few rows read weights in their narrow form, in one kernel."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.dtypes import bf16, to_numpy
from nestwright.ir.hlo import optimize_narrow, parse
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.target import Target

TYPES = {"f32": np.float32, "bf16": to_numpy(bf16), "s8": np.int8}
TEXT = """HloModule few
ENTRY main {{
  x = {wide}[{m},{k}] parameter(0)
  q = {narrow}[{w}] parameter(1)
  w = {wide}[{w}] convert(q)
  y = {wide}[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{c}}}
  {also}
}}
"""
ALONE = "ROOT r = {wide}[{m},{n}] negate(y)"
AGAIN = "ROOT r = ({wide}[{m},{n}], {wide}[{w}]) tuple(y, w)"


def source(
    narrow: str, wide: str, sizes: tuple[int, int, int], by_row: bool = False, also: str = ALONE
) -> str:
    m, k, n = sizes
    w = f"{n},{k}" if by_row else f"{k},{n}"
    also = also.format(wide=wide, m=m, n=n, w=w)
    return TEXT.format(wide=wide, narrow=narrow, m=m, k=k, n=n, w=w, c=int(by_row), also=also)


def groups(text: str, spec: str = "cuda -arch=sm_80") -> int:
    target = Target.parse(spec)
    module, _ = optimize_narrow(parse(text), None, target)
    return len(fuse(module.entry, target.row.groups).groups)


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize(
    ("narrow", "wide", "sizes"),
    [
        ("s8", "bf16", (1, 96, 80)),
        ("s8", "f32", (3, 67, 33)),
        ("bf16", "f32", (1, 64, 40)),
        ("s8", "f32", (1, 1, 40)),
        ("s8", "f32", (1, 0, 40)),
    ],
)
def test_results(narrow: str, wide: str, sizes: tuple[int, int, int], by_row: bool) -> None:
    text, rng = source(narrow, wide, sizes, by_row), np.random.default_rng(0)
    m, k, n = sizes
    assert groups(text) == 1 or k < 2
    x = rng.integers(-3, 4, (m, k)).astype(TYPES[wide])
    q = rng.integers(-8, 9, (n, k) if by_row else (k, n)).astype(TYPES[narrow])
    right = np.asarray(evaluate(parse(text), [x, q])).astype(np.float32)
    for spec in ("cuda-sim -arch=sm_80", "cpu -threads=2"):
        found = np.asarray(nw.build(parse(text), spec)(x, q))
        np.testing.assert_array_equal(found.astype(np.float32), right)


def test_what_is_converted_apart() -> None:
    assert groups(source("s8", "bf16", (64, 96, 80))) == 2  # many rows use each element
    assert groups(source("s8", "bf16", (1, 96, 80), also=AGAIN)) == 2  # a result itself
    assert groups(source("s8", "bf16", (64, 96, 80)), "cpu") == 2


def test_what_cpus_read_in_place_and_what_they_transpose() -> None:
    assert groups(source("s8", "bf16", (1, 96, 80)), "cpu") == 1
    assert groups(source("s8", "bf16", (3, 96, 80)), "cpu") == 1
    assert groups(source("s8", "bf16", (1, 96, 80), by_row=True), "cpu") == 1
    assert groups(source("s8", "bf16", (3, 96, 80), by_row=True), "cpu") > 1
