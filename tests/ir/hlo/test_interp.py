"""The oracle follows XLA's rules where they are easy to get wrong, and refuses clearly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.errors import ArgumentError, UnsupportedError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate

CORPUS = Path(__file__).parents[3].parent / "shared/corpus"

REDUCERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
argmax { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  gt = pred[] compare(a, b), direction=GT
  eq = pred[] compare(a, b), direction=EQ
  less = pred[] compare(i, j), direction=LT
  both = pred[] and(eq, less)
  left = pred[] or(gt, both)
  v = f32[] select(left, a, b)
  k = s32[] select(left, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k) }
"""


def run(body: str, *args: Any, head: str = REDUCERS) -> Any:
    return evaluate(parse(f"HloModule m\n{head}\nENTRY e {{\n{body}\n}}"), args)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_results_are_arrays_even_when_scalar() -> None:
    out = run("a = f32[] parameter(0)\n ROOT b = f32[] add(a, a)", np.float32(2))
    assert isinstance(out, np.ndarray) and out.shape == () and out.dtype == np.float32


def test_float_to_integer_saturates() -> None:
    x = f32(np.nan, np.inf, -np.inf, 3.9, -3.9, 1e10, 300, -1)
    s32 = run("a = f32[8] parameter(0)\n ROOT b = s32[8] convert(a)", x)
    top = 2**31 - 1
    assert s32.tolist() == [0, top, -(2**31), 3, -3, top, 300, -1]
    u8 = run("a = f32[8] parameter(0)\n ROOT b = u8[8] convert(a)", x)
    assert u8.tolist() == [0, 255, 0, 3, 0, 255, 255, 0]


def test_integers_wrap() -> None:
    x = np.array([300, -1, 2**31 - 1], np.int32)
    assert run("a = s32[3] parameter(0)\n ROOT b = u8[3] convert(a)", x).tolist() == [44, 255, 255]
    doubled = run("a = s32[3] parameter(0)\n ROOT b = s32[3] add(a, a)", x)
    assert doubled.tolist() == [600, -2, -2]
    square = run(
        "a = u32[2] parameter(0)\n ROOT b = u32[] dot(a, a), lhs_contracting_dims={0}, "
        "rhs_contracting_dims={0}",
        np.array([65536, 3], np.uint32),
    )
    assert square == 9 and square.dtype == np.uint32


def test_bitcast_convert_adds_or_takes_a_dimension() -> None:
    x = np.array([1.0, -2.0], np.float32)
    split = run("a = f32[2] parameter(0)\n ROOT b = u8[2,4] bitcast-convert(a)", x)
    assert split.tolist() == x.view(np.uint8).reshape(2, 4).tolist()
    joined = run("a = u8[2,4] parameter(0)\n ROOT b = f32[2] bitcast-convert(a)", split)
    assert joined.tolist() == x.tolist()


def test_bitcast_follows_layouts() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    turned = run("a = f32[2,3]{0,1} parameter(0)\n ROOT b = f32[3,2]{1,0} bitcast(a)", x)
    assert turned.tolist() == x.T.tolist()
    flat = run("a = f32[2,3]{0,1} parameter(0)\n ROOT b = f32[6]{0} bitcast(a)", x)
    assert flat.tolist() == x.T.reshape(-1).tolist()


def test_total_order() -> None:
    a, b = f32(-0.0, np.nan, 1), f32(0.0, np.inf, np.nan)
    body = "a = f32[3] parameter(0)\n b = f32[3] parameter(1)\n ROOT c = pred[3] compare(a, b), "
    assert run(body + "direction=LT, type=TOTALORDER", a, b).tolist() == [True, False, True]
    assert run(body + "direction=LT", a, b).tolist() == [False, False, False]


