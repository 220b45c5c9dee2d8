"""Division of a vector by one number, by its reciprocal: the nearest quotient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.expr import Emitter
from nestwright.codegen.emit.statements import module
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import DType, f32, f64, to_numpy
from nestwright.ir.loop.build import op
from nestwright.ir.loop.nodes import Buffer, Const, Expr, For, Func, Kind, Load, Store, Var
from nestwright.ir.target import Target

COUNT = 4096


class Estimating(Emitter):
    """Writes code as for GPUs, with the worst estimates of reciprocals."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.estimates = True


def divider(dtype: DType, quotient: Callable[[Expr, Expr], Expr] | None = None) -> Any:
    """A function of a vector and a number; by default their quotient."""
    x, y = Buffer("x", (COUNT,), dtype), Buffer("y", (1,), dtype)
    out, lane = Buffer("out", (COUNT,), dtype), Var("lane")
    made = quotient or (lambda a, b: op("divide", a, b))
    value = made(Load(x, (lane,)), Load(y, (Const(0),)))
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


@pytest.mark.parametrize("form", [Emitter, Estimating])
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_vector_by_a_number_is_the_nearest_quotient(
    dtype: DType, form: type[Emitter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Emitter", form)
    run, x = divider(dtype), dividends(dtype)
    info = np.finfo(x.dtype)
    divisors = [*x[100:600], info.max, info.tiny, -info.smallest_subnormal, info.tiny / 2]
    divisors += [0.0, -0.0, np.inf, -np.inf, np.nan, 3.0, -7.0, 2.0**20, 1 / 3]
    for y in np.array(divisors, x.dtype):
        with np.errstate(all="ignore"):
            exact = x / y
        check(run(x, np.array([y])), x, exact, f"by {y!r}")


def check(got: Array, x: Array, exact: Array, told: str) -> None:
    """The nearest quotients with their signs; those of faint dividends within a unit."""
    info = np.finfo(x.dtype)
    faint = (np.abs(exact) < 2 * info.tiny) | (np.abs(x) < info.tiny * 2.0 ** (info.nmant + 3))
    assert np.array_equal(got[~faint], exact[~faint], equal_nan=True), told
    known = ~np.isnan(exact)
    assert np.array_equal(np.signbit(got[known]), np.signbit(exact[known])), told
    near = faint & np.isfinite(exact) & (exact != got)  # the residual was not exact there
    assert np.all(np.abs(got[near] - exact[near]) <= np.spacing(np.abs(exact[near])))


@pytest.mark.parametrize("divisor", [3.0, -7.0, 768.0, 1e-5, 2.0**98, -(2.0**-98), 1e38, 0.0])
def test_quotients_by_a_constant_on_gpus(divisor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Emitter", Estimating)
    run, x = divider(f32, lambda a, b: op("divide", a, Const(divisor, f32))), dividends(f32)
    with np.errstate(all="ignore"):
        exact = x / np.float32(divisor)
    check(run(x, x[:1]), x, exact, f"by {divisor}")


def test_reciprocals_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Emitter", Estimating)
    run, x = divider(f32, lambda a, b: op("divide", Const(1.0, f32), a)), dividends(f32)
    with np.errstate(all="ignore"):
        exact = np.float32(1) / x
    got = run(x, x[:1])
    usual = ~(np.abs(exact) < np.finfo(np.float32).tiny)
    off = got.view(np.int32) - exact.view(np.int32)
    assert np.array_equal(np.isnan(got), np.isnan(exact))
    assert np.abs(off[~np.isnan(exact)]).max() <= 1
    assert (off[usual & ~np.isnan(exact)] != 0).mean() < 1e-3
