"""A pad that a pool might take as its own padding: only where no window can tell the two apart."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.canonical.window import canonical_window
from nestwright.ir.hlo.text import parse

TEXT = """HloModule pool
most {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }}
ENTRY e {{
  x = f32[4,6] parameter(0)
  y = f32[4,6] parameter(1)
  v = f32[4,6] {values}
  zero = f32[] constant({zero})
  low = f32[] constant(-inf)
  p = f32[{padded}] pad(v, zero), padding={padding}
  ROOT r = f32[{dims}] reduce-window(p, low), window={{size={size}}}, to_apply=most
}}"""
VALUES = {
    "abs(x)": True,
    "multiply(x, x)": True,
    "add(x, y)": False,
    "multiply(x, y)": False,
    "maximum(x, y)": False,
    "minimum(x, y)": False,
    "negate(x)": False,
}
"""Values, and whether none of them is below 0."""
SIZES = {"2x2": ("5,7", True), "3x3": ("4,6", True), "1x2": ("6,7", False), "1x1": ("6,8", False)}
"""Windows, the results' shape, and whether each has an element that is not padding."""

AROUND = {"padded": "6,8", "padding": "1_1x1_1"}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("zero", ["0", "-inf", "1"])
def test_the_same_elements_are_the_largest(values: str, size: str, zero: str) -> None:
    dims, inside = SIZES[size]
    module = parse(TEXT.format(values=values, size=size, dims=dims, zero=zero, **AROUND))
    found = canonical_window(module)
    (pool,) = (i for i in found.entry.instructions if i.opcode == "reduce-window")
    taken = pool.operands[0].opcode != "pad"
    assert taken == (inside and (zero == "-inf" or (zero == "0" and VALUES[values])))
    x = -np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    args = [x, x[::-1] + 30]
    np.testing.assert_array_equal(evaluate(found, args), evaluate(module, args))


@pytest.mark.parametrize(
    ("padding", "padded", "dims", "zero"),
    [("1_1_1x1_1", "9,8", "8,7", "-inf"), ("3_1x1_1", "8,8", "7,7", "0")],
    ids=["between elements", "windows of padding alone"],
)
def test_other_pads_stay(padding: str, padded: str, dims: str, zero: str) -> None:
    around = {"padded": padded, "padding": padding}
    module = parse(TEXT.format(values="abs(x)", size="2x2", dims=dims, zero=zero, **around))
    assert canonical_window(module) is module