def test_reduce_precision_rounds_to_even_and_overflows() -> None:
    x = f32(1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, 1e-40, np.nan)
    body = "a = f32[5] parameter(0)\n ROOT b = f32[5] reduce-precision(a), "
    as_bf16 = run(body + "exponent_bits=8, mantissa_bits=7", x)
    np.testing.assert_array_equal(as_bf16[:3], x.astype(ml_dtypes.bfloat16)[:3].astype("f4"))
    as_f16 = run(body + "exponent_bits=5, mantissa_bits=10", x)
    np.testing.assert_array_equal(as_f16[2:], f32(np.inf, 0, np.nan))


def test_pad_negative_and_interior() -> None:
    out = run(
        "a = f32[5] parameter(0)\n z = f32[] constant(9)\n ROOT p = f32[9] pad(a, z), "
        "padding=-1_1_1",
        f32(0, 1, 2, 3, 4),
    )
    assert out.tolist() == [9, 1, 9, 2, 9, 3, 9, 4, 9]
    cut = run(
        "a = f32[5] parameter(0)\n z = f32[] constant(9)\n ROOT p = f32[0] pad(a, z), "
        "padding=-4_-1",
        f32(0, 1, 2, 3, 4),
    )
    assert cut.shape == (0,)


def test_dynamic_slices_stay_inside() -> None:
    x = np.arange(5, dtype=np.float32)
    body = "a = f32[5] parameter(0)\n i = s32[] parameter(1)\n "
    cut = body + "ROOT d = f32[3] dynamic-slice(a, i), dynamic_slice_sizes={3}"
    assert run(cut, x, np.int32(4)).tolist() == [2, 3, 4]
    assert run(cut, x, np.int32(-7)).tolist() == [0, 1, 2]
    put = body + "u = f32[2] constant({8, 9})\n ROOT d = f32[5] dynamic-update-slice(a, u, i)"
    assert run(put, x, np.int32(99)).tolist() == [0, 1, 2, 8, 9]
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_gather_clamps_scatter_drops() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    at = np.array([[2], [5], [-1]], np.int32)
    rows = run(
        "a = f32[3,2] parameter(0)\n i = s32[3,1] parameter(1)\n ROOT g = f32[3,2] gather(a, i), "
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,2}",
        x,
        at,
    )
    assert rows.tolist() == [[4, 5], [4, 5], [0, 1]]
    added = run(
        "a = f32[3,2] parameter(0)\n i = s32[3,1] parameter(1)\n u = f32[3,2] parameter(2)\n "
        "ROOT s = f32[3,2] scatter(a, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
        x,
        at,
        np.ones((3, 2), np.float32),
    )
    assert added.tolist() == [[0, 1], [2, 3], [5, 6]]


def test_scatter_applies_updates_of_one_place_in_order() -> None:
    head = """twice { a = f32[] parameter(0)
  b = f32[] parameter(1)
  d = f32[] add(a, a)
  ROOT s = f32[] add(d, b) }"""
    out = run(
        "a = f32[2] parameter(0)\n i = s32[3] parameter(1)\n u = f32[3] constant({1, 2, 3})\n "
        "ROOT s = f32[2] scatter(a, i, u), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=twice",
        f32(1, 1),
        np.array([1, 0, 1], np.int32),
        head=head,
    )
    assert out.tolist() == [4, 9]  # 2 * 1 + 2; 2 * (2 * 1 + 1) + 3


def test_variadic_reduce_keeps_the_first_of_equals() -> None:
    out = run(
        "a = f32[2,4] parameter(0)\n i = s32[2,4] iota(), iota_dimension=1\n "
        "n = f32[] constant(-inf)\n z = s32[] constant(2147483647)\n "
        "ROOT r = (f32[2], s32[2]) reduce(a, i, n, z), dimensions={1}, to_apply=argmax",
        np.array([[1, 7, 7, 0], [3, 3, 3, 3]], np.float32),
    )
    assert out[0].tolist() == [7, 3] and out[1].tolist() == [1, 0]


def test_reduce_of_nothing_is_the_initial_value() -> None:
    body = "a = f32[0,2] parameter(0)\n z = f32[] constant(5)\n ROOT r = f32[2] reduce(a, z), "
    out = run(body + "dimensions={0}, to_apply=add", np.zeros((0, 2), np.float32))
    assert out.tolist() == [5, 5]


