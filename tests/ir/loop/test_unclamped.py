"""Indices of copies that fill with zeros: unclamped where the condition says enough, no others."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.loop.build import add, both, lt, maximum, minimum, sub
from nestwright.ir.loop.nodes import Expr, Var
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.unclamped import unclamped

Y, K = Var("y"), Var("k")


AT = sub(add(Y, K), 1)
ABOVE, BELOW = lt(0, add(Y, K)), lt(add(Y, K), 57)


@pytest.mark.parametrize(
    ("cond", "wanted"),
    [
        (both(ABOVE, BELOW), "y + k - 1"),
        (ABOVE, "min(y + k - 1, 55)"),
        (BELOW, "min(max(y + k - 1, 0), 55)"),
        (both(ABOVE, lt(add(Y, K), 50)), "y + k - 1"),
        (both(ABOVE, lt(add(Y, K), 58)), "min(y + k - 1, 55)"),
        (both(lt(0, Y), lt(Y, 57)), "min(max(y + k - 1, 0), 55)"),
    ],
)
def test_what_a_condition_makes_needless(cond: Expr | None, wanted: str) -> None:
    assert cond is not None
    assert show(unclamped(minimum(maximum(AT, 0), 55), cond)) == wanted


CONV = """HloModule conv
ENTRY main {
  x = bf16[2,9,11,16] parameter(0)
  w = bf16[3,3,16,32] parameter(1)
  ROOT y = bf16[2,5,6,32] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x1_1}, \
dim_labels=b01f_01io->b01f
}
"""


def test_a_padded_convolution_reads_no_pixel_outside() -> None:
    target = "cuda-sim -arch=sm_80"
    module = nw.parse(CONV)
    flat = stage_text(module, target, "flat")
    copies = [line for line in flat.splitlines() if "copy_async_zfill" in line and "p0[" in line]
    assert copies and not any("min(" in c or "max(" in c for c in copies)
    rng = np.random.default_rng(0)
    exe = nw.build(module, target, cache=False)
    args = [rng.integers(-2, 3, a.shape).astype(a.dtype) for a in exe.random_arguments(0)]
    image = np.pad(args[0].astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    kernel, wanted = args[1].astype(np.float32), np.zeros((2, 5, 6, 32), np.float32)
    for i in range(3):
        for j in range(3):
            wanted += image[:, i : i + 9 : 2, j : j + 11 : 2] @ kernel[i, j]
    np.testing.assert_allclose(np.asarray(exe(*args)).astype(np.float32), wanted, rtol=1e-2)
