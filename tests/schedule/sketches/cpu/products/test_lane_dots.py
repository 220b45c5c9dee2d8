"""Products of bytes and of bf16, several terms per lane: results, and which instruction."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import PreparedModule, build
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.arrays import Array
from nestwright.ir.comparison import compare
from nestwright.ir.dtypes import bf16, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.fuse.groups import Group
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

DOT = """HloModule bytes
ENTRY main {
  x = u8[ROWS,DEEP] parameter(0)
  w = s8[DEEP,WIDE] parameter(1)
  d = s32[ROWS,WIDE] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT f = f32[ROWS,WIDE] convert(d)
}
"""
BF16 = DOT.replace("u8[", "bf16[").replace("s8[", "bf16[").replace("s32[", "f32[")
SIGNED = DOT.replace("u8[", "s8[")
TURNED = DOT.replace("s8[DEEP", "U8[DEEP").replace("u8[", "s8[").replace("U8[", "u8[")
CONV = """HloModule windows
ENTRY main {
  x = u8[2,6,5,8] parameter(0)
  w = s8[3,3,8,37] parameter(1)
  ROOT y = s32[2,6,5,37] convolution(x, w), window={size=3x3 pad=1_1x1_1},
      dim_labels=b01f_01io->b01f
}
"""
VNNI = "cpu -mcpu=cooperlake -threads=2"
AVX2 = "cpu -mcpu=haswell -threads=2"
AVX512 = "cpu -mcpu=skylake-avx512 -threads=2"
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1"
OLD_ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


def text(rows: int, deep: int, wide: int, form: str = DOT) -> str:
    named = {"ROWS": rows, "DEEP": deep, "WIDE": wide}
    made = form
    for word, value in named.items():
        made = made.replace(word, str(value))
    return made


def operands(rows: int, deep: int, wide: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (rows, deep)).astype(np.uint8)
    w = rng.integers(-128, 128, (deep, wide)).astype(np.int8)
    x[0], w[:, 0] = 255, -128  # the largest products
    return x, w


def groups(made: PreparedModule) -> Iterable[Group]:
    return made.groups.distinct.values()


def sketches(made: PreparedModule) -> tuple[str, ...]:
    names = []
    for group in groups(made):
        func = lower_group(group.computation, group.name)
        names += [s.name for s in generate(func, made.target)]
    return tuple(names)


@pytest.mark.parametrize("rows", [1, 5, 17])
@pytest.mark.parametrize(("deep", "wide"), [(4, 16), (24, 33), (52, 130), (30, 48)])
def test_integers_are_exact(rows: int, deep: int, wide: int) -> None:
    x, w = operands(rows, deep, wide)
    expected = (x.astype(np.int32) @ w.astype(np.int32)).astype(np.float32)
    module = parse(text(rows, deep, wide))
    assert np.array_equal(build(module, "cpu -threads=2", constants={1: w})(x), expected)
    assert np.array_equal(build(module, "cpu -threads=2")(x, w), expected)


@pytest.mark.parametrize("rows", [1, 5, 17])
@pytest.mark.parametrize(("deep", "wide"), [(4, 16), (24, 33), (30, 48)])
def test_bytes_without_a_sign_may_be_the_lanes_own(rows: int, deep: int, wide: int) -> None:
    w, x = (a.T.copy() for a in operands(wide, deep, rows))
    expected = (x.astype(np.int32) @ w.astype(np.int32)).astype(np.float32)
    module = parse(text(rows, deep, wide, TURNED))
    assert np.array_equal(build(module, "cpu -threads=2", constants={1: w})(x), expected)
    assert np.array_equal(build(module, "cpu -threads=2")(x, w), expected)


@pytest.mark.parametrize("left", ["N", "T"])
@pytest.mark.parametrize("right", ["N", "T"])
@pytest.mark.parametrize("shape", [(0, 17, 24, 33), (3, 16, 52, 18), (2, 40, 36, 17)])
def test_operands_in_any_order(left: str, right: str, shape: tuple[int, ...]) -> None:
    """Of codes with and without a sign, in turn."""
    batch, rows, deep, wide = shape
    codes: Any = np.int8 if (left == right) == (batch == 3) else np.uint8
    rng, limits = np.random.default_rng(0), np.iinfo(codes)
    x = rng.integers(limits.min, limits.max + 1, (max(batch, 1), rows, deep)).astype(codes)
    w = rng.integers(-128, 128, (max(batch, 1), deep, wide)).astype(np.int8)
    x[:, 0], w[:, :, 0] = limits.min, -128
    expected = x.astype(np.int32) @ w.astype(np.int32)
    x = np.ascontiguousarray(x.swapaxes(1, 2)) if left == "T" else x
    w = np.ascontiguousarray(w.swapaxes(1, 2)) if right == "T" else w
    if not batch:
        x, w, expected = x[0], w[0], expected[0]
    module = parse(ordered(x, w, expected, left, right))
    assert np.array_equal(build(module, "cpu -threads=2")(x, w), expected)


def ordered(x: Array, w: Array, result: Array, left: str, right: str) -> str:
    """Return a dot of operands whose last two dimensions are transposed or not."""
    lead = x.ndim - 2
    names = {np.dtype(np.int8): "s8", np.dtype(np.uint8): "u8", np.dtype(np.int32): "s32"}
    x_, w_, y_ = (f"{names[a.dtype]}[{','.join(map(str, a.shape))}]" for a in (x, w, result))
    batch = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if lead else ""
    terms = lead + (left == "N"), lead + (right == "T")
    return f"""HloModule ordered
