"""Serial loops inside of vectors of several registers go around them; scans along rows use it."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.stages import stage_text
from nestwright.codegen.lower.passes.interchange import interchange
from nestwright.ir.hlo import parse as hlo
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

TARGET = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
SCAN = """\
@func(outputs=1)
def f(A: f32[5, {n}], C: f32[5, {n}]):
    for l in vectorize({n}):
        C[0, l] = A[0, l]
        for t in range({trips}):
            {store}
"""
STEP = "C[t + 1, l] = C[t, l] + A[t + 1, l]"
WANTED = """\
@func(outputs=1)
def f(A: f32[5, 64], C: f32[5, 64]):
    for l in vectorize(64):
        C[0, l] = A[0, l]
    for t in range(4):
        for l in vectorize(64):
            C[t + 1, l] = C[t, l] + A[t + 1, l]
"""


def test_each_statement_has_a_vector_loop_of_its_own() -> None:
    before = parse(SCAN.format(n=64, trips=4, store=STEP))
    after = interchange(before, TARGET)
    verify(after)
    assert show(after) == WANTED
    x = np.random.default_rng(0).standard_normal((5, 64), np.float32)
    np.testing.assert_array_equal(run(after, [x])[0], run(before, [x])[0])


@pytest.mark.parametrize(
    ("n", "trips", "store"),
    [
        (16, "4", STEP),  # one register
        (64, "min(4, l + 1)", STEP),  # lanes of unlike trip counts
        (64, "4", "C[t + 1, 3] = C[t, 3] + A[t + 1, l]"),  # one element for all lanes
        (64, "4", "C[1, l] = C[1, l] + A[t + 1, l]"),  # terms of one result
        (64, "4", "if l < 60: C[t + 1, l] = C[t, l]"),
    ],
)
def test_other_loops_stay(n: int, trips: str, store: str) -> None:
    text = SCAN.format(n=n, trips=trips, store=store.replace(": C", ":\n                C"))
    before = parse(text)
    assert interchange(before, TARGET) is before


@pytest.mark.parametrize("dims", ["40,1040", "9,333", "2,30,70", "5,17"])
def test_sums_along_rows_take_neighboring_lines(dims: str) -> None:
    sizes = tuple(map(int, dims.split(",")))
    axis = len(sizes) - 2
    window = "x".join(str(n) if k == axis else "1" for k, n in enumerate(sizes))
    pads = "x".join(f"{n - 1}_0" if k == axis else "0_0" for k, n in enumerate(sizes))
    module = hlo(f"""HloModule scan
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{dims}] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[{dims}] reduce-window(x, z), window={{size={window} pad={pads}}}, to_apply=add
}}""")
    x = np.random.default_rng(0).standard_normal(sizes, np.float32)
    np.testing.assert_allclose(build(module, "cpu -threads=2")(x), x.cumsum(axis), 1e-4, 1e-4)
    if sizes[-1] == 1040:
        flat = stage_text(module, "cpu -mcpu=skylake-avx512 -threads=2", "flat").splitlines()
        inner = flat.index(next(line for line in flat if "vt0" in line)) + 1
        assert "in vectorize(128)" in flat[inner]
