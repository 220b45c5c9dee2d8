"""Products of f16 as products of f32: which, and the same values."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo import freeze, optimize_narrow, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.target import Target

TEXT = """HloModule halves
ENTRY main {
  x = f16[ROWS,40] parameter(0)
  w = f16[40,70] parameter(1)
  ROOT y = RESULT[ROWS,70] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("result", ["f16", "f32"])
@pytest.mark.parametrize(
    ("rows", "frozen", "spec", "wide"),
    [
        (9, True, "cpu", True),
        (3, True, "cpu", False),
        (9, False, "cpu", False),
        (64, False, "cpu", True),
        (64, True, "cuda -arch=sm_80", False),
    ],
)
def test_products_of_many_rows(result: str, rows: int, frozen: bool, spec: str, wide: bool) -> None:
    module = parse(TEXT.replace("ROWS", str(rows)).replace("RESULT", result))
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float16) for s in ((rows, 40), (40, 70)))
    given = freeze(module, {1: w}) if frozen else module
    found, _ = optimize_narrow(given, None, Target.parse(spec))
    (dot,) = [i for i in found.entry.instructions if i.opcode == "dot"]
    assert {str(o.array.dtype) for o in dot.operands} == {"f32" if wide else "f16"}
    assert str(found.entry.root.array.dtype) == result
    value = evaluate(found, [x] if frozen else [x, w])
    assert np.allclose(value, evaluate(module, [x, w]), rtol=1e-2, atol=1e-2)
