"""Division of a vector by one number, by its reciprocal: the nearest quotient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.dtypes import DType, f32, f64, to_numpy
from nestwright.ir.loop.build import op
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, Kind, Load, Store, Var
from nestwright.ir.target import Target

Array = np.ndarray[Any, Any]
COUNT = 4096


def divider(dtype: DType) -> Any:
    x, y = Buffer("x", (COUNT,), dtype), Buffer("y", (1,), dtype)
    out, lane = Buffer("out", (COUNT,), dtype), Var("lane")
    value = op("divide", Load(x, (lane,)), Load(y, (Const(0),)))
    body = For(lane, Const(COUNT), Store(out, (lane,), value), Kind.VECTOR)
    return compile_func(Func("k", (x, y, out), 1, body), Target.parse("cpu"))


def dividends(dtype: DType) -> Array:
    kind = to_numpy(dtype)
    info = np.finfo(kind)
    rng = np.random.default_rng(3)
    exponents = rng.integers(info.minexp - info.nmant, info.maxexp, COUNT)
    with np.errstate(all="ignore"):
        x = np.ldexp(rng.uniform(1, 2, COUNT), exponents).astype(kind)
    x[: COUNT // 2] = rng.standard_normal(COUNT // 2)
    x[1::2] *= -1
    whole = np.arange(-64, 64)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny]
    x[:128], x[128:136], x[136] = whole, special, info.smallest_subnormal
    return x


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_vector_by_a_number_is_the_nearest_quotient(dtype: DType) -> None:
    run, x = divider(dtype), dividends(dtype)
    info = np.finfo(x.dtype)
    divisors = [*x[100:600], info.max, info.tiny, -info.smallest_subnormal, info.tiny / 2]
    divisors += [0.0, -0.0, np.inf, -np.inf, np.nan, 3.0, -7.0, 2.0**20, 1 / 3]
    for y in np.array(divisors, x.dtype):
        with np.errstate(all="ignore"):
            exact = x / y
        got = run(x, np.array([y]))
        faint = (np.abs(exact) < 2 * info.tiny) | (np.abs(x) < info.tiny * 2.0 ** (info.nmant + 3))
        assert np.array_equal(got[~faint], exact[~faint], equal_nan=True), f"by {y!r}"
        known = ~np.isnan(exact)
        assert np.array_equal(np.signbit(got[known]), np.signbit(exact[known])), f"by {y!r}"
        near = faint & np.isfinite(exact) & (exact != got)  # the residual was not exact there
        assert np.all(np.abs(got[near] - exact[near]) <= np.spacing(np.abs(exact[near])))
