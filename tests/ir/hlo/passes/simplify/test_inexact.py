"""What looks like a rule of algebra, or of shapes, and is none: these are left as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.simplify.algebra import simplify_algebra
from nestwright.ir.hlo.passes.simplify.shapes import simplify_shapes
from nestwright.ir.hlo.text import parse

ROUNDED = {
    ("bf16", "f16", "f32"): [1 + 2**-7, 2.0**-20, 1e30],
    ("f16", "bf16", "f32"): [1 + 2**-10, 65504],
    ("f8e5m2", "f8e4m3fn", "f32"): [57344, 2.0**-16],
    ("f8e8m0fnu", "f16", "f32"): [2.0**20, 2.0**-100],
    ("f32", "f16", "f64"): [1e-9, 1e9, 1 + 2**-20],
    ("s16", "s8", "s32"): [300, -129],
    ("s8", "u16", "s32"): [-1, -128],
    ("f64", "s32", "f64"): [2.5, -0.5],
}
"""Conversions by way of a type that does not have all values, and some that it lacks."""


@pytest.mark.parametrize("types", ROUNDED, ids="-".join)
def test_a_conversion_that_loses_something_stays(types: tuple[str, str, str]) -> None:
    first, between, last = types
    x = np.array(ROUNDED[types]).astype(to_numpy(BY_NAME[first]))
    n = x.size
    module = parse(f"""HloModule c
ENTRY e {{
  x = {first}[{n}] parameter(0)
  y = {between}[{n}] convert(x)
  ROOT z = {last}[{n}] convert(y)
}}""")
    with np.errstate(all="ignore"):
        found, wanted = (np.asarray(evaluate(m, [x])) for m in (simplify_algebra(module), module))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("dtype", "by", "x"),
    [
        ("f32", "1e-45", [0.0, 1e-45, -3e-45, 1.0]),
        ("f16", "5.9604645e-08", [0.0, 6e-8, 1.0]),
        ("bf16", "9.1835e-41", [0.0, 9.1835e-41, 1.0]),
        ("f64", "5e-324", [0.0, 5e-324, 1e-320]),
    ],
)
def test_a_power_of_two_whose_inverse_is_infinite_divides(
    dtype: str, by: str, x: list[float]
) -> None:
    module = parse(f"""HloModule d
ENTRY e {{
  x = {dtype}[{len(x)}] parameter(0)
  c = {dtype}[] constant({by})
  b = {dtype}[{len(x)}] broadcast(c), dimensions={{}}
  ROOT q = {dtype}[{len(x)}] divide(x, b)
}}""")
    given = [np.array(x).astype(to_numpy(BY_NAME[dtype]))]
    with np.errstate(all="ignore"):
        found, wanted = (np.asarray(evaluate(m, given)) for m in (simplify_algebra(module), module))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("exponent", ["(2, 0)", "(0.5, 0)", "(-1, 1)", "(0, 0)"])
def test_a_power_of_complex_numbers_stays(exponent: str) -> None:
    module = parse(f"""HloModule p
ENTRY e {{
  x = c64[3] parameter(0)
  c = c64[] constant({exponent})
  b = c64[3] broadcast(c), dimensions={{}}
  ROOT r = c64[3] power(x, b)
}}""")
    assert simplify_algebra(module).entry.root.opcode == "power"


REDUCE = """HloModule r
f {{ a = {t}[] parameter(0)  b = {t}[] parameter(1)  ROOT c = {t}[] {op}(a, b) }}
ENTRY e {{
  x = {t}[3,{n}] parameter(0)
  i = {t}[] constant({init})
  o = {t}[] constant({outer})
  r = {t}[3] reduce(x, i), dimensions={{1}}, to_apply=f
  ROOT s = {t}[] reduce(r, o), dimensions={{0}}, to_apply=f
}}"""


@pytest.mark.parametrize(
    ("t", "op", "init", "outer"),
    [
        ("s32", "add", 5, 0),
        ("s32", "multiply", 2, 1),
        ("s32", "and", 6, -1),
        ("u8", "and", 1, 255),
        ("u8", "and", 255, 1),
        ("s32", "or", 8, 0),
        ("s32", "xor", 3, 0),
        ("s32", "maximum", 99, -(2**31)),
        ("s32", "minimum", -9, 2**31 - 1),
        ("u8", "maximum", 200, 0),
        ("f32", "maximum", 99.5, "-inf"),
        ("f32", "minimum", -2.5, "inf"),
        ("pred", "and", "false", "true"),
        ("pred", "or", "true", "false"),
    ],
)
@pytest.mark.parametrize("n", [1, 4])
def test_a_reduction_from_a_value_that_counts_keeps_it(
    t: str, op: str, init: Any, outer: Any, n: int
) -> None:
    module = parse(REDUCE.format(t=t, op=op, init=init, outer=outer, n=n))
    values = 6 + 8 * (np.arange(3 * n).reshape(3, n) % 4)  # bits in common, and others
    x = (values if t != "pred" else values * (op == "and")).astype(to_numpy(BY_NAME[t]))
    found, wanted = (evaluate(m, [x]) for m in (simplify_shapes(module), module))
    np.testing.assert_array_equal(found, wanted)
