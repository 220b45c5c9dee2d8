"""Division by a constant as a product and a multiply-add: every quotient is the nearest."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.math.arithmetic.constant_divisors import reciprocal
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import DType, f32, f64, to_numpy
from nestwright.ir.loop.build import op
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, Kind, Load, Store, Var
from nestwright.ir.target import Target

DIVISORS = [3.0, 5.0, 7.0, 255.0, 768.0, 1e-3, 0.1, math.sqrt(2), 0.13651056, -0.0863929, 1e9]
TARGETS = [t for t in map(Target.parse, ("cpu", "cpu -mcpu=haswell")) if t.is_host]


@pytest.mark.parametrize("y", [np.float32(y) for y in DIVISORS], ids=str)
def test_every_significand(y: np.float32) -> None:
    """The sum of both products is exact in f64, which is then rounded once, as by an fma."""
    words = reciprocal(float(y), 24)
    assert words is not None
    high, low = map(np.float32, words)
    assert (float(high), float(low)) == words, "they are floats"
    x = np.arange(1 << 23, 1 << 24).astype(np.float32)
    found = x.astype(np.float64) * np.float64(high) + (x * low).astype(np.float64)
    assert np.array_equal(found.astype(np.float32), x / y)


def test_most_divisors_have_such_numbers() -> None:
    rng = np.random.default_rng(0)
    found = [reciprocal(float(y), 24) for y in rng.uniform(0.5, 1, 200).astype(np.float32)]
    assert sum(f is not None for f in found) > 180
    assert all(f[1] > 0 for f in found if f is not None), "products of infinity have one sign"


@pytest.mark.parametrize("y", [1.0, 0.25, -(2.0**20)])
def test_a_power_of_two_has_a_reciprocal_that_is_a_float(y: float) -> None:
    assert reciprocal(y, 24) is None


def test_a_number_of_more_digits_is_not_a_divisor() -> None:
    assert reciprocal(0.1, 24) is None
    assert reciprocal(0.1, 53) is not None


def test_a_quotient_next_to_the_middle_decides() -> None:
    """There is a divisor whose nearest pair errs, at a numerator that is one of those tried."""
    rng = np.random.default_rng(1)
    for y in rng.uniform(0.5, 1, 400).astype(np.float32):
        high = np.float32(1) / y
        low = np.float32(float(Fraction(1) / Fraction(float(y)) - Fraction(float(high))))
        x = np.arange(1 << 23, 1 << 24, dtype=np.int64).astype(np.float32)[::64]
        found = (x.astype(np.float64) * high + (x * low).astype(np.float64)).astype(np.float32)
        if not np.array_equal(found, x / y) or reciprocal(float(y), 24) is None:
            return
    pytest.fail("no divisor was refused")


def quotients(dtype: DType, y: float, x: Array, target: Target) -> Array:
    """Quotients of a vector loop over a kernel's argument."""
    given, out, lane = Buffer("x", x.shape, dtype), Buffer("out", x.shape, dtype), Var("lane")
    value = op("divide", Load(given, (lane,)), Const(y, dtype))
    body = For(lane, Const(len(x)), Store(out, (lane,), value), Kind.VECTOR)
    found: Array = compile_func(Func("k", (given, out), 1, body), target)(x)
    return found


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.spec)
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_kernels_divide_as_numpy_does(dtype: DType, target: Target) -> None:
    kind = to_numpy(dtype)
    info, rng = np.finfo(kind), np.random.default_rng(2)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny]
    x = np.array([*rng.standard_normal(500), *special, *range(-64, 64)], kind)
    for y in np.array([*DIVISORS, 1e30, 1e-20, 3e5], kind):
        with np.errstate(all="ignore"):
            exact = x / y
        got = quotients(dtype, float(y), x, target)
        large = ~(np.abs(exact) < info.tiny * 2.0 ** (info.nmant + 3)) | (exact == 0)
        np.testing.assert_array_equal(got[large], exact[large], str(y))
        known = ~np.isnan(exact)
        assert np.array_equal(np.signbit(got[known]), np.signbit(exact[known]))
        faint = np.abs(got[~large] - exact[~large])
        assert np.all(faint <= np.spacing(np.abs(exact[~large])))