ENTRY main {{
  x = {x_} parameter(0)
  w = {w_} parameter(1)
  ROOT d = {y_} dot(x, w), {batch}lhs_contracting_dims={{{terms[0]}}},
      rhs_contracting_dims={{{terms[1]}}}
}}
"""


@pytest.mark.parametrize("codes", ["u8", "s8"])
@pytest.mark.parametrize(
    ("window", "rows", "columns", "groups"),
    [
        ("size=3x3 pad=1_1x1_1", 6, 5, 1),
        ("size=3x3 stride=2x2 pad=0_1x1_0", 3, 2, 1),
        ("size=3x3 pad=2_2x2_2 rhs_dilate=2x2", 6, 5, 1),
        ("size=3x3 pad=1_1x1_1", 6, 5, 8),
    ],
)
def test_convolutions_of_bytes(
    codes: str, window: str, rows: int, columns: int, groups: int
) -> None:
    dtype = {"u8": np.uint8, "s8": np.int8}[codes]
    rng = np.random.default_rng(1)
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (2, 6, 5, 8)).astype(dtype)
    wide = 37 if groups == 1 else 40
    w = rng.integers(-128, 128, (3, 3, 8 // groups, wide)).astype(np.int8)
    made = CONV.replace("u8[", f"{codes}[").replace("3,3,8,37", f"3,3,{8 // groups},{wide}")
    made = made.replace("2,6,5,37", f"2,{rows},{columns},{wide}")
    made = made.replace("size=3x3 pad=1_1x1_1", window)
    made = made.replace("->b01f", f"->b01f, feature_group_count={groups}")
    exe = build(parse(made), "cpu -threads=2", constants={1: w})
    assert np.array_equal(exe(x), evaluate(parse(made), [x, w]))


@pytest.mark.parametrize("rows", [1, 5, 17])
@pytest.mark.parametrize(
    ("deep", "wide", "results"),
    [
        (2, 16, ["bf16", "f32", "bf16"]),
        (24, 33, ["f32", "bf16", "f32"]),
        (50, 130, ["bf16", "f32", "bf16"]),
        (31, 48, ["f32", "bf16", "f32"]),
    ],
)
def test_products_of_bf16(rows: int, deep: int, wide: int, results: list[str]) -> None:
    rng, result = np.random.default_rng(0), results[[1, 5, 17].index(rows)]
    narrow = to_numpy(bf16)
    x = rng.standard_normal((rows, deep)).astype(narrow)
    w = rng.standard_normal((deep, wide)).astype(narrow)
    x[0, 0], w[1, 3] = np.inf, np.nan
    made = BF16.replace("f = f32[", f"f = {result}[")
    module = parse(text(rows, deep, wide, made))
    found = build(module, "cpu -threads=2", constants={1: w})(x)
    assert compare(0, found, evaluate(module, [x, w])).ok


@pytest.mark.parametrize("wide", [2, 16, 17, 36, 50, 135])
def test_products_of_bf16_that_are_not_frozen(wide: int) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(to_numpy(bf16)) for s in ((9, 34), (34, wide)))
    x[0, 0], w[1, 1] = np.inf, np.nan
    module = parse(text(9, 34, wide, BF16))
    assert compare(0, build(module, "cpu -threads=2")(x, w), evaluate(module, [x, w])).ok


@pytest.mark.parametrize(
    ("form", "instruction"), [(DOT, "vpdpbusd"), (SIGNED, "vpdpbusd"), (BF16, "vdpbf16ps")]
)
def test_weights_that_are_not_frozen_are_packed_by_whole_vectors(
    form: str, instruction: str
) -> None:
    asm = stage_text(parse(text(24, 64, 100, form)), "cpu -mcpu=znver5 -threads=1", "asm")
    assert not re.search(r"\s(vp?scatter|vpinsr|vpextr|vpmulld)", asm)
    widths = {m[1] for m in re.finditer(rf"\s{instruction}\s.*%([xyz])mm", asm)}
    assert widths == {"x", "z"}  # 96 columns, and 4 that are left over
    assert not innermost_stack_accesses(asm, instruction)


@pytest.mark.parametrize(
    ("spec", "form", "instruction", "lanes"),
    [
        (VNNI, DOT, "vpdpbusd", 16),
        (VNNI, SIGNED, "vpdpbusd", 16),
        (VNNI, TURNED, "vpdpbusd", 16),
        ("cpu -mcpu=alderlake", DOT, "vpdpbusd", 8),
        ("cpu -mcpu=znver5", BF16, "vdpbf16ps", 16),
        (AVX2, DOT, "vpmaddwd", 8),
        (AVX2, SIGNED, "vpmaddwd", 8),
        (AVX2, TURNED, "vpmaddwd", 8),
        (AVX512, SIGNED, "vpmaddwd", 16),
        (ARM, DOT, "usdot", 4),
        (ARM, TURNED, "usdot", 4),
        (ARM, SIGNED, "sdot", 4),
        (OLD_ARM, SIGNED, "sdot", 4),
        (ARM, BF16, "bfdot", 4),
    ],
)
def test_one_instruction_for_the_terms_of_each_lane(
    spec: str, form: str, instruction: str, lanes: int
) -> None:
    kinds = {BF16: to_numpy(bf16), TURNED: np.dtype(np.uint8)}
    w = operands(8, 64, 96)[1].astype(kinds.get(form, np.int8))
    module = parse(text(8, 64, 96, form))
    asm = stage_text(module, spec, "asm", constants={1: w})
    made = PreparedModule(module, spec, {1: w})
    found = [generate(lower_group(g.computation, g.name), made.target)[0] for g in groups(made)]
    (default,) = (s.default for s in found if s.name in ("quads@3", "pairs@3"))
    assert default["lanes"] == lanes
    assert len(re.findall(rf"\s{instruction}\s", asm)) == default["rows"] * default["vectors"]
    assert "vpmulld" not in asm
    assert not innermost_stack_accesses(asm, instruction)


def innermost_stack_accesses(asm: str, instruction: str) -> list[str]:
    """Return the accesses of the stack in the loop body that an instruction is in."""
    bodies = re.split(r"^\.?LBB\w+:", asm, flags=re.M)
    hot = max(bodies, key=lambda b: b.count(instruction))
    hot = hot[: hot.rindex(instruction)]
    return [line for line in hot.splitlines() if re.search(r"\(%rsp|\[sp\b", line)]


def test_what_the_processor_or_the_shape_does_not_allow_is_tiled() -> None:
    fits = operands(4, 64, 48)[1]
    assert "quads@3" in sketches(PreparedModule(parse(text(4, 64, 48)), VNNI, {1: fits}))
    for spec, deep, frozen in (
        ("cpu -mcpu=nehalem", 64, True),
        (OLD_ARM, 64, True),
        (VNNI, 62, True),
        (VNNI, 64, False),
        (AVX2, 63, True),
    ):
        w = operands(4, deep, 48)[1]
        made = PreparedModule(parse(text(4, deep, 48)), spec, {1: w} if frozen else None)
        assert not {"quads@3", "pairs@3"} & {*sketches(made)}


def test_every_choice_computes_the_same() -> None:
    x, w = operands(7, 20, 70)
    made = PreparedModule(parse(text(7, 20, 70)), "cpu -threads=2", {1: w})
    if "quads@3" not in sketches(made):
        pytest.skip("this processor has no such instructions")
    ((key, group),) = made.groups.distinct.items()
    func = lower_group(group.computation, group.name)
    (sketch,) = (s for s in generate(func, made.target) if s.name == "quads@3")
    points = list(sketch.points())
    expected = (x.astype(np.int32) @ w.astype(np.int32)).astype(np.float32)
    taken = points[:: max(1, len(points) // 13)]
    assert {c["chunks"] for c in taken} > {1} and {c["order"] for c in taken} == {"column", "row"}
    for choices in taken:
        schedule = Schedule(func)
        sketch.apply(schedule, choices)
        assert np.array_equal(made.build({key: schedule.trace})(x), expected), choices


NARROW = DOT.replace("ROOT f = f32", "f = f32").replace(
    "convert(d)\n", "convert(d)\n  ROOT q = u8[ROWS,WIDE] convert(f)\n"
)


@pytest.mark.parametrize("wide", [32, 48, 96, 128, 192])
def test_threads_do_not_write_the_same_lines(wide: int) -> None:
    """Results of one byte are shared by rows, unless panels are whole cache lines."""
    w = operands(2048, 16, wide)[1]
    made = PreparedModule(parse(text(2048, 16, wide, NARROW)), VNNI, {1: w})
    (group,) = groups(made)
    chosen = generate(lower_group(group.computation, group.name), made.target)[0].default
    assert chosen["parallel"] and (chosen["order"] == "row" or chosen["vectors"] % 4 == 0)
    assert chosen["order"] == "column" or chosen["chunks"] > 1


MEASURED = {
    512: {(8, 2): 588, (6, 4): 586, (10, 2): 589, (8, 3): 623, (6, 3): 625, (8, 1): 830},
    1024: {(12, 2): 4736, (8, 2): 4760, (8, 3): 4879, (13, 1): 6548, (16, 1): 6421, (28, 1): 10351},
}
"""Microseconds on two cores of a Zen 4 by rows and vectors, of squares of bf16."""


@pytest.mark.parametrize("size", list(MEASURED))
def test_a_tile_is_estimated_as_it_was_measured(size: int) -> None:
    """A number that all lanes share takes as many turns to load as a vector of others."""
    made = PreparedModule(parse(text(size, size, size, BF16)), "cpu -mcpu=znver4 -threads=2")
    (group,) = groups(made)
    func = lower_group(group.computation, "square")
    (sketch,) = (s for s in generate(func, made.target) if s.name == "pairs@3")
    told = {
        tile: sketch.cost({**sketch.default, "rows": tile[0], "vectors": tile[1]})
        for tile in MEASURED[size]
    }
    best = min(told, key=lambda t: told[t])
    assert MEASURED[size][best] <= 1.02 * min(MEASURED[size].values())
    slow = {t for t, us in MEASURED[size].items() if us > 1.2 * min(MEASURED[size].values())}
    assert {t for t in told if told[t] > 1.2 * told[best]} == slow
    assert sketch.default["vectors"] > 1
