"""Functions of f64, and some of f32 as GPUs have them, computed here."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.expr import Emitter
from nestwright.codegen.emit.llvm.core import IRValue
from nestwright.codegen.emit.statements import module as llvm_ir
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import DType, f32, f64, to_numpy
from nestwright.ir.loop.build import op
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, Load, Store, Var
from nestwright.ir.target import Target

HOST = Target.parse("cpu")
COUNT = 12000

ONE_ARGUMENT: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exponential": (np.exp, 1),
    "exponential-minus-one": (np.expm1, 1.3),
    "logistic": (lambda x: np.where(x < 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x))), 1.3),
    "log": (np.log, 1),
    "log-plus-one": (np.log1p, 1.3),
    "cbrt": (np.cbrt, 1),
    "erf": (np.vectorize(math.erf), 2),
    "erfc": (np.vectorize(math.erfc), 6),
    "tanh": (np.tanh, 1.3),
    "sinh": (np.sinh, 1.3),
    "cosh": (np.cosh, 1.3),
    "asinh": (np.arcsinh, 1.3),
    "acosh": (np.arccosh, 1.3),
    "atanh": (np.arctanh, 1.3),
    "sine": (np.sin, 1),
    "cosine": (np.cos, 1),
    "tan": (np.tan, 1.3),
    "asin": (np.arcsin, 1.3),
    "acos": (np.arccos, 1.3),
    "atan": (np.arctan, 1.3),
}
SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    5e-324,
    -5e-324,
    1e-310,
    2.2250738585072014e-308,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.7e308,
    -1.7e308,
    709.7,
    709.9,
    -708.4,
    -745.0,
    -745.2,
    22.0,
    5319372648326541.0 * 2.0**-51,
    6381956970095103.0 * 2.0**797,
    np.pi / 2,
]


@pytest.fixture(autouse=True)
def without_libm(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Emitter(HOST).has_fma:
        pytest.skip("this machine has no fused multiply-add")

    class Bare(Emitter):
        def __init__(self, target: Target) -> None:
            super().__init__(target)
            self.libm = False

    monkeypatch.setattr(llvm_ir, "Emitter", Bare)


def run(name: str, dtype: DType, *args: Array) -> Array:
    count = args[0].size
    inputs = [Buffer(f"x{n}", (count,), dtype) for n in range(len(args))]
    out, i = Buffer("out", (count,), dtype), Var("i")
    store = Store(out, (i,), op(name, *(Load(b, (i,)) for b in inputs)))
    kernel = compile_func(Func("k", (*inputs, out), 1, For(i, Const(count), store)), HOST)
    result = kernel(*args)
    assert isinstance(result, np.ndarray)
    return result


def errors(got: Array, exact: Array) -> Array:
    """In units in the last place; 0 where both are the same special value."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(got.dtype)
        same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
        unit = np.spacing(np.abs(np.where(np.isfinite(nearest), nearest, 1)))
        distance = np.abs(got.astype(np.longdouble) - exact) / unit
    return np.where(same, 0, np.where(np.isnan(distance), np.inf, distance)).astype(float)


