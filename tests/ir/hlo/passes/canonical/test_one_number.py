"""Products by one number, repeated: sums of the other operand."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo import optimize, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule

TEXT = """HloModule ones
ENTRY main {
  x = TYPE[LEFT] parameter(0)
  c = TYPE[] parameter(1)
  w = TYPE[RIGHT] broadcast(c), dimensions={}
  ROOT y = SUM[MADE] dot(PAIR), DIMS
}
"""
PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHED = (
    "lhs_batch_dims={1}, rhs_batch_dims={2}, lhs_contracting_dims={2}, rhs_contracting_dims={0}"
)
FORMS = {
    "matrix": ("6,8", "8,5", "6,5", "x, w", PLAIN),
    "turned": ("8,6", "5,8", "5,6", "w, x", PLAIN),
    "batches": ("3,4,8", "8,7,4", "4,3,7", "x, w", BATCHED),
    "batches of the right": ("8,7,4", "3,4,8", "4,3,7", "w, x", BATCHED),
    "two sums": (
        "6,8,2",
        "8,2,5",
        "6,5",
        "x, w",
        "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}",
    ),
}


def module(form: str, dtype: str = "f32", sums: str = "") -> HloModule:
    left, right, made, pair, dims = FORMS[form]
    text = TEXT.replace("LEFT", left).replace("RIGHT", right).replace("MADE", made)
    text = text.replace("PAIR", pair).replace("DIMS", dims)
    return parse(text.replace("TYPE", dtype).replace("SUM", sums or dtype))


def dots(m: HloModule) -> int:
    return sum(i.opcode == "dot" for i in optimize(m).entry.instructions)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("dtype", "sums"), [("f32", ""), ("bf16", ""), ("bf16", "f32"), ("s8", "s32"), ("s8", "s8")]
)
def test_sums_times_the_number(form: str, dtype: str, sums: str) -> None:
    m = module(form, dtype, sums)
    assert dots(m) == 0
    kind, rng = to_numpy(BY_NAME[dtype]), np.random.default_rng(0)
    x = rng.integers(-3, 4, m.entry.parameters[0].array.dims).astype(kind)
    for number in (0, 1, -2, *((np.inf, np.nan) if dtype != "s8" else (100,))):
        given = [x, np.asarray(number, kind)]
        with np.errstate(invalid="ignore"):
            want, got = evaluate(m, given), evaluate(optimize(m), given)
        np.testing.assert_array_equal(np.float64(got), np.float64(want), str(number))


def test_other_products_stay() -> None:
    """Rows that differ are no number."""
    rows = TEXT.replace("c = TYPE[]", "c = TYPE[8]").replace("dimensions={}", "dimensions={0}")
    left, right, made, pair, dims = FORMS["matrix"]
    for word, value in (("LEFT", left), ("RIGHT", right), ("MADE", made), ("PAIR", pair)):
        rows = rows.replace(word, value)
    rows = rows.replace("DIMS", dims).replace("TYPE", "f32").replace("SUM", "f32")
    assert dots(parse(rows)) == 1
