"""Every operation of the element-wise table, on every element type, against its meaning in NumPy.

Each is run in a vector loop with a masked tail, and once more as scalar code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir import dtypes
from nestwright.ir.dtypes import DType, to_numpy
from nestwright.ir.elementwise import TABLE
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.loop.build import op
from nestwright.ir.loop.nodes import Buffer, Cast, Const, Expr, For, Func, Kind, Load, Store, Var
from nestwright.ir.loop.visit import seq
from nestwright.ir.target import Target

Value: TypeAlias = Callable[[list[Expr]], Expr]

HOST = Target.parse("cpu")
COUNT = 93  # not a multiple of any vector
TYPES = (
    dtypes.pred,
    dtypes.s8,
    dtypes.s16,
    dtypes.s32,
    dtypes.s64,
    dtypes.u8,
    dtypes.u16,
    dtypes.u32,
    dtypes.u64,
    dtypes.f16,
    dtypes.bf16,
    dtypes.f32,
    dtypes.f64,
)
KINDS = {"pred": "p", "signed": "s", "unsigned": "u", "float": "f"}


def numbers(dtype: DType, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    to = to_numpy(dtype)
    if dtype.kind == "pred":
        return rng.integers(0, 2, COUNT).astype(bool)
    if dtype.is_int:
        info = np.iinfo(to)
        wide = rng.integers(info.min, info.max, COUNT, dtype=to, endpoint=True)
        small = rng.integers(0 if info.min == 0 else -9, 9, COUNT).astype(to)
        mixed = np.where(rng.random(COUNT) < 0.5, wide, small)
        mixed[:4] = [0, 1, info.min, info.max]
        return mixed.astype(to)
    values = rng.standard_normal(COUNT) * rng.choice([0.3, 3.0, 30.0], COUNT)
    values[:7] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]
    return values.astype(to)


def arguments(name: str, arity: int, dtype: DType) -> list[np.ndarray[Any, Any]]:
    args = [numbers(dtype, seed) for seed in range(arity)]
    for a in args:
        np.random.default_rng(7).shuffle(a)
    if name in ("floordiv", "floormod"):
        one = np.ones((), args[1].dtype)
        args[1] = np.where(args[1] > 0, args[1], one)  # what is defined: a positive divisor
    if name.startswith("shift"):
        args[1] = np.arange(COUNT).astype(args[1].dtype) % (dtype.bits + 3)
    if name == "clamp":
        args[0], args[2] = np.minimum(args[0], args[2]), np.maximum(args[0], args[2])
    if name == "select":
        args[0] = numbers(dtypes.pred, 3)
    return args


def function(cases: list[tuple[Value, list[Buffer], DType]]) -> Func:
    """A function that does every case twice: as a vector loop with a tail, and lane by lane."""
    inputs, outputs, loops = [], [], []
    for number, (value, buffers, result) in enumerate(cases):
        inputs += buffers
        for kind in (Kind.VECTOR, Kind.SERIAL):
            i = Var("i")
            out = Buffer(f"out{number}{kind.value}", (COUNT,), result)
            store = Store(out, (i,), value([Load(b, (i,)) for b in buffers]))
            loops.append(For(i, Const(COUNT), store, kind))
            outputs.append(out)
    return Func("kernel", (*inputs, *outputs), len(outputs), seq(*loops))


def same(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], dtype: DType) -> None:
    if not dtype.is_float:
        np.testing.assert_array_equal(got, want)
        return
    ulp = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-22, "f64": 2**-50}[dtype.name]
    least = {"f16": 2**-24, "bf16": 2**-126, "f32": 2**-140, "f64": 0}[dtype.name]
    wide = (got.astype(np.float64), want.astype(np.float64))
    np.testing.assert_allclose(*wide, rtol=ulp, atol=least)


@pytest.mark.parametrize("name", TABLE)
def test_operation(name: str) -> None:
    entry = TABLE[name]
    kept, cases, wanted = [], [], []
    for d in (d for d in TYPES if KINDS[d.kind] in entry.kinds):
        args = arguments(name, entry.arity, d)
        types = [dtypes.from_numpy(a.dtype) for a in args]
        result = entry.result_dtype(*types)
        inputs = [Buffer(f"{d}_{n}", (COUNT,), t) for n, t in enumerate(types)]
        cases.append((lambda xs: op(name, *xs), inputs, result))
        kept += args
        with np.errstate(all="ignore"):
            exact = [a.astype(np.longdouble) for a in args] if name == "fma" else args
            wanted.append((np.asarray(entry.numpy(*exact)).astype(to_numpy(result)), result))
    got = compile_func(function(cases), HOST)(*kept)
    for number, (want, result) in enumerate(wanted):
        for column in got[2 * number : 2 * number + 2]:
            same(column, want, result)


def converted(source: DType, target: DType, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x = values.astype(np.float64) if source.is_float else values
    if target.kind == "pred":
        return np.asarray(x != 0)
    if target.is_int and source.is_float:
        info = np.iinfo(to_numpy(target))
        exact = [0 if v != v else int(max(min(v, 1e30), -1e30)) for v in x.tolist()]
        return np.array([max(min(v, info.max), info.min) for v in exact], to_numpy(target))
    if target.is_float and target.bits == 16 and source.is_int:
        x = x.astype(np.float32)
    return x.astype(to_numpy(target))


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_conversion(source: DType) -> None:
    values = numbers(source, 11)
    cases = [
        (lambda xs, d=d: Cast(xs[0], d), [Buffer(f"x{d}", (COUNT,), source)], d) for d in TYPES
    ]
    got = compile_func(function(cases), HOST)(*[values] * len(TYPES))
    for number, target in enumerate(TYPES):
        with np.errstate(all="ignore"):
            want = converted(source, target, values)
        for column in got[2 * number : 2 * number + 2]:
            wide = np.float64 if target.is_float else to_numpy(target)
            np.testing.assert_array_equal(column.astype(wide), want.astype(wide), str(target))


@pytest.mark.parametrize(
    ("source", "target"),
    [(dtypes.f32, dtypes.s32), (dtypes.bf16, dtypes.u16), (dtypes.s64, dtypes.f64)],
    ids=str,
)
def test_bits(source: DType, target: DType) -> None:
    values = numbers(source, 5)
    inputs = [Buffer("x", (COUNT,), source)]
    func = function([(lambda xs: Cast(xs[0], target, bits=True), inputs, target)])
    for got in compile_func(func, HOST)(values):
        assert got.tobytes() == values.tobytes()


def test_an_f16_has_the_sign_of_an_f64() -> None:
    """LLVM would round the f64 for its sign alone, by a function that no library has."""
    values = numbers(dtypes.f64, 6)
    inputs = [Buffer("x", (COUNT,), dtypes.f64)]
    case = (lambda xs: Cast(op("tanh", Cast(xs[0], dtypes.f32)), dtypes.f16), inputs, dtypes.f16)
    for got in compile_func(function([case]), HOST)(values):
        with np.errstate(all="ignore"):
            want = np.tanh(values.astype(np.float32)).astype(np.float16)
        np.testing.assert_allclose(got, want, rtol=2**-10)


def test_complex_is_refused() -> None:
    inputs = [Buffer("x", (COUNT,), dtypes.c64)]
    func = function([(lambda xs: op("negate", *xs), inputs, dtypes.c64)])
    with pytest.raises(UnsupportedError, match="elements of type c64"):
        compile_func(func, HOST)


SHIFTS = """HloModule shifts
ENTRY main {{
  x = s32[20] parameter(0)
  n = s32[] constant({n})
  by = s32[20] broadcast(n), dimensions={{}}
  left = s32[20] shift-left(x, by)
  logical = s32[20] shift-right-logical(x, by)
  arithmetic = s32[20] shift-right-arithmetic(x, by)
  ROOT all = (s32[20], s32[20], s32[20]) tuple(left, logical, arithmetic)
}}
"""


@pytest.mark.parametrize("n", [0, 31, 32, 33, -1])
def test_a_shift_by_a_literal_of_the_width_or_more_leaves_no_bits(n: int) -> None:
    x = np.arange(-10, 10, dtype=np.int32)
    left, logical, arithmetic = nw.build(nw.parse(SHIFTS.format(n=n)), "cpu -threads=1")(x)
    wide, by = x.astype(np.int64), n if 0 <= n < 32 else 32
    np.testing.assert_array_equal(left, (wide << by).astype(np.int32))
    np.testing.assert_array_equal(logical, ((wide & 0xFFFFFFFF) >> by).astype(np.int32))
    np.testing.assert_array_equal(arithmetic, wide >> by)


SIGNS = """HloModule signs
ENTRY main {
  p = pred[20] parameter(0)
  a = f32[] constant(nan)    aw = f32[20] broadcast(a), dimensions={}
  b = f32[] constant(-nan)   bw = f32[20] broadcast(b), dimensions={}
  c = bf16[] constant(nan)   cw = bf16[20] broadcast(c), dimensions={}
  d = bf16[] constant(-nan)  dw = bf16[20] broadcast(d), dimensions={}
  e = f32[20] select(p, aw, bw)
  f = bf16[20] select(p, cw, dw)
  g = s32[20] bitcast-convert(e)
  h = s16[20] bitcast-convert(f)
  ROOT r = (s32[20], s16[20]) tuple(g, h)
}
"""


def test_nans_keep_their_signs() -> None:
    module, p = nw.parse(SIGNS), np.arange(20) % 3 == 0
    for got, want in zip(nw.build(module, "cpu")(p), evaluate(module, [p]), strict=True):
        np.testing.assert_array_equal(got, want)
        assert {bool(g > 0) for g in got} == {True, False}
