"""The loop interpreter against NumPy, its strictness, and the races it finds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nestwright.ir import dtypes
from nestwright.ir.conversion import convert
from nestwright.ir.dtypes import BY_NAME, DType, to_numpy
from nestwright.ir.elementwise import TABLE
from nestwright.ir.errors import ArgumentError
from nestwright.ir.loop import build
from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.nodes import Buffer, Cast, Const, Expr, For, Func, Load, Store, Var
from nestwright.ir.loop.parser import parse

MATMUL = """\
@func(outputs=1)
def matmul(A: f32[9, 5], B: f32[5, 7], C: f32[9, 7]):
    for io in {kind}(2):
        for k in range(5):
            for j in range(7):
                for ii in range(5):
                    with block("C"):
                        vi, vj, vk = spatial(9, io * 5 + ii), spatial(7, j), reduce(5, k)
                        where(io * 5 + ii < 9)
                        reads(A[vi, vk], B[vk, vj], C[vi, vj])
                        writes(C[vi, vj])
                        with init():
                            C[vi, vj] = f32(0.0)
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def test_blocks_with_init_and_predicate() -> None:
    a, b = arrays((9, 5), (5, 7))
    (c,) = run(parse(MATMUL.format(kind="range")), [a, b])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-6)
    for seed in range(3):
        func = parse(MATMUL.format(kind="parallel"))
        (d,) = run(func, [a, b], seed=seed, check_races=True)
        np.testing.assert_array_equal(c, d)


def test_flat_functions_with_symbols_lets_and_scratch() -> None:
    func = parse("""\
@func(outputs=2)
def f(A: f32[8], C: f32[8], S: f32[()], n: s64):
    for i in range(n):
        T = alloc(f32[2], scope="register")
        for j in unroll(2):
            if i % 2 == 0 and j == 0:
                T[j] = f32(0.0)
            else:
                T[j] = A[i]
        x = let(f32, T[0] + T[1])
        y = let(s64, i + 1)
        C[y - 1] = x * cast(f32, y)
    S[()] = C[n - 1]
""")
    (a,) = arrays((8,))
    c, s = run(func, [a], symbols=[8])
    want = np.array([a[i] * (1 + i % 2) * (i + 1) for i in range(8)], np.float32)
    np.testing.assert_array_equal(c, want)
    assert s.shape == () and s == want[7]


VALUES: dict[str, list[float]] = {
    "pred": [0, 1],
    "signed": [0, 1, -1, 3, 2, 7, -8, 5],
    "unsigned": [0, 1, 2, 3, 15, 9],
    "float": [0.0, -0.0, 1.0, -1.5, 0.375, 2.0, 6.0, float("inf"), float("-inf"), float("nan")],
    "complex": [0, 1, -1, 1 + 2j, 0.5 - 0.25j],  # type: ignore[list-item]
}


