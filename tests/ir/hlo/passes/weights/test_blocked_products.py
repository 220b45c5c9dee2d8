"""Weights with a scale for each block of rows: which are recognized, and what becomes of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, DType, bf16, f16, f32, s8, to_numpy, u8
from nestwright.ir.hlo import freeze, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Instruction
from nestwright.ir.hlo.passes.pipeline import finish, optimize
from nestwright.ir.hlo.passes.weights.blocks.codes import in_blocks
from nestwright.ir.hlo.patterns import nibbles
from nestwright.ir.hlo.patterns.match import splat
from nestwright.ir.hlo.rewrite import assemble, constant, with_entry
from nestwright.ir.target import Target

TARGET = Target.parse("cpu -mcpu=x86-64-v4")
LOOSE = Target.parse("cpu -mcpu=x86-64-v4 -accuracy=0.01")
ROWS, BLOCKS, SIZE, COLUMNS = 3, 4, 16, 20
TERMS = BLOCKS * SIZE

PLAIN = f"""HloModule blocks
ENTRY main {{
  x = f32[{ROWS},{TERMS}] parameter(0)
  c = TYPE[{TERMS},{COLUMNS}] parameter(1)
  s = f32[{BLOCKS},{COLUMNS}] parameter(2)
  z = f32[{BLOCKS},{COLUMNS}] parameter(3)
  f = f32[{TERMS},{COLUMNS}] convert(c)
  zs = f32[{BLOCKS},{SIZE},{COLUMNS}] broadcast(z), dimensions={{0,2}}
  zr = f32[{TERMS},{COLUMNS}] reshape(zs)
  d = f32[{TERMS},{COLUMNS}] subtract(f, zr)
  ss = f32[{BLOCKS},{SIZE},{COLUMNS}] broadcast(s), dimensions={{0,2}}
  sr = f32[{TERMS},{COLUMNS}] reshape(ss)
  w = f32[{TERMS},{COLUMNS}] multiply(d, sr)
  ROOT y = f32[{ROWS},{COLUMNS}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
TURNED = f"""HloModule turned
ENTRY main {{
  x = f32[{ROWS},{TERMS}] parameter(0)
  c = u8[{COLUMNS},{BLOCKS},{SIZE // 2}] parameter(1)
  s = f32[{COLUMNS},{BLOCKS}] parameter(2)
  four = u8[] constant(4)
  fours = u8[{COLUMNS},{BLOCKS},{SIZE // 2}] broadcast(four), dimensions={{}}
  mask = u8[] constant(15)
  masks = u8[{COLUMNS},{BLOCKS},{SIZE // 2}] broadcast(mask), dimensions={{}}
  low = u8[{COLUMNS},{BLOCKS},{SIZE // 2}] and(c, masks)
  high = u8[{COLUMNS},{BLOCKS},{SIZE // 2}] shift-right-logical(c, fours)
  a = u8[{COLUMNS},{BLOCKS},{SIZE // 2},1] reshape(low)
  b = u8[{COLUMNS},{BLOCKS},{SIZE // 2},1] reshape(high)
  both = u8[{COLUMNS},{BLOCKS},{SIZE // 2},2] concatenate(a, b), dimensions={{3}}
  f = f32[{COLUMNS},{BLOCKS},{SIZE // 2},2] convert(both)
  eight = f32[] constant(8)
  eights = f32[{COLUMNS},{BLOCKS},{SIZE // 2},2] broadcast(eight), dimensions={{}}
  d = f32[{COLUMNS},{BLOCKS},{SIZE // 2},2] subtract(f, eights)
  ss = f32[{COLUMNS},{BLOCKS},{SIZE // 2},2] broadcast(s), dimensions={{0,1}}
  w = f32[{COLUMNS},{BLOCKS},{SIZE // 2},2] multiply(ss, d)
  flat = f32[{COLUMNS},{TERMS}] reshape(w)
  t = f32[{TERMS},{COLUMNS}] transpose(flat), dimensions={{1,0}}
  ROOT y = f32[{ROWS},{COLUMNS}] dot(x, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


def codes(low: int, high: int, shape: tuple[int, ...] = (TERMS, COLUMNS)) -> Array:
    return np.random.default_rng(0).integers(low, high + 1, shape)


def scales(shape: tuple[int, ...] = (BLOCKS, COLUMNS)) -> Array:
    return np.random.default_rng(1).uniform(0.01, 0.03, shape).astype(np.float32)


def frozen(dtype: type[np.generic], low: int, high: int, zero: float | None = None) -> HloModule:
    text = PLAIN.replace("TYPE", {np.int8: "s8", np.uint8: "u8", np.int32: "s32"}[dtype])
    held = codes(low, high).astype(dtype)
    points = np.full((BLOCKS, COLUMNS), 0 if zero is None else zero, np.float32)
    points += zero is None and codes(low, high, points.shape)
    return freeze(parse(text), {1: held, 2: scales(), 3: points})


def weights(module: HloModule) -> Instruction:
    return optimize(module).entry.root.operands[1]


def rows(count: int = ROWS) -> Array:
    return np.random.default_rng(2).standard_normal((count, TERMS)).astype(np.float32)


def dots(module: HloModule) -> list[Instruction]:
    return [i for i in module.entry.instructions if i.opcode == "dot"]


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [(np.int8, -8, 7), (np.uint8, 0, 15), (np.int8, -128, 127), (np.uint8, 0, 255)],
)
def test_parts_of_the_weights_are_found(dtype: type[np.generic], low: int, high: int) -> None:
    module = frozen(dtype, low, high)
    found = in_blocks(weights(module))
    assert found is not None
    assert found.size == SIZE and found.codes.dtype == np.uint8
    assert found.codes.max() <= high - low
    assert np.array_equal(found.scale, scales())
    wide = (found.codes - np.repeat(found.zero, SIZE, 0)) * np.repeat(found.scale, SIZE, 0)
    expected = evaluate(module, [np.eye(TERMS, dtype=np.float32)[:ROWS]])
    assert np.allclose(wide[:ROWS], expected, rtol=1e-5)


def test_a_last_block_may_be_shorter() -> None:
    text = re.sub(rf"\b{TERMS}\b", str(TERMS - 6), PLAIN.replace("TYPE", "u8"))
    for name in "zr", "sr":
        whole = f"  {name} = f32[{TERMS - 6},{COLUMNS}] reshape({name[0]}s)"
        cut = f"slice({name}w), slice={{[0:{TERMS - 6}], [0:{COLUMNS}]}}"
        parts = f"  {name}w = f32[{TERMS},{COLUMNS}] reshape({name[0]}s)\n"
        text = text.replace(whole, f"{parts}  {name} = f32[{TERMS - 6},{COLUMNS}] {cut}")
    held = {1: codes(0, 15)[:-6].astype(np.uint8), 2: scales(), 3: 8 + 0 * scales()}
    module = freeze(parse(text), held)
    found = in_blocks(weights(module))
    assert found is not None
    assert found.size == SIZE and len(found.scale) == BLOCKS and len(found.codes) == TERMS - 6
    x = rows()[:, :-6]
    for target, error in (TARGET, 1e-5), (LOOSE, 5e-2):
        new, _ = finish(optimize(module), None, target)
        assert np.allclose(evaluate(new, [x]), evaluate(module, [x]), rtol=0, atol=error)


def test_one_zero_point_of_all_is_one_number() -> None:
    found = in_blocks(weights(frozen(np.uint8, 0, 15, 8.0)))
    assert found is not None
    assert found.zero.shape == (1, 1) and found.zero[0, 0] == 8


@pytest.mark.parametrize("target", [TARGET, LOOSE], ids=["exact", "loose"])
def test_columns_of_one_scale_are_cut_in_blocks(target: Target) -> None:
    text = PLAIN.replace("TYPE", "u8")
    held = {1: codes(0, 255).astype(np.uint8)}
    held |= {n: np.repeat(scales((1, COLUMNS)), BLOCKS, 0) * n for n in (2, 3)}
    module = freeze(parse(text), held)
    found = in_blocks(weights(module))
    assert found is not None
    assert found.size == TERMS // 2 and len(found.scale) == 2
    new, _ = finish(optimize(module), None, target)
    assert len(dots(new)) == 1
    x = rows()
    expected = evaluate(module, [x])
    error = np.sqrt(np.mean(np.square(evaluate(new, [x]) - expected)) / np.mean(expected**2))
    assert error < (1e-5 if target is TARGET else 0.01)


def test_codes_of_more_than_8_bits_are_none() -> None:
    assert in_blocks(weights(frozen(np.int32, -200, 200))) is None


def test_computed_codes_are_none() -> None:
    text = PLAIN.replace("TYPE", "s8")
    held = {2: scales(), 3: np.zeros((BLOCKS, COLUMNS), np.float32)}
    module = optimize(freeze(parse(text), held))
    assert in_blocks(module.entry.root.operands[1]) is None
    assert finish(module, None, TARGET)[0] is module


def test_scales_of_single_rows_are_no_blocks() -> None:
    w = constant(np.zeros((8, 8), np.float32))
    assert in_blocks(w) is None


@pytest.mark.parametrize("zero", [None, 0.0, 3.5])
@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(np.int8, -8, 7), (np.int8, -128, 127), (np.uint8, 0, 255)]
)
@pytest.mark.parametrize("target", [TARGET, LOOSE], ids=["exact", "loose"])
def test_products_of_blocks_are_right(
    dtype: type[np.generic], low: int, high: int, zero: float | None, target: Target
) -> None:
    module = frozen(dtype, low, high, zero)
    new, _ = finish(optimize(module), None, target)
    (product,) = dots(new)
    assert product.array.dims == (BLOCKS, ROWS, COLUMNS)
    x = rows()
    (expected,), (found,) = ((evaluate(m, [x]),) for m in (module, new))
    error = np.sqrt(np.mean(np.square(found - expected)) / np.mean(np.square(expected)))
    assert error < (1e-6 if target is TARGET else 0.01)
    assert (product.operands[0].array.dtype == s8) == (target is LOOSE)


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_floats_of_16_bits_are_f32_where_more_precision_is_allowed(dtype: DType) -> None:
    text = PLAIN.replace("TYPE", "u8").replace("f32[", f"{dtype}[")
    kind = to_numpy(dtype)
    held = {1: codes(0, 15).astype(np.uint8), 2: scales().astype(kind)}
    held[3] = codes(0, 15, (BLOCKS, COLUMNS)).astype(kind)
    module = optimize(freeze(parse(text), held))
    assert finish(module, None, TARGET, excess_precision=False)[0] is module
    new, _ = finish(module, None, TARGET)
    (product,) = dots(new)
    assert product.array.dtype == f32 and new.entry.root.array.dtype == dtype
    x = rows().astype(kind)
    expected, found = (np.asarray(evaluate(m, [x])).astype(np.float64) for m in (module, new))
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_a_difference_of_integers_that_wraps_is_what_it_wraps_to() -> None:
    wide = f"""  z8 = u8[{BLOCKS},{COLUMNS}] convert(z)
  zs = u8[{BLOCKS},{SIZE},{COLUMNS}] broadcast(z8), dimensions={{0,2}}
  zr = u8[{TERMS},{COLUMNS}] reshape(zs)
  d8 = u8[{TERMS},{COLUMNS}] subtract(c8, zr)
  d = f32[{TERMS},{COLUMNS}] convert(d8)
"""
    before, after = PLAIN.index("  f ="), PLAIN.index("  ss =")
    text = PLAIN[:before] + wide + PLAIN[after:]
    text = text.replace("c = TYPE", "c4 = u4").replace(
        "  z8 =", f"  c8 = u8[{TERMS},{COLUMNS}] convert(c4)\n  z8 =", 1
    )
    text = re.sub(rf"\b{COLUMNS}\b", "80", text)  # too large for the difference to be folded
    held = {1: codes(0, 15, (TERMS, 80)).astype(to_numpy(BY_NAME["u4"])), 2: scales((BLOCKS, 80))}
    held[3] = codes(0, 15, (BLOCKS, 80)).astype(np.float32)
    module = freeze(parse(text), held)
    new, _ = finish(optimize(module), None, TARGET)
    assert dots(new)[0].array.dims == (BLOCKS, ROWS, 80)
    assert np.allclose(evaluate(new, [rows()]), evaluate(module, [rows()]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "excess"), [("f8e4m3fn", True), ("f8e4m3fn", False), ("bf16", False)]
)
def test_weights_that_are_rounded_on_purpose_stay_rounded(kind: str, excess: bool) -> None:
    text = PLAIN.replace("TYPE", "u8").replace(
        f"w = f32[{TERMS},{COLUMNS}] multiply(d, sr)",
        f"""m = f32[{TERMS},{COLUMNS}] multiply(d, sr)
  r = {kind}[{TERMS},{COLUMNS}] convert(m)
  w = f32[{TERMS},{COLUMNS}] convert(r)""",
    )
    held = {1: codes(0, 15).astype(np.uint8), 2: scales(), 3: 8 + 0 * scales()}
    module = freeze(parse(text), held)
    new, _ = finish(optimize(module), "f32", TARGET, excess_precision=excess)
    assert np.allclose(evaluate(new, [rows()]), evaluate(module, [rows()]), rtol=1e-5, atol=1e-5)


def test_two_codes_of_4_bits_are_in_a_byte() -> None:
    module = freeze(
        parse(TURNED),
        {
            1: codes(0, 255, (COLUMNS, BLOCKS, SIZE // 2)).astype(np.uint8),
            2: scales((COLUMNS, BLOCKS)),
        },
    )
    new, _ = finish(optimize(module), None, TARGET)
    (product,) = dots(new)
    stored = nibbles.nibbles_of(product.operands[1].operands[0])
    assert stored is not None
    assert stored.opcode == "constant" and stored.array.dims == (BLOCKS, SIZE // 2, COLUMNS)
    x = rows()
    assert np.allclose(evaluate(new, [x]), evaluate(module, [x]), rtol=1e-5, atol=1e-5)


def test_signed_codes_of_8_bits_have_no_zero_points() -> None:
    new, _ = finish(optimize(frozen(np.int8, -128, 127, 0.0)), None, TARGET)
    (product,) = dots(new)
    assert product.operands[1].operands[0].array.dtype == s8
    assert not any(i.opcode == "subtract" for i in new.entry.instructions)


def test_rows_with_scales_of_their_own_are_multiplied_as_they_are() -> None:
    text = PLAIN.replace("TYPE", "s8").replace(
        f"x = f32[{ROWS},{TERMS}] parameter(0)",
        f"""q = s8[{ROWS},{BLOCKS},{SIZE}] parameter(0)
  t = f32[{ROWS},{BLOCKS}] parameter(4)
  qf = f32[{ROWS},{BLOCKS},{SIZE}] convert(q)
  tb = f32[{ROWS},{BLOCKS},{SIZE}] broadcast(t), dimensions={{0,1}}
  qt = f32[{ROWS},{BLOCKS},{SIZE}] multiply(qf, tb)
  x = f32[{ROWS},{TERMS}] reshape(qt)""",
    )
    held = {1: codes(-8, 7).astype(np.int8), 2: scales(), 3: codes(-3, 3, (BLOCKS, COLUMNS))}
    held[3] = held[3].astype(np.float32)
    module = freeze(parse(text), held)
    new, _ = finish(optimize(module), None, TARGET)
    (product,) = dots(new)
    assert [o.array.dtype for o in product.operands] == [s8, u8]
    q = np.random.default_rng(3).integers(-127, 128, (ROWS, BLOCKS, SIZE)).astype(np.int8)
    args = [q, scales((ROWS, BLOCKS))]
    assert np.allclose(evaluate(new, args), evaluate(module, args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_rows_that_have_no_codes(value: float) -> None:
    module = frozen(np.int8, -8, 7)
    new, _ = finish(optimize(module), None, LOOSE)
    x = rows()
    x[1] = value
    found = evaluate(new, [x])
    assert np.isfinite(found[[0, 2]]).all()
    assert (found[1] == 0).all() if value == 0 else np.isnan(found[1]).all()


def test_codes_are_taken_apart_as_they_were_put_together() -> None:
    found = codes(0, 15, (2, 6, 5)).astype(np.uint8)
    stored = nibbles.packed(found)
    assert stored.shape == (2, 3, 5)
    module = parse("HloModule m\nENTRY e { ROOT p = u8[2,3,5] parameter(0) }")
    apart = nibbles.unpacked(module.entry.root)
    assert splat(apart) is None and nibbles.nibbles_of(apart) is module.entry.root
    assert nibbles.nibbles_of(module.entry.root) is None
    made = with_entry(module, assemble("e", module.entry.parameters, apart))
    assert np.array_equal(evaluate(made, [stored]), found)
