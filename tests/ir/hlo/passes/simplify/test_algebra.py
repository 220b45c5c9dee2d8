"""Algebraic rules give the same numbers: constants on either side, types, and special values."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.simplify.algebra import simplify_algebra
from nestwright.ir.hlo.text import parse

NUMBERS = {
    "f32": [-np.inf, -2.5, -1, -0.0, 0, 0.5, 1, 3, np.inf, np.nan, 1e30],
    "bf16": [-np.inf, -2.5, -1, -0.0, 0, 0.5, 1, 3, np.inf, np.nan, 1e30],
    "f8e5m2": [-np.inf, -2.5, -1, -0.0, 0, 0.5, 1, 3, np.inf, np.nan, 57344],
    "s32": [-(2**31), -7, -1, 0, 1, 2, 5, 2**31 - 1],
    "u8": [0, 1, 2, 5, 127, 254, 255],
    "pred": [0, 1],
}
CONSTANTS = {
    "f32": ["0", "-0", "1", "-1", "2", "3", "0.5", "8", "-inf", "inf", "nan", "3e-39", "1e-30"],
    "bf16": ["0", "1", "-1", "2", "3", "8", "-inf", "inf"],
    "f8e5m2": ["0", "1", "-1", "2", "8", "-inf", "inf"],
    "s32": ["0", "1", "-1", "2", "3", "-2147483648", "2147483647"],
    "u8": ["0", "1", "2", "3", "255"],
    "pred": ["true", "false"],
}
FLOATS, INTEGERS = ("f32", "bf16", "f8e5m2"), ("s32", "u8")
BINARY = {
    **dict.fromkeys(("add", "multiply", "maximum", "minimum"), (*FLOATS, *INTEGERS, "pred")),
    **dict.fromkeys(("subtract", "divide", "power"), (*FLOATS, *INTEGERS)),
    **dict.fromkeys(("and", "or"), (*INTEGERS, "pred")),
}
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def same(rows: str, dtypes: tuple[str, ...], *, loose: bool = False) -> None:
    """Check a computation on all pairs of special values of its parameters' types."""
    size = int(np.prod([len(NUMBERS[d]) for d in dtypes]))
    given = "".join(f"  p{n} = {d}[N] parameter({n})\n" for n, d in enumerate(dtypes))
    text = f"ENTRY main {{\n{given}{rows}\n}}".replace("[N]", f"[{size}]")
    module = parse(text)
    columns = zip(*product(*(NUMBERS[d] for d in dtypes)), strict=True)
    with np.errstate(all="ignore"):
        args = [
            np.array(c).astype(to_numpy(BY_NAME[d])) for c, d in zip(columns, dtypes, strict=True)
        ]
        got, want = (_wide(evaluate(m, args)) for m in (simplify_algebra(module), module))
    if loose:
        np.testing.assert_allclose(got, want, rtol=3e-7, err_msg=rows)
    else:
        np.testing.assert_array_equal(got, want, rows)


def _wide(x: Any) -> Any:
    return np.asarray(x).astype(np.float64)


def constant(value: str, dtype: str) -> str:
    return f"  k = {dtype}[] constant({value})\n  c = {dtype}[N] broadcast(k), dimensions={{}}\n"


@pytest.mark.parametrize("op, dtype", [(o, d) for o, types in BINARY.items() for d in types])
def test_with_a_constant(op: str, dtype: str) -> None:
    for value in CONSTANTS[dtype]:
        if op == "power" and "." in value:
            continue  # at -0 and -inf a root is another number
        for args in ("p0, c", "c, p0"):
            loose = op == "power" and dtype == "f32"
            rows = f"{constant(value, dtype)}  ROOT r = {dtype}[N] {op}({args})"
            same(rows, (dtype,), loose=loose)


@pytest.mark.parametrize("op, dtype", [(o, d) for o, types in BINARY.items() for d in types])
def test_with_itself(op: str, dtype: str) -> None:
    same(f"  ROOT r = {dtype}[N] {op}(p0, p0)", (dtype,))


@pytest.mark.parametrize("value", ["0", "1", "2", "3", "0.5", "-0.5", "-1"])
def test_powers_of_positive_numbers(value: str) -> None:
    rows = f"{constant(value, 'f32')}  a = f32[N] abs(p0)\n  ROOT r = f32[N] power(a, c)"
    same(rows, ("f32",), loose=True)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_comparisons(direction: str, dtype: str) -> None:
    end = f"), direction={direction}"
    same(f"  c = pred[N] compare(p0, p1{end}\n  ROOT r = pred[N] not(c)", (dtype, dtype))
    same(f"  ROOT r = pred[N] compare(p0, p0{end}", (dtype,))
    for value, args in product(CONSTANTS[dtype], ("p0, c", "c, p0")):
        same(f"{constant(value, dtype)}  ROOT r = pred[N] compare({args}{end}", (dtype,))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_selections(dtype: str) -> None:
    types = "pred", dtype, dtype
    same(f"  n = pred[N] not(p0)\n  ROOT r = {dtype}[N] select(n, p1, p2)", types)
    same(f"  ROOT r = {dtype}[N] select(p0, p1, p1)", types)
    for value in ("true", "false"):
        same(f"{constant(value, 'pred')}  ROOT r = {dtype}[N] select(c, p1, p2)", types)
    for yes, no in product(CONSTANTS[dtype][:3], repeat=2):
        other = constant(no, dtype).replace("k ", "l ").replace("(k)", "(l)").replace("c =", "d =")
        rows = f"{constant(yes, dtype)}{other}  ROOT r = {dtype}[N] select(p0, c, d)"
        same(rows, ("pred",))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_clamps(dtype: str) -> None:
    for value, args in product(CONSTANTS[dtype], ("c, p0, p1", "p0, p1, c")):
        if value != "nan":
            same(f"{constant(value, dtype)}  ROOT r = {dtype}[N] clamp({args})", (dtype, dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, "s32"])
def test_signs(dtype: str) -> None:
    same(f"  n = {dtype}[N] negate(p0)\n  ROOT r = {dtype}[N] negate(n)", (dtype,))
    rows = f"  d = {dtype}[N] subtract(p0, p1)\n  ROOT r = {dtype}[N] negate(d)"
    same(rows, (dtype, dtype))


@pytest.mark.parametrize("first, then, last", list(product(("f32", "bf16", "s32", "u8"), repeat=3)))
def test_conversions_of_conversions(first: str, then: str, last: str) -> None:
    rows = f"  w = {then}[N] convert(p0)\n  ROOT r = {last}[N] convert(w)"
    same(rows, (first,))


@pytest.mark.parametrize("exponent, mantissa", [(8, 23), (8, 22), (7, 23), (9, 30), (5, 10)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_reduced_precision(dtype: str, exponent: int, mantissa: int) -> None:
    bits = f"exponent_bits={exponent}, mantissa_bits={mantissa}"
    same(f"  ROOT r = {dtype}[N] reduce-precision(p0), {bits}", (dtype,))