def test_narrow_sums_are_kept_wide() -> None:
    x = np.full(4096, 1, ml_dtypes.bfloat16)
    head = REDUCERS.split("argmax", maxsplit=1)[0].replace("f32", "bf16")
    out = run(
        "a = bf16[4096] parameter(0)\n z = bf16[] constant(0)\n ROOT r = bf16[] reduce(a, z), "
        "dimensions={0}, to_apply=add",
        x,
        head=head,
    )
    assert float(out) == 4096  # a bf16 running sum would stop at 256


def test_reduce_window_skips_what_is_outside() -> None:
    body = (
        "a = f32[4] parameter(0)\n z = f32[] constant(10)\n ROOT r = f32[4] reduce-window(a, z), "
    )
    out = run(body + "window={size=3 pad=2_0}, to_apply=add", f32(1, 2, 3, 4))
    assert out.tolist() == [11, 13, 16, 19]  # the initial value counts once a window


def test_conditional_takes_the_last_branch_when_out_of_range() -> None:
    head = """p { a = f32[] parameter(0)
  ROOT n = f32[] negate(a) }
q { a = f32[] parameter(0)
  ROOT n = f32[] exponential(a) }"""
    body = (
        "i = s32[] parameter(0)\n a = f32[] constant(0)\n b = f32[] constant(2)\n "
        "ROOT c = f32[] conditional(i, b, a), branch_computations={p, q}"
    )
    assert [float(run(body, np.int32(i), head=head)) for i in (0, 1, 2, -1)] == [-2, 1, 1, 1]


def test_while_counts() -> None:
    head = """body { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[2] add(x, x)
  ROOT t = (s32[], f32[2]) tuple(j, y) }
cond { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT }"""
    i, x = run(
        "z = s32[] constant(0)\n x = f32[2] parameter(0)\n s = (s32[], f32[2]) tuple(z, x)\n "
        "ROOT w = (s32[], f32[2]) while(s), condition=cond, body=body",
        f32(1, 3),
        head=head,
    )
    assert i == 10 and x.tolist() == [1024, 3072]


def test_bounded_sizes_carry_their_live_size() -> None:
    body = """x = f32[6] parameter(0)
  n = s32[] parameter(1)
  z = f32[] constant(0)
  d = f32[<=6] set-dimension-size(x, n), dimensions={0}
  y = f32[<=6] add(d, d)
  s = f32[] reduce(y, z), dimensions={0}, to_apply=add
  m = s32[] get-dimension-size(y), dimensions={0}
  ROOT t = (f32[<=6], f32[], s32[]) tuple(y, s, m)"""
    y, s, m = run(body, f32(1, 2, 3, 4, 5, 6), np.int32(3))
    assert y.tolist() == [2, 4, 6] and s == 12 and m == 3


def test_top_k_puts_nan_first_and_keeps_order() -> None:
    x = f32(1, np.nan, 5, 5, -np.inf)
    values, at = run("a = f32[5] parameter(0)\n ROOT t = (f32[4], s32[4]) topk(a), k=4", x)
    assert at.tolist() == [1, 2, 3, 0] and values[1:].tolist() == [5, 5, 1]


def test_random_bits_are_those_of_the_papers() -> None:
    """Known answers of Random123 for zero counters and keys."""
    fry = "s = u64[2] constant({0, 0})\n ROOT r = (u64[2], u64[1]) rng-bit-generator(s), algorithm="
    state, bits = run(fry + "rng_three_fry")
    assert hex(bits[0]) == "0x99ba4efe6b200159" and state.tolist() == [0, 1]
    wide = (
        fry.replace("u64[2]", "u64[3]").replace("{0, 0}", "{0, 0, 0}").replace("u64[1]", "u32[4]")
    )
    state, bits = run(wide + "rng_philox")
    assert [hex(b) for b in bits] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    assert state.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "takes 1 arguments and got 0"),
        ((np.zeros(4, "f8"),), "must have dtype float32, not float64"),
        ((np.zeros(5, "f4"),), "must be f32[4]{0}, not (5,)"),
    ],
)
def test_wrong_arguments(args: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ArgumentError) as error:
        run("a = f32[4] parameter(0)\n ROOT b = f32[4] negate(a)", *args)
    assert says in str(error.value)


