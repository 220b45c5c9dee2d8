"""Guards of groups whose results are tested: their inputs are there still when one fails."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate

TEXT = """HloModule residual
ENTRY e {
  x = f32[1,2,8] parameter(0)
  w = f32[3,8,8] parameter(1)
  a = f32[2,5] parameter(2)
  b = f32[5,8] parameter(3)
  d = f32[2,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[1,2,8] reshape(d)
  c = f32[1,2,8] convolution(x, w), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f
  ROOT s = f32[1,2,8] add(c, y)
}"""


@pytest.mark.parametrize("special", [1.0, np.inf, np.nan])
def test_what_is_added_is_not_overwritten_before_it_may_be_added_again(special: float) -> None:
    module = parse(TEXT)
    rng = np.random.default_rng(0)
    shapes = [p.array.dims for p in module.entry.parameters]
    args = [rng.integers(-3, 4, s).astype(np.float32) for s in shapes]
    args[1][0, 0, 0] = special
    exe = build(module)
    assert ".always" in exe.as_text("plan") and ".test" in exe.as_text("plan")
    np.testing.assert_array_equal(exe(*args), evaluate(module, args))
