"""Products whose factors and result are of several kinds: exact sums, converted once."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.conversion import convert
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate

DOT = """HloModule m
ENTRY e {
  x = A[5,16] parameter(0)
  y = B[16,3] parameter(1)
  ROOT r = C[5,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
CONVOLUTION = """HloModule m
ENTRY e {
  x = A[1,5,16] parameter(0)
  y = B[1,16,3] parameter(1)
  ROOT r = C[1,5,3] convolution(x, y), window={size=1}, dim_labels=b0f_0io->b0f
}"""
RAGGED = """HloModule m
ENTRY e {
  x = A[5,16] parameter(0)
  y = B[1,16,3] parameter(1)
  n = s32[1] constant({5})
  ROOT r = C[5,3] ragged-dot(x, y, n), lhs_contracting_dims={1}, rhs_contracting_dims={1},
    lhs_ragged_dims={0}, rhs_group_dims={0}
}"""
KINDS = (
    "f32 f32 s32",
    "bf16 bf16 s8",
    "f64 s32 u8",
    "s8 f32 s64",
    "f8e4m3fn s8 f32",
    "u8 f8e4m3fn bf16",
    "pred f8e4m3fn f16",
    "f8e4m3fn f8e4m3fn s32",
    "f8e8m0fnu f16 f32",
    "u8 s4 f32",
    "s4 u8 s32",
    "pred s4 s8",
    "pred u8 f8e4m3fn",
    "s32 f16 f8e4m3fn",
    "s8 s8 pred",
    "f32 f32 pred",
)


def drawn(name: str, seed: int, *dims: int) -> np.ndarray:
    """Numbers whose products and sums of such are exact in f32; steps of 1/4 where there are."""
    rng = np.random.default_rng(seed)
    match BY_NAME[name].kind:
        case "pred":
            return rng.random(dims) < 0.5
        case "float" if name == "f8e8m0fnu":
            values = 2.0 ** rng.integers(-1, 3, dims)
        case "float":
            values = rng.integers(-6, 7, dims) / 4
        case kind:
            values = rng.integers(-4 if kind == "signed" else 0, 5, dims)
    return np.asarray(values).astype(np.float32).astype(to_numpy(BY_NAME[name]))


TEXTS = {"dot": DOT, "convolution": CONVOLUTION, "ragged": RAGGED}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [(t, k) for i, t in enumerate(TEXTS) for j, k in enumerate(KINDS) if (i + j) % 3],
)
def test_products_are_exact(name: str, kinds: str) -> None:
    """Types of each kind by two of the three operations."""
    (a, b, c), text = kinds.split(), TEXTS[name]
    module = parse(text.replace("A[", f"{a}[").replace("B[", f"{b}[").replace("C[", f"{c}["))
    x, y = drawn(a, 0, 5, 16), drawn(b, 1, 16, 3)
    wanted = convert(x.astype(np.float64) @ y.astype(np.float64), to_numpy(BY_NAME[c]))
    given = [v.reshape(p.array.dims) for v, p in zip((x, y), module.entry.parameters, strict=True)]
    for found in (evaluate(module, given), nw.build(module)(*given)):
        np.testing.assert_array_equal(
            np.asarray(found).reshape(5, 3).astype(np.float64), wanted.astype(np.float64)
        )


def test_sums_that_no_integer_holds() -> None:
    module = parse(DOT.replace("A[", "f32[").replace("B[", "f32[").replace("C[", "s8["))
    x, y = np.ones((5, 16), np.float32), np.ones((16, 3), np.float32)
    x[0, 3], x[1], x[2] = np.nan, 100, -np.inf
    wanted = np.repeat(np.array([[0], [127], [-128], [16], [16]], np.int8), 3, axis=1)
    for found in (evaluate(module, [x, y]), nw.build(module)(x, y)):
        np.testing.assert_array_equal(found, wanted)