def test_arrays_of_copied_types_are_computed_like_others() -> None:
    copied = np.ones(4, np.dtype("u4").newbyteorder("="))
    assert copied.dtype.isbuiltin != 1, "which is why nobody asks that"
    body = "x = u32[4] parameter(0)\n ROOT y = u32[4] xor(x, x)"
    np.testing.assert_array_equal(run(body, copied), np.zeros(4, "u4"))


def test_everything_unsupported_is_named_at_once() -> None:
    body = (
        'x = f32[4] parameter(0)\n a = f32[4] custom-call(x), custom_call_target="foo"\n'
        'ROOT b = f32[4] shuffle(a), dimensions={0}, metadata={source_file="a.py" source_line=3}'
    )
    with pytest.raises(UnsupportedError) as error:
        run(body, np.zeros(4, "f4"))
    assert [str(f) for f in error.value.findings] == [
        "custom-call `a` in `e`",
        "shuffle `b` in `e` (a.py:3)",
    ]


def test_a_value_larger_than_memory_is_refused() -> None:
    body = "a = f32[4000000000,1000000] parameter(0)\n ROOT b = f32[4000000000,1000000] negate(a)"
    huge = np.broadcast_to(np.float32(0), (4_000_000_000, 1_000_000))
    with pytest.raises(UnsupportedError, match="does not fit into memory"):
        run(body, huge)


def flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, tuple):
        return [x for part in value for x in flat(part)]
    return [value]


@pytest.mark.corpus
def test_models_give_their_stored_results(tools: Any) -> None:
    """All models but the largest, whose operations smaller ones have."""
    reference, make_inputs = tools("reference"), tools("make_inputs")
    wrong = {}
    for path in sorted((CORPUS / "models").glob("*.hlo")):
        if path.stem in ("vit_base_forward", "bert_base_forward", "resnet50_keras_forward"):
            continue
        spec = json.loads(path.with_suffix(".json").read_text())
        out = evaluate(parse(path.read_text(), path.name), make_inputs.make_inputs(spec))
        with np.load(path.with_suffix(".expected.npz")) as stored:
            expected = dict(stored)
        bad = reference.compare(expected, reference.summarize(flat(out)), spec["tolerance"])
        if bad:
            wrong[path.stem] = bad
    assert not wrong


@pytest.mark.corpus
def test_operation_cases_give_their_stored_results(tools: Any) -> None:
    cases = tools("cases")
    wrong = []
    for case in cases.cases(CORPUS / "stablehlo_testdata"):
        out = evaluate(parse(case.hlo.read_text(), case.name), case.inputs)
        if not cases.passes(case, flat(out)):
            wrong.append(case.name)
    assert not wrong


@pytest.mark.parametrize("dtype", ["u8", "u64", "s8", "u4", "pred"])
def test_and_over_nothing_is_all_ones(dtype: str) -> None:
    text = f"""HloModule m
c {{ p = {dtype}[] parameter(0)
 q = {dtype}[] parameter(1)
 ROOT r = {dtype}[] and(p, q) }}
ENTRY e {{ x = {dtype}[3,0] parameter(0)
 z = {dtype}[] parameter(1)
 ROOT y = {dtype}[3] reduce(x, z), dimensions={{1}}, to_apply=c }}"""
    to = to_numpy(BY_NAME[dtype])
    start = np.asarray(1).astype(to)
    found = evaluate(parse(text), [np.zeros((3, 0), to), start])
    assert found.dtype == to and (found == start).all()
