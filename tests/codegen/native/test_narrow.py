"""Floats of 8 bits and fewer, integers of 2 and 4: every code, converted natively and computed.

What a code means is worked out here from its bits, in Python's numbers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.arrays import Array
from nestwright.ir.conversion import convert
from nestwright.ir.dtypes import ALL, BY_NAME, DType, f16, f32, f64, to_numpy
from nestwright.ir.formats import FORMATS, is_narrow
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import Buffer, Cast, Const, For, Func, Kind, Load, Store, Var
from nestwright.ir.loop.visit import seq
from nestwright.ir.target import Target

HOST = Target.parse("cpu")
NARROW = [d for d in ALL if is_narrow(d)]
FLOATS = [d for d in NARROW if d.is_float]
REAL = [d for d in ALL if d.kind != "complex"]


def codes(dtype: DType) -> Array:
    """Every value of a narrow type, by its bits."""
    return np.arange(1 << dtype.bits, dtype=np.uint8).view(to_numpy(dtype))


def number(bits: int, dtype: DType) -> float:
    """What a narrow float's bits stand for."""
    f = FORMATS[dtype]
    if f.special == "scale":
        return math.nan if bits == 0xFF else 2.0 ** (bits - f.bias)
    sign, size = (-1.0 if bits & f.sign else 1.0), bits & (f.sign - 1)
    if f.special == "fnuz" and bits == f.sign:
        return math.nan
    if size > f.largest:
        return sign * math.inf if f.special == "ieee" and size == f.infinity else math.nan
    exponent, mantissa = size >> f.mantissa, size & ((1 << f.mantissa) - 1)
    if exponent == 0:
        return math.ldexp(sign * mantissa, 1 - f.bias - f.mantissa)
    return math.ldexp(sign * (mantissa + (1 << f.mantissa)), exponent - f.bias - f.mantissa)


def casts(
    source: DType, values: Array, targets: list[DType], machine: Target = HOST
) -> list[tuple[Array, Array]]:
    """Values converted to each type in a vector loop, and once more one by one."""
    x, outs, loops = Buffer("x", values.shape, source), [], []
    for n, target in enumerate(targets):
        for kind in (Kind.VECTOR, Kind.SERIAL):
            i, out = Var("i"), Buffer(f"out{n}{kind.value}", values.shape, target)
            cast = Cast(Load(x, (i,)), target)
            loops.append(For(i, Const(len(values)), Store(out, (i,), cast), kind))
            outs.append(out)
    got = compile_func(Func("casts", (x, *outs), len(outs), seq(*loops)), machine)(values)
    return list(zip(got[::2], got[1::2], strict=True))