def samples() -> Array:
    """Every exponent, both signs, and more of what is neither huge nor tiny."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2**64, COUNT, dtype=np.uint64).view(np.float64)
    third = COUNT // 3
    x[:third] = np.linspace(-8, 8, third) + rng.random(third)
    x[third : 2 * third] = np.linspace(-745, 710, third)
    x[2 * third : 2 * third + 2000] = rng.standard_normal(2000) * 10.0 ** rng.integers(-9, 1, 2000)
    x[-len(SPECIAL) :] = SPECIAL
    return x


@pytest.mark.parametrize("name", [*ONE_ARGUMENT, "exp2"])
def test_few_units(name: str) -> None:
    meaning, allowed = ONE_ARGUMENT.get(name, (np.exp2, 1))
    x = samples()
    with np.errstate(all="ignore"):
        wide = x if name.startswith("erf") else x.astype(np.longdouble)
        exact = np.asarray(meaning(wide)).astype(np.longdouble)
    got = run(name, f64, x)
    found = errors(got, exact)
    worst = int(np.argmax(found))
    told = f"{name}({x[worst]!r}) = {got[worst]!r}, not {exact[worst]!r}: {found[worst]}"
    assert found[worst] <= allowed, told
    zero = (x == 0) & (exact == 0)
    assert np.array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))


@pytest.mark.parametrize(("name", "meaning"), [("power", np.power), ("atan2", np.arctan2)])
def test_two_arguments(name: str, meaning: Callable[[Array, Array], Array]) -> None:
    a = np.array([*SPECIAL, 2.0, -2.0, 3.0, -3.0, 2.5, 1e10])
    rng = np.random.default_rng(2)
    x, y = (v.reshape(-1) for v in np.meshgrid(a, a))
    x = np.concatenate([x, rng.lognormal(0, 30, 8000), 1 + rng.standard_normal(999) * 1e-9])
    y = np.concatenate([y, rng.standard_normal(8000) * 9, rng.standard_normal(999) * 1e11])
    with np.errstate(all="ignore"):
        exact = meaning(x.astype(np.longdouble), y.astype(np.longdouble))
    got = run(name, f64, x, y)
    found = errors(got, exact)
    worst = int(np.argmax(found))
    assert found[worst] <= 1, f"{name}({x[worst]!r}, {y[worst]!r}) = {got[worst]!r}: {found[worst]}"


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_remainders_are_exact(dtype: DType) -> None:
    to, rng = to_numpy(dtype), np.random.default_rng(3)
    word = np.uint32 if dtype == f32 else np.uint64
    x, y = (rng.integers(0, 2**dtype.bits, 4000, word).view(to) for _ in range(2))
    with np.errstate(all="ignore"):
        special = np.array([*SPECIAL, 3.0, 7.5, 1e-300, 1e-44]).astype(to)
        near = np.array([(a, b) for a in special for b in special]).T
        x, y = np.concatenate([x, x[:2000], near[0]]), np.concatenate([y, y[:2000] * 7, near[1]])
        x[4000:6000] = y[4000:6000] * rng.integers(1, 9, 2000)
        exact = np.fmod(x, y)
    got = run("remainder", dtype, x, y)
    np.testing.assert_array_equal(got, exact)
    assert np.array_equal(np.signbit(got[got == 0]), np.signbit(exact[got == 0]))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_remainders_beside_multiples_are_exact(dtype: DType) -> None:
    """Quotients that round to the next integer, of up to all bits of a significand and more."""
    to, rng = to_numpy(dtype), np.random.default_rng(4)
    y = np.ldexp(rng.uniform(1, 2, 40_000), rng.integers(-160, 120, 40_000)).astype(to)
    times = np.floor(2 ** rng.uniform(0, np.finfo(to).nmant + 4, y.size))
    with np.errstate(all="ignore"):
        x = (y * times.astype(to)) * rng.choice([1, -1], y.size).astype(to)
        for _ in range(2):
            x = np.where(rng.random(y.size) < 0.4, np.nextafter(x, np.array(np.inf, to)), x)
            x = np.where(rng.random(y.size) < 0.4, np.nextafter(x, np.array(-np.inf, to)), x)
        exact = np.fmod(x, y)
    got = run("remainder", dtype, x, y)
    np.testing.assert_array_equal(got, exact)
    assert np.array_equal(np.signbit(got), np.signbit(exact))


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("sine", np.sin),
        ("cosine", np.cos),
        ("log-plus-one", np.log1p),
        ("erfc", np.vectorize(math.erfc)),
    ],
)
def test_single(name: str, meaning: Callable[[Array], Array]) -> None:
    """Every exponent, and more of what is neither huge nor tiny."""
    x = np.arange(0, 2**32, 104729, np.uint64).astype(np.uint32).view(np.float32)
    rest = np.concatenate([np.linspace(-9, 9, 9999), np.geomspace(1e-9, 1e6, 9999), SPECIAL])
    with np.errstate(all="ignore"):
        rest = np.concatenate([rest, [16367173.0 * 2.0**72], np.linspace(0, 11, 9999)])
        x = np.concatenate([x, rest.astype(np.float32)])
        exact = meaning(x.astype(np.float64)).astype(np.longdouble)
    got = run(name, f32, x)
    found = errors(got, exact)
    worst = int(np.argmax(found))
    allowed = 2.0 if name in ("exponential", "tanh", "erf", "erfc") else 1.1
    assert found[worst] <= allowed, f"{name}({x[worst]!r}) = {got[worst]!r}: {found[worst]}"
    zero = (x == 0) & (exact == 0)
    assert np.array_equal(np.signbit(got[zero]), np.signbit(x[zero]))


def test_single_powers() -> None:
    rng = np.random.default_rng(4)
    with np.errstate(all="ignore"):
        a = np.array([*SPECIAL, 2.0, -2.0, 3.0, -3.0, 2.5, 1e10, 1e-40]).astype(np.float32)
        x, y = (v.reshape(-1) for v in np.meshgrid(a, a))
        x = np.concatenate([x, rng.lognormal(0, 9, 20000).astype(np.float32)])
        y = np.concatenate([y, (rng.standard_normal(20000) * 9).astype(np.float32)])
        exact = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.longdouble)
    got = run("power", f32, x, y)
    found = errors(got, exact)
    worst = int(np.argmax(found))
    assert found[worst] <= 1, f"power({x[worst]!r}, {y[worst]!r}) = {got[worst]!r}: {found[worst]}"


@pytest.mark.parametrize("off", [-2, 2])
def test_single_reciprocal_roots_by_estimates(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PTX promises 2**-22.9 of ``rsqrt.approx``; 0, infinity and what is negative are exact."""

    class Estimating(Emitter):
        def __init__(self, target: Target) -> None:
            super().__init__(target)
            self.libm, self.estimates = False, True

        def estimate(self, name: str, x: IRValue) -> IRValue:
            assert name == "rsqrt"
            near = self.binary("fdiv", self.like(1.0, x), self.intrinsic("llvm.sqrt", x))
            bits = self.bits(near)
            wrong = self.from_bits(self.binary("add", bits, self.like(off, bits)))
            size = self.intrinsic("llvm.fabs", near)
            usual = self.compare("ogt", size, self.like(0.0, near))
            finite = self.compare("olt", size, self.like(math.inf, near))
            return self.select(self.binary("and", usual, finite), wrong, near)

    monkeypatch.setattr(llvm_ir, "Emitter", Estimating)
    with np.errstate(all="ignore"):
        x = np.concatenate([np.abs(samples()).astype(np.float32), np.float32([-1, -0.0, 1e-45])])
        exact = (1 / np.sqrt(x.astype(np.float64))).astype(np.longdouble)
    assert errors(run("rsqrt", f32, x), exact).max() <= 0.5001


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_single_by_estimates(name: str, off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an NVIDIA GPU: reciprocals are estimates, here as wrong as they may be."""

    class Estimating(Emitter):
        def __init__(self, target: Target) -> None:
            super().__init__(target)
            self.libm, self.estimates = False, True

        def estimate(self, name: str, x: IRValue) -> IRValue:
            if name != "reciprocal":
                return super().estimate(name, x)
            near = self.binary("fdiv", self.like(1.0, x), x)
            bits = self.bits(near)
            step = off if x.dtype == f32 else off << 32  # a unit; 2**-20
            wrong = self.from_bits(self.binary("add", bits, self.like(step, bits)))
            exact = self.compare("oeq", near, self.like(0.0, near))  # of infinity
            return self.select(exact, near, wrong)

    monkeypatch.setattr(llvm_ir, "Emitter", Estimating)
    meaning, _ = ONE_ARGUMENT[name]
    with np.errstate(all="ignore"):
        x = samples().astype(np.float32)
        x[::3] = np.linspace(-105, 105, x[::3].size)
        exact = np.asarray(meaning(x.astype(np.float64))).astype(np.longdouble)
    got = run(name, f32, x)
    found = errors(got, exact)
    worst = int(np.argmax(found))
    allowed = 2.0 if name in ("exponential", "tanh", "erf", "erfc") else 1.1
    assert found[worst] <= allowed, f"{name}({x[worst]!r}) = {got[worst]!r}: {found[worst]}"
