"""Vector math: errors in units in the last place over the range of f32, and special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.statements.module import function_module
from nestwright.codegen.math.functions import FUNCTIONS
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import DType, f32, f64
from nestwright.ir.loop.build import add, mul, op
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, Kind, Load, Store, Var
from nestwright.ir.target import Target

HOST = Target.parse("cpu")
NO_AVX512 = Target.parse("cpu -mcpu=haswell") if HOST.machine == "x86_64" else HOST
COUNT = 1 << 15

ONE_ARGUMENT: dict[str, Callable[[Array], Array]] = {
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "logistic": lambda x: np.where(x < 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x))),
    "log": np.log,
    "log-plus-one": np.log1p,
    "cbrt": np.cbrt,
    "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sine": np.sin,
    "cosine": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
}
SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1e-39,
    1.1754944e-38,
    1.0,
    -1.0,
    3.4e38,
    -3.4e38,
    0.5,
    -0.5,
    88.7,
    88.8,
    -87.4,
    -103.9,
    -104.1,
    0.42,
    0.93,
]


def kernel(name: str, count: int, arity: int, dtype: DType, target: Target) -> Any:
    inputs = [Buffer(f"x{n}", (count,), dtype) for n in range(arity)]
    out = Buffer("out", (count,), dtype)
    i, lane = Var("i"), Var("lane")
    at = add(mul(i, 32), lane)
    store = Store(out, (at,), op(name, *(Load(b, (at,)) for b in inputs)))
    body = For(i, Const(count // 32), For(lane, Const(32), store, Kind.VECTOR))
    return compile_func(Func("k", (*inputs, out), 1, body), target)


def samples() -> Array:
    """Every exponent, both signs, and more of what is neither huge nor tiny."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2**32, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32)
    third = COUNT // 3
    x[:third] = np.linspace(-12, 12, third)
    x[third : 2 * third] = np.linspace(-105, 105, third)
    x[-len(SPECIAL) :] = SPECIAL
    return x


def errors(got: Array, exact: Array) -> Array:
    """In units in the last place of f32; 0 where both are the same special value."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(np.float32)
        same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
        finite = np.where(np.isfinite(exact), exact, 0)
        unit = np.spacing(np.abs(finite).astype(np.float32)).astype(np.float64)
        unit = np.where(np.isfinite(unit), unit, 2.0**104)
        distance = np.abs(got.astype(np.float64) - exact) / unit
    distance = np.where(np.isnan(distance), np.inf, distance)
    return np.where(same, 0, distance)


@pytest.mark.parametrize("target", [HOST, NO_AVX512], ids=["host", "narrow"])
@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_within_one_unit(name: str, target: Target) -> None:
    """``erf`` within 1.3, ``erfc`` within two."""
    if not target.is_host:
        pytest.skip("this machine lacks AVX2")
    x = samples()
    with np.errstate(all="ignore"):
        exact = np.asarray(ONE_ARGUMENT[name](x.astype(np.float64)))
    got = kernel(name, COUNT, 1, f32, target)(x)
    worst = int(np.argmax(errors(got, exact)))
    assert errors(got, exact)[worst] <= {"erf": 1.3, "erfc": 2}.get(name, 1), (
        f"{name}({x[worst]!r}) = {got[worst]!r}"
    )
    zero = (x == 0) & (exact == 0)
    assert np.array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))


@pytest.mark.parametrize(("name", "meaning"), [("power", np.power), ("atan2", np.arctan2)])
def test_two_arguments(name: str, meaning: Callable[[Array, Array], Array]) -> None:
    a = np.array([*SPECIAL, 2.0, -2.0, 3.0, -3.0, 2.5, 1e10], np.float32)
    rng = np.random.default_rng(2)
    x, y = (v.reshape(-1) for v in np.meshgrid(a, a))
    more = 1024 - x.size % 32
    x = np.concatenate([x, rng.lognormal(0, 3, more).astype(np.float32)])
    y = np.concatenate([y, (rng.standard_normal(more) * 9).astype(np.float32)])
    with np.errstate(all="ignore"):
        exact = meaning(x.astype(np.float64), y.astype(np.float64))
    got = kernel(name, x.size, 2, f32, HOST)(x, y)
    worst = int(np.argmax(errors(got, exact)))
    assert errors(got, exact)[worst] <= 1, f"{name}({x[worst]}, {y[worst]}) = {got[worst]}"


def test_large_angles_keep_their_fraction() -> None:
    """The f32 next to a multiple of pi/2, the worst case of the reduction, and the largest."""
    x = np.full(32, 16367173.0 * 2.0**72, np.float32)
    x[1], x[2] = np.finfo(np.float32).max, 1e22
    got = kernel("cosine", 32, 1, f32, HOST)(x)
    want = [math.cos(float(v)) for v in x]
    assert errors(got, np.array(want)).max() <= 2


@pytest.mark.parametrize("spec", ["cpu -mcpu=haswell", "cpu -mcpu=x86-64"])
def test_f64_is_libms_only_without_a_fused_multiply_add(spec: str) -> None:
    """Sines too, whose far lanes take a branch."""
    for name in ("sine", "exponential", "power"):
        symbol, *_ = FUNCTIONS[name]
        inputs = [Buffer(f"x{k}", (64,), f64) for k in range(1 + (name == "power"))]
        out, i = Buffer("out", (64,), f64), Var("i")
        body = For(i, Const(64), Store(out, (i,), op(name, *(Load(b, (i,)) for b in inputs))))
        text = function_module(Func("k", (*inputs, out), 1, body), Target.parse(spec))
        assert (f"call double @{symbol}(" in text) == ("x86-64" in spec)


def test_small_logistic_of_f64_is_a_subnormal() -> None:
    x = np.linspace(-745, -709, 64)
    got = kernel("logistic", 64, 1, f64, HOST)(x)
    np.testing.assert_allclose(got, [math.exp(v) for v in x], rtol=0, atol=5e-324)
    assert (got > 0).all()