def bits_of(a: Array) -> Array:
    """Bits, NaNs of one sign and payload."""
    wide = a.astype(np.float64) if a.dtype.kind not in "iub" else a
    raw = a.view(f"u{a.dtype.itemsize}")
    return np.where(wide != wide, raw.dtype.type(255), raw)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_code_stands_for_its_number(dtype: DType) -> None:
    want = np.array([number(b, dtype) for b in range(1 << dtype.bits)])
    for to, columns in zip([f32, f64], casts(dtype, codes(dtype), [f32, f64]), strict=True):
        for got in columns:
            with np.errstate(invalid="ignore"):  # some NaNs are not quiet
                np.testing.assert_array_equal(got.astype(np.float64), want, str(to))
            kept = want == want
            np.testing.assert_array_equal(np.signbit(got[kept]), np.signbit(want[kept]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_nearest_number_is_taken(dtype: DType) -> None:
    """Numbers in between, the middles and their neighbors, from f64 with one rounding."""
    known = sorted({v for v in (number(b, dtype) for b in range(1 << dtype.bits)) if v - v == 0})
    low, high = np.array(known[:-1]), np.array(known[1:])
    middle = (low + high) / 2
    for x, want in (
        (np.nextafter(middle, -np.inf), low),
        (np.nextafter(middle, np.inf), high),
        (low, low),
    ):
        if dtype.name == "f8e8m0fnu":  # its least number is a denormal of f32
            x, want = x[2:], want[2:]
        ((vector, serial),) = casts(f64, x, [dtype])
        np.testing.assert_array_equal(vector.astype(np.float64), want)
        np.testing.assert_array_equal(serial.astype(np.float64), want)
    ((ties, _),) = casts(f64, middle, [dtype])
    if dtype.name != "f8e8m0fnu":
        assert not np.any(ties.view(np.uint8) & 1), "ties go to even"


@pytest.mark.skipif(HOST.machine != "x86_64", reason="elsewhere f16 has instructions")
def test_f16_where_the_processor_has_no_instruction_for_it() -> None:
    """Every code to f32 and back; the numbers between two codes, and the middles, from f32."""
    old = Target.parse("cpu -mcpu=x86-64")
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    (widened,) = casts(f16, every, [f32], old)
    for got in widened:
        np.testing.assert_array_equal(got, every.astype(np.float32))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(every))
    finite = np.sort(every[np.isfinite(every)].astype(np.float32))
    finite, up = finite[:-1], finite[1:]
    middles = finite + (up - finite) / 2
    below, above = np.nextafter(middles, -np.inf), np.nextafter(middles, np.float32(np.inf))
    x = np.concatenate([finite, middles, below, above, [np.inf, -np.inf, 7e4, 1e-9]])
    x = x.astype(np.float32)
    ((vector, serial),) = casts(f32, x, [f16], old)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(vector.view(np.uint16), want)
    np.testing.assert_array_equal(serial.view(np.uint16), want)
    ((nans, _),) = casts(f32, np.array([np.nan, -np.nan], np.float32), [f16], old)
    assert np.all(np.isnan(nans))


PAST = {
    "ieee": lambda f: f.infinity,
    "fn": lambda f: f.largest + 1,
    "fnuz": lambda f: f.sign,
    "finite": lambda f: f.largest,
    "scale": lambda f: 0xFF,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_beyond_the_largest_number(dtype: DType) -> None:
    f = FORMATS[dtype]
    x = np.array([np.inf, 3e38, -np.inf, -3e38], np.float32)
    ((got, _),) = casts(f32, x, [dtype])
    past = PAST[f.special](f)
    below = past | f.sign
    np.testing.assert_array_equal(got.view(np.uint8), [past, past, below, below])


@pytest.mark.parametrize("source", NARROW, ids=str)
def test_every_code_as_every_type(source: DType) -> None:
    values = codes(source)
    for target, columns in zip(REAL, casts(source, values, REAL), strict=True):
        with np.errstate(all="ignore"):
            want = convert(values, to_numpy(target))
            for got in columns:
                np.testing.assert_array_equal(bits_of(got), bits_of(want), str(target))


@pytest.mark.parametrize(
    "source", [BY_NAME[n] for n in ("pred", "s32", "u64", "f16", "f32")], ids=str
)
def test_other_types_as_narrow_ones(source: DType) -> None:
    rng = np.random.default_rng(3)
    if source.is_float:
        values = rng.standard_normal(999) * 2.0 ** rng.integers(-12, 12, 999)
        values[:6] = [0, -0.0, np.nan, np.inf, -np.inf, 7.5]
    else:
        values = np.concatenate([np.arange(-20, 300), rng.integers(0, 2**31, 99)]) % 2**31
    with np.errstate(all="ignore"):
        x = convert(values, to_numpy(source))
        for target, columns in zip(NARROW, casts(source, x, NARROW), strict=True):
            want = convert(x, to_numpy(target))
            for got in columns:
                np.testing.assert_array_equal(bits_of(got), bits_of(want), str(target))


def test_f64_is_rounded_twice_to_bf16_and_once_to_f16() -> None:
    """As XLA does it on a CPU: by way of f32 to bf16, at once to all others."""
    tie = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40])
    (to_bf16, _), (to_f16, _) = casts(f64, tie, [BY_NAME["bf16"], f16])
    assert to_bf16[0].astype(float) == 1 and to_f16[1] == np.float16(1 + 2.0**-10)


