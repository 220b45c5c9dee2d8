"""Narrow weights: codes and errors of both forms, the rewritten graph, and what stays f32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import bf16, f32, s8, s16, u8
from nestwright.ir.errors import ArgumentError
from nestwright.ir.hlo import freeze, optimize_narrow, parse, show
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.weights.narrow.quantize import (
    AT_ONCE,
    FORMS,
    INTEGERS,
    expected_errors,
    to_bf16,
    to_blocks,
    to_integers,
)
from nestwright.ir.target import Target

DOT = """HloModule dense
ENTRY main {
  x = f32[3,80] parameter(0)
  w = f32[72,80] parameter(1)
  ROOT y = f32[3,72] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""
LEFT = """HloModule left
ENTRY main {
  w = f32[72,80] parameter(0)
  x = f32[80,3] parameter(1)
  ROOT y = f32[72,3] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
BATCH = """HloModule batch
ENTRY main {
  x = f32[2,3,64] parameter(0)
  w = f32[2,64,40] parameter(1)
  ROOT y = f32[2,3,40] dot(x, w), lhs_batch_dims={0}, lhs_contracting_dims={2},
      rhs_batch_dims={0}, rhs_contracting_dims={1}
}
"""
CONV = """HloModule conv
ENTRY main {
  x = f32[2,9,7,16] parameter(0)
  w = f32[3,3,16,33] parameter(1)
  ROOT y = f32[2,9,7,33] convolution(x, w), window={size=3x3 pad=1_1x1_1},
      dim_labels=b01f_01io->b01f
}
"""
SHARED = """HloModule shared
ENTRY main {
  ids = s32[3,1] parameter(0)
  table = f32[72,80] parameter(1)
  rows = f32[3,80] gather(table, ids), offset_dims={1}, collapsed_slice_dims={0},
      start_index_map={0}, index_vector_dim=1, slice_sizes={1,80}
  ROOT y = f32[3,72] dot(rows, table), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""


def narrowed(text: str, weights: Array, form: str, number: int = 1) -> tuple[HloModule, Any]:
    module, rows = optimize_narrow(freeze(parse(text), {number: weights}), form)
    return module, rows


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("text", "shape", "number", "channels"),
    [
        (DOT, (72, 80), 1, (0,)),
        (LEFT, (72, 80), 0, (0,)),
        (BATCH, (2, 64, 40), 1, (0, 2)),
        (CONV, (3, 3, 16, 33), 1, (3,)),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_result_is_that_of_dequantized_weights(
    text: str, shape: tuple[int, ...], number: int, channels: tuple[int, ...], form: str
) -> None:
    w = noise(*shape) * np.float32(3)
    module, (row,) = narrowed(text, w, form, number)
    summed = tuple(d for d in range(w.ndim) if d not in channels)
    bits = INTEGERS.get(form, 8)
    scale = np.abs(w).max(summed, keepdims=True) / np.float32(2 ** (bits - 1) - 1)
    rounded = w.astype(ml_dtypes.bfloat16).astype(np.float32)
    restored = rounded if form == "bf16" else np.rint(w / scale) * scale
    x = noise(*parse(text).entry.parameters[1 - number].array.dims, seed=1)
    args = [w, x] if number == 0 else [x, w]
    args[number] = restored
    expected = evaluate(parse(text), args)
    np.testing.assert_allclose(evaluate(module, [x]), expected, rtol=1e-5, atol=1e-3)
    tight = {"rel": 0.5} if form == "int24" else {"rel": 1e-3}  # f32 rounds ``restored`` once more
    assert row.largest == pytest.approx(np.abs(restored - w).max(), **tight)
    relative = np.sqrt(np.square(restored - w).mean() / np.square(w).mean())
    assert row.relative == pytest.approx(relative, **tight)
    assert row.before == w.nbytes and row.kept == "" and row.form == form
    codes = w.size * (bits if form in INTEGERS else 16) // 8
    assert row.after == codes + (scale.nbytes if form in INTEGERS else 0)


@pytest.mark.parametrize("form", FORMS)
def test_kernel_reads_the_narrow_constant(form: str) -> None:
    module, _ = narrowed(DOT, noise(72, 80), form)
    (group,) = fuse(module.entry).groups
    types = {p.array.dtype for p in group.computation.parameters if p.array.rank == 2}
    own = {"bf16": {bf16}, "int8": {s8}, "int16": {s16}, "int24": {s16, u8}}[form]
    assert types == {f32} | own
    assert [i.opcode for i in group.members].count("convert") == len(own)


def test_table_of_a_gather_stays_and_the_dot_has_its_own() -> None:
    table, ids = noise(72, 80), np.array([[3], [0], [71]], np.int32)
    module, (row,) = narrowed(SHARED, table, "int8")
    kinds = {i.array.dtype for i in module.entry.instructions if i.opcode == "constant"}
    assert kinds >= {f32, s8} and row.dims == (80, 72)
    scale = np.abs(table).max(1, keepdims=True) / np.float32(127)
    expected = table[ids[:, 0]] @ (np.rint(table / scale) * scale).T
    np.testing.assert_allclose(evaluate(module, [ids]), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("bad", "why"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
def test_weights_that_no_form_holds_stay(form: str, bad: float, why: str) -> None:
    w = noise(72, 80)
    w[5, 7] = bad
    frozen = freeze(parse(DOT), {1: w})
    module, (row,) = optimize_narrow(frozen, form)
    assert why in row.kept and row.after == row.before
    assert show(module) == show(optimize_narrow(frozen, None)[0])


def test_bf16_refuses_what_it_rounds_to_infinity() -> None:
    w = noise(64, 64)
    w[0, 0] = np.finfo(np.float32).max
    assert "infinity" in str(to_bf16(w, (0,)))
    assert not isinstance(to_integers(w, (0,), 8), str)


def test_small_weights_arguments_and_other_types_stay() -> None:
    small = DOT.replace("72", "8")
    assert narrowed(small, noise(8, 80), "int8")[1] == ()
    assert optimize_narrow(parse(DOT), "int8")[1] == ()
    wide = DOT.replace("f32", "f64")
    assert narrowed(wide, noise(72, 80).astype(np.float64), "bf16")[1] == ()


def test_zero_and_denormal_channels_have_scale_one() -> None:
    w = noise(64, 66)
    w[:, 0], w[:, 65] = 0, 1e-42
    made = to_integers(w, (0,), 8)
    assert not isinstance(made, str) and made.scale is not None
    assert made.scale[0] == made.scale[65] == 1 and not made.codes[:, [0, 65]].any()
    assert made.scale.shape == (66,) and (np.abs(made.codes) <= 127).all()
    assert (np.abs(made.codes[:, 1:65]).max(0) == 127).all()


def test_blocks_do_not_change_codes() -> None:
    w = noise(5, AT_ONCE // 2 + 1)
    whole = to_integers(w, (1,), 8)
    rows = [to_integers(w[n : n + 1], (1,), 8) for n in range(5)]
    assert not isinstance(whole, str) and whole.scale is not None
    for n, row in enumerate(rows):
        assert not isinstance(row, str) and np.array_equal(row.codes[0], whole.codes[n])
    exact = to_bf16(w, (1,))
    assert not isinstance(exact, str)
    assert np.array_equal(exact.codes.view(np.uint16), w.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_unknown_form_is_refused() -> None:
    with pytest.raises(ArgumentError, match="bf16, int8, int16, int24, or f32"):
        optimize_narrow(parse(DOT), "int3")


@pytest.mark.parametrize("form", INTEGERS)
def test_the_error_is_known_before_rounding(form: str) -> None:
    w = noise(90, 70) * np.exp(3 * noise(70, seed=2))
    made = FORMS[form](w, (0,))
    assert not isinstance(made, str)
    assert expected_errors(w, (0,))[form] == pytest.approx(made.relative, rel=0.1)
    assert expected_errors(np.zeros_like(w), (0,))[form] == 0


@pytest.mark.parametrize("form", FORMS)
def test_blocks_of_large_arrays_are_narrowed_together(form: str) -> None:
    """By threads, each with its own rows; the report is that of the whole."""
    w = np.random.default_rng(2).standard_normal((1200, 500)).astype(np.float32)
    w[1100, 3] = 9
    made = FORMS[form](w, (0,))
    assert not isinstance(made, str)
    codes = made.codes.astype(np.float64)
    if made.lower is not None:
        codes = codes * 256 + made.lower
    back = codes if made.scale is None else codes * made.scale
    assert made.largest == np.abs(back - w).max()
    rms = [np.sqrt(np.mean(np.square(x))) for x in (back - w, w.astype(np.float64))]
    assert made.relative == pytest.approx(rms[0] / rms[1])


def test_parts_hold_every_code_of_24_bits() -> None:
    largest = (1 << 23) - 1
    codes = np.array([0, 1, -1, 255, 256, -255, -256, -257, largest, -largest], np.float32)
    made = to_integers(codes[:, None], (0,), 24)
    assert made.lower is not None and made.scale is not None and made.scale[0] == 1
    assert np.array_equal(made.codes * np.float32(256) + made.lower, codes[:, None])


BYTES = Target.parse("cpu -mcpu=x86-64-v4 -mattr=+avx512vnni")
WORDS = Target.parse("cpu -mcpu=x86-64")


@pytest.mark.parametrize("shape", [(32, 5), (96, 40), (70, 3), (7, 2)])
def test_blocks_of_4_bits(shape: tuple[int, int]) -> None:
    w = noise(*shape)
    w[:, 0] = 0
    w[: shape[0] // 2, 1] = 1e-41
    blocks, largest, relative = to_blocks(w)
    assert blocks.codes.max() <= 15 and blocks.packs
    assert blocks.scale.shape == (-(-shape[0] // 32), shape[1])
    assert blocks.nbytes == w.size // 2 + blocks.scale.nbytes
    scale = np.repeat(blocks.scale, 32, 0)[: shape[0]]
    error = (blocks.codes - np.float64(8)) * scale - w
    assert np.abs(error).max() == pytest.approx(largest)
    assert np.sqrt(np.square(error).sum() / np.square(w).sum()) == pytest.approx(relative)
    assert 0.03 < relative < 0.13
    assert (error[:, 0] == 0).all() and (scale[:, 0] == 0).all()


def test_blocks_of_the_largest_numbers_of_the_least_and_of_none() -> None:
    w = noise(32, 3)
    w *= np.float32([3e38, 9.41e-38, 0]) / np.abs(w).max(0)
    blocks, largest, relative = to_blocks(w)
    assert np.isfinite(blocks.scale).all() and largest < 3e38 / 12 and 0.03 < relative < 0.13
    error = np.abs((blocks.codes - np.float64(8)) * blocks.scale - w).max(0)
    assert (error <= np.abs(w).max(0)).all()


@pytest.mark.parametrize("target", [BYTES, WORDS])
def test_products_of_4_bits_round_rows_where_the_processor_multiplies_bytes(target: Target) -> None:
    w, x = noise(72, 80), noise(3, 80, seed=1)
    module = freeze(parse(DOT), {1: w})
    new, (row,) = optimize_narrow(module, "int4", target)
    (product,) = (i for i in new.entry.instructions if i.opcode == "dot")
    assert [o.array.dtype for o in product.operands] == ([s8, u8] if target is BYTES else [f32] * 2)
    assert (row.form, row.before, row.after) == ("int4", w.nbytes, w.size // 2 + 3 * 72 * 4)
    expected = evaluate(module, [x])
    error = np.sqrt(np.square(evaluate(new, [x]) - expected).mean() / np.square(expected).mean())
    assert error == pytest.approx(row.relative, rel=0.3)


@pytest.mark.parametrize(
    ("text", "shape", "number"),
    [(LEFT, (72, 80), 0), (BATCH, (2, 64, 40), 1), (CONV, (3, 3, 16, 33), 1)],
)
def test_what_is_not_in_blocks_has_8_bits(text: str, shape: tuple[int, ...], number: int) -> None:
    _, (row,) = narrowed(text, noise(*shape), "int4", number)
    assert row.form == "int8" and not row.kept


def test_4_bits_of_what_has_no_codes() -> None:
    w = noise(72, 80)
    w[3, 3] = np.nan
    _, (row,) = narrowed(DOT, w, "int4")
    assert row.kept == "it contains NaN"