def samples(dtype: DType, count: int, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    values = rng.choice(np.array(VALUES[dtype.kind]), count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dtype.is_int:
            low, high = np.iinfo(to_numpy(dtype)).min, np.iinfo(to_numpy(dtype)).max
            edges = np.array([low, high, high // 2], to_numpy(dtype))
            return np.where(
                rng.random(count) < 0.3, rng.choice(edges, count), values.astype(to_numpy(dtype))
            )
        return values.astype(to_numpy(dtype))


def apply(make: Any, dtypes_: Sequence[DType], args: Sequence[Any]) -> np.ndarray[Any, Any]:
    """``make(loads)`` for each element, by the interpreter."""
    i, n = Var("i"), len(args[0])
    ins = [Buffer(f"x{k}", (n,), d) for k, d in enumerate(dtypes_)]
    value: Expr = make(*(Load(b, (i,)) for b in ins))
    out = Buffer("out", (n,), value.dtype)
    func = Func("f", (*ins, out), 1, For(i, Const(n), Store(out, (i,), value)))
    return run(func, args)[0]


TYPES = {
    "p": ["pred"],
    "s": ["s32", "s64", "s8"],
    "u": ["u8", "u64", "u32"],
    "f": ["f32", "f64", "bf16", "f16"],
    "c": ["c64"],
}


@pytest.mark.parametrize("name", sorted(set(TABLE) - {"floordiv", "floormod"}))
def test_operations_mean_what_the_table_says(name: str) -> None:
    row = TABLE[name]
    for dtype in (BY_NAME[t] for kind in row.kinds for t in TYPES[kind]):
        types = [dtype] * row.arity
        if name == "select":
            types[0] = dtypes.pred
        args = [samples(d, 24, k) for k, d in enumerate(types)]
        with np.errstate(all="ignore"):
            try:
                want = row.numpy(*args)
            except TypeError:
                continue  # not defined on this narrow type
        got = apply(lambda *loads: build.op(name, *loads), types, args)
        assert got.dtype == want.dtype
        wide = complex if dtype.kind == "complex" else float if dtype.is_float else want.dtype
        np.testing.assert_array_equal(got.astype(wide), want.astype(wide), err_msg=str(dtype))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_logistic_far_below_zero_is_a_subnormal(dtype: str) -> None:
    """Not 0 by way of an infinite e**-x; nothing overflows."""
    far = {"f32": [-88.8, -100.0, -103.0], "f64": [-709.9, -740.0, -745.0]}[dtype]
    x = np.array([*far, -1e30, -np.inf, np.inf, np.nan], to_numpy(BY_NAME[dtype]))
    with np.errstate(over="raise", divide="raise"):
        got = TABLE["logistic"].numpy(x)
    np.testing.assert_allclose(got[:3], np.exp(x[:3].astype(np.longdouble)).astype(x.dtype), 1e-6)
    np.testing.assert_array_equal(got[3:], [0.0, 0.0, 1.0, np.nan])
    assert got.dtype == x.dtype and (got[:3] > 0).all()


@pytest.mark.parametrize(
    ("source", "target", "values", "want"),
    [
        ("f32", "s32", [1.9, -1.9, 3e9, -3e9, np.nan], [1, -1, 2**31 - 1, -(2**31), 0]),
        ("f32", "u8", [300.0, -1.0, 2.5], [255, 0, 2]),
        ("s32", "u8", [-1, 256, 7], [255, 0, 7]),
        ("s32", "pred", [0, 2], [False, True]),
        ("pred", "f32", [True, False], [1.0, 0.0]),
        ("f32", "bf16", [1.00390625, 3.0], [1.0, 3.0]),
        ("u8", "s64", [200, 3], [200, 3]),
        ("u64", "s64", [2**64 - 1, 3], [-1, 3]),
        ("c64", "f32", [1 + 2j], [1.0]),
        ("bf16", "s32", [2.5, -3.0], [2, -3]),
    ],
)
def test_conversions(source: str, target: str, values: list[Any], want: list[Any]) -> None:
    s, t = BY_NAME[source], BY_NAME[target]
    got = apply(lambda x: Cast(x, t), [s], [np.array(values, to_numpy(s))])
    assert got.dtype == to_numpy(t)
    assert got.tolist() == np.array(want, to_numpy(t)).tolist()


@pytest.mark.parametrize("target", [t for t in dtypes.ALL if t.is_float and t.bits <= 16], ids=str)
def test_floats_become_narrow_ones_as_arrays_do(target: DType) -> None:
    """Ties, overflow, subnormals, infinities and NaN with their signs, bit by bit."""
    rng = np.random.default_rng(6)
    exponents = np.arange(256, dtype=np.uint32)[:, None] << 23
    tails = np.uint32([0, 1, 0x7FFF, 0x8000, 0x18000, 0x80000, 0x180000, 0x280000, 0x7FFFFF])
    bits = (exponents | tails).ravel()
    bits = np.concatenate([bits, bits | 1 << 31, rng.integers(0, 1 << 32, 500, np.uint32)])
    x = bits.view(np.float32)
    with np.errstate(all="ignore"):
        got, want = (
            apply(lambda e: Cast(e, target), [dtypes.f32], [x]),
            convert(x, to_numpy(target)),
        )
    assert got.dtype == want.dtype and got.tobytes() == want.tobytes()


@pytest.mark.parametrize("source", ["bf16", "f16", "f8e4m3fn", "f8e5m2"])
@pytest.mark.parametrize("target", [dtypes.f32, dtypes.f64], ids=str)
def test_narrow_floats_become_wide_ones_as_arrays_do(source: str, target: DType) -> None:
    s = BY_NAME[source]
    x = np.arange(0, 1 << s.bits, 37 if s.bits == 16 else 1).astype(f"u{s.bits // 8}")
    with np.errstate(all="ignore"):
        got = apply(lambda e: Cast(e, target), [s], [x.view(to_numpy(s))])
        want = convert(x.view(to_numpy(s)), to_numpy(target))
    assert got.tobytes() == want.tobytes()


def test_bits_are_reinterpreted() -> None:
    got = apply(lambda x: Cast(x, dtypes.s32, bits=True), [dtypes.f32], [np.ones(2, np.float32)])
    assert got.tolist() == [0x3F800000] * 2


def test_data_of_the_index_type_wraps() -> None:
    x = np.array([2**63 - 1, 5], np.int64)
    got = apply(lambda a: build.op("add", a, Const(1)), [dtypes.s64], [x])
    assert got.tolist() == [-(2**63), 6]


HEAD = "@func(outputs=1)\ndef f(A: f32[8], C: f32[8]):\n"
LOOP = HEAD + "    for i in range(8):\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LOOP + "        C[i] = A[i + 1]\n", "an index is out of bounds: A has 8 elements there, "),
        (LOOP + "        C[i * 2 - i - i] = A[i]\n", "an output has no value: C[1] was never"),
        (LOOP + "        C[i] = C[(i + 1) % 8]\n", "an element is read that has no value: nothing"),
        (
            HEAD
            + "    for i in range(9):\n        with block('b'):\n            v = spatial(8, i)\n"
            "            reads(A[v])\n            writes(C[v])\n            C[v] = A[v]\n",
            "block b: a block axis is out of range: v is 8, its extent is 8",
        ),
    ],
)
def test_what_is_undefined_is_an_error(text: str, message: str) -> None:
    with pytest.raises(UndefinedError) as e:
        run(parse(text), arrays((8,)))
    assert str(e.value).startswith(message)


def test_an_operand_that_is_not_selected_is_not_evaluated() -> None:
    text = LOOP + "        C[i] = select(i > 0, A[i - 1], f32(0.0))\n"
    (a,) = arrays((8,))
    (c,) = run(parse(text), [a])
    assert c.tolist() == [0.0, *a[:-1].tolist()]


def test_arguments_are_checked() -> None:
    func = parse(LOOP + "        C[i] = A[i]\n")
    with pytest.raises(ArgumentError, match="argument 0 is float64"):
        run(func, [np.zeros(8)])
    with pytest.raises(ArgumentError, match="it takes 1 arrays"):
        run(func, [])


@pytest.mark.parametrize("kind", ["parallel", "vectorize"])
@pytest.mark.parametrize(
    ("body", "race"),
    [
        ("C[i] = A[i]", None),
        ("C[i // 2] = A[i]", "writes what iteration"),
        ("C[i] = select(i > 0, C[i - 1], A[i])", "reads what iteration"),
        ("C[7 - i] = select(i > 4, C[i], A[i])", "reads what iteration"),
    ],
)
def test_races_are_found(kind: str, body: str, race: str | None) -> None:
    func = parse(f"{HEAD}    for i in {kind}(8):\n        {body}\n")
    if race is None:
        run(func, arrays((8,)), check_races=True)
    else:
        with pytest.raises(UndefinedError, match=race):
            run(func, arrays((8,)), check_races=True)


@pytest.mark.parametrize(("place", "safe"), [("i + j", True), ("i + j * 4", False)])
def test_a_buffer_of_one_loop_is_private_to_its_iterations(place: str, safe: bool) -> None:
    """Neighboring tiles both compute the halo; only reading the other's part is a race."""
    func = parse(f"""\
@func(outputs=1)
def f(A: f32[16], C: f32[8]):
    T = alloc(f32[16])
    for i in parallel(8):
        for j in range(2):
            T[i + j] = A[i + j]
        C[i] = T[i] + T[{place.replace("j", "1")}]
""")
    if safe:
        run(func, arrays((16,)), check_races=True)
    else:
        with pytest.raises(UndefinedError):
            run(func, arrays((16,)), check_races=True, seed=1)


def test_scratch_made_in_the_loop_is_new_each_time() -> None:
    func = parse("""\
@func(outputs=1)
def f(A: f32[8], C: f32[8]):
    for i in parallel(8):
        T = alloc(f32[1])
        T[0] = A[i]
        C[i] = T[0]
""")
    run(func, arrays((8,)), check_races=True, seed=3)