INTEGER = {
    "add": lambda a, b, n: a + b,
    "subtract": lambda a, b, n: a - b,
    "multiply": lambda a, b, n: a * b,
    "divide": lambda a, b, n: -1 if b == 0 else int(a / b),
    "remainder": lambda a, b, n: a if b == 0 else int(math.fmod(a, b)),
    "maximum": lambda a, b, n: max(a, b),
    "minimum": lambda a, b, n: min(a, b),
    "and": lambda a, b, n: a & b,
    "or": lambda a, b, n: a | b,
    "xor": lambda a, b, n: a ^ b,
    "mulhi": lambda a, b, n: (a * b) >> n,
    "shift-left": lambda a, b, n: a << b % (1 << n) if b % (1 << n) < n else 0,
    "shift-right-logical": lambda a, b, n: a % (1 << n) >> b % (1 << n),
    "shift-right-arithmetic": lambda a, b, n: wrapped(a, n, True) >> min(b % (1 << n), n),
    "negate": lambda a, b, n: -a,
    "abs": lambda a, b, n: abs(a),
    "not": lambda a, b, n: ~a,
    "popcnt": lambda a, b, n: (a % (1 << n)).bit_count(),
    "count-leading-zeros": lambda a, b, n: n - (a % (1 << n)).bit_length(),
}
UNARY = ("negate", "abs", "not", "popcnt", "count-leading-zeros")


def wrapped(value: int, bits: int, signed: bool) -> int:
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


@pytest.mark.parametrize("name", ["s2", "u2", "s4", "u4"])
def test_integers_wrap_in_their_own_bits(name: str) -> None:
    dtype = BY_NAME[name]
    signed = dtype.kind == "signed"
    every = codes(dtype)
    x, y = (v.reshape(-1) for v in np.meshgrid(every, every))
    shape = f"{name}[{x.size}]"
    meanings = {op: f for op, f in INTEGER.items() if signed or op != "abs"}
    rows = [f"x = {shape} parameter(0)", f"y = {shape} parameter(1)"]
    rows += [
        f"r{n} = {shape} {op}({'x' if op in UNARY else 'x, y'})" for n, op in enumerate(meanings)
    ]
    results = ", ".join(f"r{n}" for n in range(len(meanings)))
    rows.append(f"ROOT t = ({', '.join([shape] * len(meanings))}) tuple({results})")
    module = parse("HloModule m\nENTRY e {\n" + "\n".join(rows) + "\n}\n")
    pairs = list(zip(x.astype(int).tolist(), y.astype(int).tolist(), strict=True))
    for values in (nw.build(module)(x, y), evaluate(module, [x, y])):
        for (op, meaning), got in zip(meanings.items(), values, strict=True):
            want = [wrapped(meaning(a, b, dtype.bits), dtype.bits, signed) for a, b in pairs]
            np.testing.assert_array_equal(got.astype(int), want, op)


BITS = {
    "s4[2,2] to s8[2]": ("s8", [[1, 2], [-1, 0]], [33, 15]),
    "s2[2,4] to s8[2]": ("s8", [[1, 0, 0, 0], [-1, 0, 0, -1]], [1, -61]),
    "s4[1,4] to s16[1]": ("s16", [[1, 2, 3, 4]], [0x4321]),
    "s2[2,2] to s4[2]": ("s4", [[1, 0], [-1, -2]], [1, -5]),
}


@pytest.mark.parametrize("case", BITS)
def test_the_first_of_packed_values_is_the_lowest(case: str) -> None:
    """As XLA has it."""
    source, _, target = case.split()
    _, parts, whole = BITS[case]
    x = np.array(parts).astype(to_numpy(BY_NAME[source.partition("[")[0]]))
    y = np.array(whole).astype(to_numpy(BY_NAME[target.partition("[")[0]]))
    for a, b, old, new in ((x, y, source, target), (y, x, target, source)):
        module = parse(
            f"HloModule m\nENTRY e {{\n  a = {old} parameter(0)\n"
            f"  ROOT r = {new} bitcast-convert(a)\n}}\n"
        )
        for got in (nw.build(module)(a), evaluate(module, [a])):
            np.testing.assert_array_equal(got.astype(int), b.astype(int))


