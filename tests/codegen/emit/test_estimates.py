"""The models of a GPU's approximate instructions: as far off as PTX allows, and no farther."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nestwright.codegen.emit.llvm.estimates import CALLED, ESTIMATES, models_text
from nestwright.codegen.runtime.jit import load
from nestwright.codegen.targets.cpu import toolchain
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import DType, f32, f64, to_numpy
from nestwright.ir.target import Target

RUN = """
define void @run(ptr %x, ptr %y, i64 %count) {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr {t}, ptr %x, i64 %k
  %to = getelementptr {t}, ptr %y, i64 %k
  %v = load {t}, ptr %from
  %r = call {t} @{name}({t} %v)
  store {t} %r, ptr %to
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


def estimate(name: str, x: Array, dtype: DType = f32) -> Array:
    type_ = "float" if dtype == f32 else "double"
    declared = [f"declare {r} @{n}({', '.join(p)})" for n, (r, p) in CALLED.items()]
    text = RUN.format(t=type_, name=ESTIMATES[name, dtype].model)
    code = toolchain.compile("\n".join([*declared, models_text(), text]), Target.parse("cpu"))
    library, y = load([code], {}), np.empty_like(x)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    run(library.address("run"))(x.ctypes.data, y.ctypes.data, x.size)
    return y


@pytest.fixture(scope="module")
def numbers() -> Array:
    """Every 20,011th f32."""
    return np.arange(0, 1 << 32, 20011, dtype=np.uint64).astype(np.uint32).view(np.float32)


def meaning(name: str, x: Array) -> Array:
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        return {"reciprocal": 1 / wide, "rsqrt": 1 / np.sqrt(wide), "exp2": np.exp2(wide)}[name]


def unit(values: Array) -> Array:
    return np.ldexp(1.0, np.frexp(values)[1] - 24)


@pytest.mark.parametrize(("name", "most"), [("reciprocal", 1.0), ("rsqrt", 2.15), ("exp2", 1.42)])
def test_errors_are_those_of_the_manual(name: str, most: float, numbers: Array) -> None:
    got, exact = estimate(name, numbers), meaning(name, numbers)
    normal = (exact < 3.4e38) & (np.abs(exact) >= 2.0**-126) & (np.abs(numbers) >= 2.0**-126)
    off = (got[normal] - exact[normal]) / unit(exact[normal])
    edge = 2.0**-1 if name == "exp2" else 0.0  # below a power of two its units are halved
    assert off.max() <= most + edge and -off.min() <= most + edge
    assert np.quantile(off, 0.9) > 0.3 and np.quantile(off, 0.1) < -0.3


def test_special_numbers() -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40], np.float32)
    inf, nan = np.inf, np.nan
    for name, wanted in (
        ("reciprocal", [inf, -inf, 0.0, -0.0, nan, inf, -inf]),
        ("exp2", [1.0, 1.0, inf, 0.0, nan, 1.0, 1.0]),
    ):
        got = estimate(name, special)
        np.testing.assert_array_equal(got, np.array(wanted, np.float32))
        assert np.array_equal(np.signbit(got[:4]), np.signbit(np.array(wanted[:4])))
    np.testing.assert_array_equal(estimate("rsqrt", special)[[0, 2, 3, 4]], [inf, 0, nan, nan])


def test_powers_of_two_are_exact_and_subnormal_results_are_0() -> None:
    whole = np.arange(-130, 129).astype(np.float32)
    with np.errstate(over="ignore"):
        wanted = np.where(whole < -126, 0, np.exp2(whole.astype(np.float64))).astype(np.float32)
    np.testing.assert_array_equal(estimate("exp2", whole), wanted)
    powers = np.exp2(whole[4:-1])
    with np.errstate(over="ignore"):
        wanted = np.where(powers > 2.0**126, 0, 1 / powers)
    np.testing.assert_array_equal(estimate("reciprocal", powers), wanted)


def test_reciprocals_of_f64_have_twenty_bits() -> None:
    x = np.random.default_rng(0).lognormal(0, 9, 4096).astype(to_numpy(f64))
    got = estimate("reciprocal", x, f64)
    assert np.all(np.abs(got * x - 1) < 2.0**-19.9) and np.abs(got * x - 1).max() > 2.0**-21
