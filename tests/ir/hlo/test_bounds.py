"""Error bounds: right results lie within them, however they round; exact ones have none."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.bounds.bounded import (
    Bounded,
    MachineRounding,
    beyond,
    largest,
    rounded,
    unit,
)
from nestwright.ir.hlo.bounds.evaluate import evaluate
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target
from nestwright.te.from_hlo import lower_group

ADD = "add {\n a = TYPE[] parameter(0)\n b = TYPE[] parameter(1)\n ROOT c = TYPE[] add(a, b)\n}\n"


def module(body: str, *computations: str):
    return parse("HloModule m\n" + "".join(computations) + "ENTRY e {\n" + body + "}\n", "m").entry


def one(
    body: str, *args: np.ndarray, rounding: MachineRounding | None = None, computations: str = ""
):
    made = module(body, computations)
    found = evaluate(made, args, rounding or MachineRounding())
    return found[0] if len(found) == 1 else found


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def unary(opcode: str, dtype: str = "f32", count: int = 3) -> str:
    return f" x = {dtype}[{count}] parameter(0)\n ROOT y = {dtype}[{count}] {opcode}(x)\n"


def test_whole_numbers_need_no_rounding_until_the_type_ends() -> None:
    dot = (
        " x = f32[1,COUNT] parameter(0)\n w = f32[COUNT,1] parameter(1)\n"
        " ROOT y = f32[1,1] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    )
    for factor, exact in ((100, True), (400, False)):
        x = np.full((1, 1000), factor, np.float32)
        found = one(dot.replace("COUNT", "1000"), x, x.T.copy())
        assert found.certain == exact and found.value == 1000.0 * factor**2


def test_a_sum_is_off_by_the_root_of_its_length_and_by_all_of_it_when_steps_round_alike() -> None:
    body = " x = f32[10000] parameter(0)\n z = f32[] constant(0)\n"
    body += " ROOT y = f32[] reduce(x, z), dimensions={0}, to_apply=add\n"
    random = np.random.default_rng(0).random(10000).astype(np.float32)
    alike = np.full(10000, 0.1, np.float32)
    kept = [one(body, x, computations=ADD.replace("TYPE", "f32")) for x in (random, alike)]
    shares = [float(x.error / x.value) / unit(BY_NAME["f32"]) for x in kept]
    assert 300 < shares[0] < 800 and 4000 < shares[1] < 7000
    for x, wanted in zip((random, alike), kept, strict=True):
        in_order = np.float32(0)
        for term in x:
            in_order += term
        assert abs(float(in_order) - wanted.value) < wanted.error


def test_cancellation_is_seen() -> None:
    body = " x = f32[1] parameter(0)\n y = f32[1] parameter(1)\n a = f32[1] multiply(x, y)\n"
    body += " ROOT d = f32[1] subtract(a, y)\n"
    found = one(body, f32(1.0000001), f32(3.1))
    assert 0.1 < float(found.error[0] / abs(found.value[0])) < 2


def test_a_comparison_is_uncertain_where_its_operands_are_near() -> None:
    body = " x = f32[3] parameter(0)\n y = f32[3] parameter(1)\n e = f32[3] exponential(x)\n"
    body += " ROOT c = pred[3] compare(e, y), direction=LT\n"
    found = one(body, f32(1, 1, 0), f32(np.e, 2, 1))
    assert found.errors.tolist() == [1, 0, 0], "exp(0) is 1"


def test_a_conversion_to_integers_is_uncertain_beside_a_whole_number_only() -> None:
    body = " x = f32[3] parameter(0)\n e = f32[3] tanh(x)\n k = f32[] constant(100)\n"
    body += " kk = f32[3] broadcast(k), dimensions={}\n m = f32[3] multiply(e, kk)\n"
    body += " ROOT c = s32[3] convert(m)\n"
    near = np.arctanh(0.5)
    found = one(body, f32(near, 0.3, np.inf))
    assert found.errors.tolist() == [1, 0, 1] and found.value.dtype == np.int32


def test_the_place_of_a_maximum_is_uncertain_in_a_tie() -> None:
    reducer = (
        "pick {\n a = f32[] parameter(0)\n i = s32[] parameter(1)\n b = f32[] parameter(2)\n"
        " j = s32[] parameter(3)\n ge = pred[] compare(a, b), direction=GE\n"
        " v = f32[] select(ge, a, b)\n w = s32[] select(ge, i, j)\n"
        " ROOT t = (f32[], s32[]) tuple(v, w)\n}\n"
    )
    body = (
        " x = f32[2,4] parameter(0)\n e = f32[2,4] exponential(x)\n"
        " i = s32[2,4] iota(), iota_dimension=1\n low = f32[] constant(-inf)\n"
        " z = s32[] constant(0)\n"
        " ROOT y = (f32[2], s32[2]) reduce(e, i, low, z), dimensions={1}, to_apply=pick\n"
    )
    x = np.array([[0, 1, 0, 1 + 1e-7], [0, 1, 0, 2]], np.float32)
    _, place = one(body, x, computations=reducer)
    assert place.errors[0] == 2 and place.errors[1] == 0 and place.value[1] == 3


def test_sums_beside_others_have_any_order() -> None:
    reducer = (
        "both {\n a = bf16[] parameter(0)\n b = bf16[] parameter(1)\n c = bf16[] parameter(2)\n"
        " d = bf16[] parameter(3)\n s = bf16[] add(a, c)\n m = bf16[] maximum(b, d)\n"
        " ROOT t = (bf16[], bf16[]) tuple(s, m)\n}\n"
    )
    body = (
        " x = bf16[2,4] parameter(0)\n z = bf16[] constant(0)\n"
        " ROOT y = (bf16[2], bf16[2]) reduce(x, x, z, z), dimensions={1}, to_apply=both\n"
    )
    bf16 = to_numpy(BY_NAME["bf16"])
    whole = np.array([[256, -256, 1, 2], [3, 4, 5, 6]], bf16)
    total, _ = one(body, whole, computations=reducer)
    assert total.value.tolist() == [3, 18]
    assert total.errors[0] > 1 and total.errors[1] == 0  # (1 + 256) + (2 - 256) is 2
    total, _ = one(body, np.array([[256, -256, 1.0078125, 2]] * 2, bf16), computations=reducer)
    assert (total.errors > 1).all()


def test_what_is_rounded_may_be_larger_than_its_value() -> None:
    found = rounded(np.zeros(1), np.array([0.9999]), BY_NAME["bf16"])
    assert found.errors[0] > 1  # 0.9999 becomes 1


def test_what_the_type_cannot_hold_is_infinite_and_near_its_end_unknown() -> None:
    found = one(unary("exponential"), f32(100, 88.72284, 10))
    assert found.value[0] == np.inf and found.errors[0] == 0
    assert np.isinf(found.errors[1]) and found.errors[2] < 0.1


def test_nan_is_certain_where_nothing_else_can_be() -> None:
    body = " x = f32[3] parameter(0)\n t = f32[3] tanh(x)\n ROOT y = f32[3] log(t)\n"
    found = one(body, f32(-1, np.nan, 0.5))
    assert np.isnan(found.value[:2]).all() and found.errors[:2].tolist() == [0, 0]
    assert 0 < found.errors[2] < 1e-5


def test_bits_are_known_of_what_is_certain() -> None:
    body = " x = f32[2] parameter(0)\n ROOT y = s32[2] bitcast-convert(x)\n"
    assert one(body, f32(0.1, 3)).certain
    body = " x = f32[2] parameter(0)\n e = f32[2] exponential(x)\n"
    found = one(body + " ROOT y = s32[2] bitcast-convert(e)\n", f32(0.1, 3))
    assert np.isinf(found.errors).all()


def test_factors_of_tf32_are_rounded_too() -> None:
    body = (
        " x = f32[8,64] parameter(0)\n w = f32[64,8] parameter(1)\n"
        " ROOT y = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    )
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((8, 64), (64, 8)))
    few = (x.view(np.uint32) & 0xFFFFE000).view(np.float32)
    off = np.abs(few @ w - x @ w)
    loose, tight = (
        one(body, x, w, rounding=MachineRounding(operands=o)).errors for o in (2.0**-11, 0.0)
    )
    assert (off < loose).all() and (off > tight).any()


def test_computed_factors_may_be_as_narrow_as_the_others() -> None:
    body = (
        " x = f32[8,64] parameter(0)\n v = f16[64,8] parameter(1)\n"
        " p = f32[8,64] exponential(x)\n w = f32[64,8] convert(v)\n"
        " ROOT y = f32[8,8] dot(p, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 64)).astype(np.float32)
    v = rng.standard_normal((64, 8)).astype(np.float16)
    p, w = np.exp(x), v.astype(np.float32)
    off = np.abs(p.astype(np.float16).astype(np.float32) @ w - p @ w)
    loose, tight = (one(body, x, v, rounding=MachineRounding(factors=n)).errors for n in (2, 4))
    assert (off < loose).all() and (off > tight).any()


@pytest.mark.parametrize(("dtype", "factors"), [("f32", 2), ("bf16", 4)])
def test_denormal_factors_of_bf16_may_count_as_0(dtype: str, factors: int) -> None:
    body = (
        " x = f32[1,4] parameter(0)\n v = bf16[4,1] parameter(1)\n e = f32[1,4] exponential(x)\n"
        f" p = {dtype}[1,4] convert(e)\n w = {dtype}[4,1] convert(v)\n"
        " ROOT y = f32[1,1] dot(p, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    )
    x, v = np.full((1, 4), -88, np.float32), np.full((4, 1), 100, to_numpy(BY_NAME["bf16"]))
    found = one(body, x, v, rounding=MachineRounding(factors=factors))
    assert found.value > 2e-36  # a normal number
    assert found.value <= found.errors < 1.1 * found.value


@pytest.mark.parametrize("name", ["f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "f8e8m0fnu"])
def test_rounding_once_stays_within_a_unit(name: str) -> None:
    dtype = BY_NAME[name]
    rng = np.random.default_rng(1)
    x = np.exp(rng.uniform(np.log(2.0**-6), np.log(2.0**7), 500))
    found = rounded(x, None, dtype)
    kept = (
        x.astype(np.float32).astype(to_numpy(dtype))
        if dtype.bits < 32
        else x.astype(to_numpy(dtype))
    )
    assert (np.abs(kept.astype(np.float64) - x) <= found.errors).all()
    over = rounded(np.array([largest(dtype) * 4]), None, dtype) if name != "f64" else None
    assert over is None or np.array_equal(over.value, [beyond(dtype)], equal_nan=True)
    assert isinstance(found, Bounded)


PROGRAMS = {
    "layer norm in bf16": " x = bf16[9,40] parameter(0)\n z = f32[] constant(0)\n"
    " n = f32[] constant(40)\n nn = f32[9] broadcast(n), dimensions={}\n"
    " w = f32[9,40] convert(x)\n t = f32[9] reduce(w, z), dimensions={1}, to_apply=add\n"
    " m = f32[9] divide(t, nn)\n mm = f32[9,40] broadcast(m), dimensions={0}\n"
    " d = f32[9,40] subtract(w, mm)\n q = f32[9,40] multiply(d, d)\n"
    " v = f32[9] reduce(q, z), dimensions={1}, to_apply=add\n u = f32[9] divide(v, nn)\n"
    " r = f32[9] rsqrt(u)\n rr = f32[9,40] broadcast(r), dimensions={0}\n"
    " o = f32[9,40] multiply(d, rr)\n ROOT y = bf16[9,40] convert(o)\n",
    "running products": " x = f32[5,13] parameter(0)\n k = f32[] constant(1)\n"
    " ROOT y = f32[5,13] reduce-window(x, k), window={size=1x13 pad=0_0x12_0}, to_apply=times\n",
    "scattered sums in f16": " x = f16[10] parameter(0)\n i = s32[30,1] parameter(1)\n"
    " u = f16[30] parameter(2)\n ROOT y = f16[10] scatter(x, i, u), update_window_dims={},"
    " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1,"
    " to_apply=half\n",
    "angles": " x = f32[70] parameter(0)\n y = f32[70] parameter(1)\n s = f32[70] sine(x)\n"
    " c = f32[70] cosine(y)\n a = f32[70] atan2(s, c)\n ROOT p = f32[70] power(c, a)\n",
    "sorted": " x = f32[7,20] parameter(0)\n e = f32[7,20] exponential(x)\n"
    " ROOT y = f32[7,20] sort(e), dimensions={1}, is_stable=true, to_apply=less\n",
}
CALLED = (
    ADD.replace("TYPE", "f32")
    + ADD.replace("TYPE", "f16").replace("add {", "half {")
    + ADD.replace("TYPE", "f32").replace("add", "times", 1).replace("add(", "multiply(")
    + "less {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
    " ROOT c = pred[] compare(a, b), direction=LT\n}\n"
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_of_interpreter_and_kernel_lie_within(name: str) -> None:
    made = module(PROGRAMS[name], CALLED)
    kernel = compile_func(lower_group(made, "k"), Target.parse("cpu"))
    for seed in range(3):
        args = random_arguments(made, seed)
        (wanted,) = evaluate(made, args)
        assert np.isfinite(wanted.errors[np.isfinite(wanted.value)]).mean() > 0.8
        for got in (evaluate_computation(made, args), kernel(*args)):
            wide = np.asarray(got).astype(np.float64)
            same = (wide == wanted.value) | (np.isnan(wide) & np.isnan(wanted.value))
            with np.errstate(invalid="ignore"):
                assert (same | (np.abs(wide - wanted.value) <= wanted.errors)).all()


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize(
    ("opcode", "wanted"),
    [("exponential", 1), ("logistic", 0.5), ("cosh", 1), ("erfc", 1), ("cosine", 1), ("sine", 0)],
)
def test_functions_are_exact_at_zero_as_bounds_take_them_to_be(
    opcode: str, wanted: float, dtype: str
) -> None:
    made = module(unary(opcode, dtype))
    zeros = np.zeros(3, to_numpy(BY_NAME[dtype]))
    assert evaluate(made, [zeros])[0].certain
    kernel = compile_func(lower_group(made, "k"), Target.parse("cpu"))
    assert (np.asarray(kernel(zeros)).astype(np.float64) == wanted).all()


@pytest.mark.parametrize("order", range(4))
def test_products_of_any_order_lie_within_though_parts_of_them_are_subnormal(order: int) -> None:
    draw = np.random.default_rng(7)
    x = (draw.choice([-1.0, 1.0], (40, 60)) * 2.0 ** draw.uniform(-9, 7, (40, 60))).astype("f4")
    body = " x = f32[40,60] parameter(0)\n k = f32[] constant(1)\n"
    body += " ROOT y = f32[40] reduce(x, k), dimensions={1}, to_apply=times\n"
    wanted = one(body, x, computations=CALLED)
    mixed = np.take_along_axis(x, np.argsort(draw.random(x.shape), axis=1), 1)
    if order % 2:  # the small ones first, as far down as f32 goes
        mixed = np.sort(np.abs(mixed), axis=1) * np.sign(x)
    halves = mixed.reshape(40, 2, 30) if order >= 2 else mixed[:, None, :]
    with np.errstate(all="ignore"):
        parts = np.multiply.accumulate(halves, axis=2, dtype=np.float32)[:, :, -1]
        got = np.multiply.reduce(parts, axis=1, dtype=np.float32).astype(np.float64)
        finite = np.isfinite(got) & np.isfinite(wanted.value)
        assert finite.any()
        bad = finite & ~(np.abs(got - wanted.value) <= wanted.errors)
        assert not bad.any(), (got[bad], wanted.value[bad], wanted.errors[bad])


def test_a_product_without_small_parts_or_with_a_zero_is_as_sure_as_before() -> None:
    body = " x = f32[3] parameter(0)\n k = f32[] constant(1)\n"
    body += " ROOT y = f32[] reduce(x, k), dimensions={0}, to_apply=times\n"
    near = one(body, f32(1.5, 0.3, 2.5), computations=CALLED)
    assert near.errors < 1e-5
    assert one(body, f32(1e-30, 1e30, 1e-30), computations=CALLED).errors > 1e-16
    assert one(body, f32(1e-30, 0.0, 1e-30), computations=CALLED).errors < 1e-44