PRODUCTS = """HloModule m
add {
  a = f8e5m2[] parameter(0)
  b = f8e5m2[] parameter(1)
  ROOT r = f8e5m2[] add(a, b)
}
first {
  a = f8e5m2[] parameter(0)
  b = f8e5m2[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER
}
ENTRY e {
  x = f8e5m2[4,100] parameter(0)
  i = s4[2,3] parameter(1)
  z = f8e5m2[] constant(0)
  r0 = f8e5m2[4] reduce(x, z), dimensions={1}, to_apply=add
  r1 = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  r2 = s32[2,2] dot(i, i), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  r3 = s4[2,2] dot(i, i), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  r4 = f8e5m2[4,100] sort(x), dimensions={1}, to_apply=first
  ROOT t = (f8e5m2[4], f32[4,4], s32[2,2], s4[2,2], f8e5m2[4,100]) tuple(r0, r1, r2, r3, r4)
}
"""


def test_sums_are_kept_wide_and_rounded_once() -> None:
    """A hundred ones are 96 in f8e5m2, though 8 + 1 is 8 there; integers wrap at the end."""
    ones = np.ones((4, 100), np.float32).astype(to_numpy(BY_NAME["f8e5m2"]))
    i = np.array([[7, 7, 7], [-8, -8, -8]]).astype(to_numpy(BY_NAME["s4"]))
    module = parse(PRODUCTS)
    for total, dot, whole, few, order in (nw.build(module)(ones, i), evaluate(module, [ones, i])):
        np.testing.assert_array_equal(total.astype(int), [96] * 4)
        np.testing.assert_array_equal(dot, np.full((4, 4), 100))
        np.testing.assert_array_equal(whole, [[147, -168], [-168, 192]])
        np.testing.assert_array_equal(few.astype(int), [[3, -8], [-8, 0]])
        np.testing.assert_array_equal(order.astype(int), np.ones((4, 100)))
    every = np.resize(codes(BY_NAME["f8e5m2"])[::-1], (4, 100))
    order = nw.build(module)(every, i)[4]
    key = np.sort(np.where((b := every.view(np.int8)) < 0, b ^ 127, b), axis=1)
    np.testing.assert_array_equal(order.view(np.int8), np.where(key < 0, key ^ 127, key))


# Their codes are ordered alike, but for those that have no -0: the least follow from one of each.
LEAST = [BY_NAME["f8e5m2"], BY_NAME["f8e4m3fnuz"]]


@pytest.mark.parametrize(
    ("dtype", "largest"), [*((t, "true") for t in FLOATS), *((t, "false") for t in LEAST)], ids=str
)
def test_topk_takes_every_code_in_total_order(dtype: DType, largest: str) -> None:
    x = np.random.default_rng(5).permutation(np.resize(codes(dtype), 300)).reshape(3, 100)
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[3,100] parameter(0)
  ROOT t = ({dtype}[3,60], s32[3,60]) topk(x), k=60, largest={largest}
}}
"""
    module = parse(text)
    for got, want in zip(nw.build(module)(x), evaluate(module, [x]), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


ON_A_GPU = """HloModule m
ENTRY e {
  x = f8e4m3fn[37] parameter(0)
  i = s4[37] parameter(1)
  r0 = f8e4m3fn[37] multiply(x, x)
  r1 = f8e3m4[37] convert(x)
  r2 = s4[37] add(i, i)
  r3 = f4e2m1fn[37] convert(i)
  ROOT t = (f8e4m3fn[37], f8e3m4[37], s4[37], f4e2m1fn[37]) tuple(r0, r1, r2, r3)
}
"""


def test_gpu_code_means_the_same() -> None:
    """As the simulator runs it."""
    args = [np.resize(codes(BY_NAME[n])[::7], 37) for n in ("f8e4m3fn", "s4")]
    module = parse(ON_A_GPU)
    got = nw.build(module, target="cuda-sim")(*args)
    for a, b in zip(got, evaluate(module, args), strict=True):
        np.testing.assert_array_equal(bits_of(np.asarray(a)), bits_of(b))
