"""Loads of lanes in any order, some of them inactive: the right elements, and no others."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.driver.stages import stage_text
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.targets.registry import emit
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.loop.build import add, compare, const, floordiv, mul
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, If, Kind, Load, Store, Var
from nestwright.ir.target import Target

SIZE = 256
TARGETS = [t for t in map(Target.parse, ("cpu", "cpu -mcpu=haswell")) if t.is_host]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", ["f32", "s8", "pred"])
@pytest.mark.parametrize("lanes", [16, 13])
@pytest.mark.parametrize("step", [-1, 1, -2, 2, 0])
def test_lanes_of_any_step(step: int, lanes: int, dtype: str, target: Target) -> None:
    """``x[k] = y[first + step k]``, of elements up to the end of ``y`` and from its start on."""
    y, x = (Buffer(n, (SIZE,), BY_NAME[dtype]) for n in "yx")
    k, place = Var("k"), abs(step) * (lanes - 1)
    for first in {0 if step >= 0 else place, SIZE - 1 - (place if step >= 0 else 0)}:
        load = Load(y, (add(mul(k, step), first),))
        body = For(k, Const(lanes), Store(x, (k,), load), Kind.VECTOR)
        given = np.random.default_rng(0).integers(0, 100, SIZE).astype(to_numpy(y.dtype))
        found = np.zeros(SIZE, given.dtype)
        code = compile_flat(Func("lanes", (y, x), 1, body), target)
        NativeFunc.load(code).run_at([a.ctypes.data for a in (given, found)])
        np.testing.assert_array_equal(found[:lanes], given[first + step * np.arange(lanes)])
        assert not found[lanes:].any()


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "pred"])
@pytest.mark.parametrize(("step", "first", "size"), [(64, 3, 192), (64, 0, 190), (12, 1, 192)])
def test_lanes_of_known_places(
    step: int, first: int, size: int, dtype: str, target: Target
) -> None:
    """``x[32 i + k] = y[step i + 4 (k // 4) + first]``: of one vector, or gathered."""
    y, x = Buffer("y", (size,), BY_NAME[dtype]), Buffer("x", (96,), BY_NAME[dtype])
    i, k = Var("i"), Var("k")
    at = add(add(mul(i, step), mul(floordiv(k, 4), 4)), first)
    body = For(k, Const(32), Store(x, (add(mul(i, 32), k),), Load(y, (at,))), Kind.VECTOR)
    func = Func("places", (y, x), 1, For(i, Const(3), body))
    given = np.random.default_rng(0).integers(0, 2, size).astype(to_numpy(y.dtype))
    found = np.zeros(96, given.dtype)
    NativeFunc.load(compile_flat(func, target)).run_at([a.ctypes.data for a in (given, found)])
    k_, i_ = np.arange(32), np.arange(3)[:, None]
    np.testing.assert_array_equal(found, given[(step * i_ + k_ // 4 * 4 + first).ravel()])
    one = step % 32 == 0 and size % 32 == 0
    assert ("gather" in emit(func, target)) == (not one)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("lanes", [16, 13])
@pytest.mark.parametrize("on", [[], [3], [0, 12]])
def test_one_element_is_stored_if_a_lane_is_on(on: list[int], lanes: int, target: Target) -> None:
    """``x[0] = 7`` in the lanes of a mask: once, or not at all."""
    y, x = (Buffer(n, (16,), BY_NAME["s32"]) for n in "yx")
    k = Var("k")
    stored = Store(x, (const(0),), Const(7, x.dtype))
    body = If(compare("ne", Load(y, (k,)), Const(0, y.dtype)), stored)
    mask, found = np.zeros(16, np.int32), np.zeros(16, np.int32)
    mask[on] = 1
    loop = For(k, Const(lanes), body, Kind.VECTOR)
    code = compile_flat(Func("uniform", (y, x), 1, loop), target)
    NativeFunc.load(code).run_at([a.ctypes.data for a in (mask, found)])
    assert found.tolist() == [7 * bool(on)] + 15 * [0]


def padded(dims: str, padding: str, dtype: str) -> HloModule:
    return parse(f"""HloModule padded
ENTRY e {{
  x = {dtype}[{dims}] parameter(0)
  seven = {dtype}[] constant(7)
  ROOT r = pad(x, seven), padding={padding}
}}""")


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", ["f32", "s8", "f64", "bf16"])
@pytest.mark.parametrize(
    ("dims", "padding"),
    [("3,50", "0_0x1_1"), ("2,3,37", "0_0x1_2x5_0"), ("70", "-3_20"), ("4,3", "1_1x17_16")],
)
def test_padded_rows(dims: str, padding: str, dtype: str, target: Target) -> None:
    module = padded(dims, padding, dtype)
    (x,) = random_arguments(module.entry)
    np.testing.assert_array_equal(build(module, target)(x), evaluate(module, [x]))


REFLECTED = """HloModule reflected
ENTRY e {{
  x = {dtype}[{rows},{columns}] parameter(0)
  a = {dtype}[{rows},3] slice(x), slice={{[0:{rows}], [1:4]}}
  b = {dtype}[{rows},3] reverse(a), dimensions={{1}}
  c = {dtype}[{rows},2] slice(x), slice={{[0:{rows}], [{columns}-3:{columns}-1]}}
  d = {dtype}[{rows},2] reverse(c), dimensions={{1}}
  y = {dtype}[{rows},{columns}+5] concatenate(b, x, d), dimensions={{1}}
  f = {dtype}[2,{columns}+5] slice(y), slice={{[1:3], [0:{columns}+5]}}
  g = {dtype}[2,{columns}+5] reverse(f), dimensions={{0}}
  ROOT r = {dtype}[{rows}+2,{columns}+5] concatenate(g, y), dimensions={{0}}
}}"""


def reflected(rows: int, columns: int, dtype: str) -> HloModule:
    """Rows with reflected edges of 3 and 2 columns, and two reflected rows above."""
    text = REFLECTED.format(rows=rows, columns=columns, dtype=dtype)
    return parse(re.sub(r"(\d+)([+-]\d+)", lambda m: str(int(m[1]) + int(m[2])), text))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", ["f32", "s8", "f64", "bf16", "pred"])
@pytest.mark.parametrize("columns", [4, 13, 29, 43, 80])
def test_reflected_edges(columns: int, dtype: str, target: Target) -> None:
    module = reflected(7, columns, dtype)
    (x,) = random_arguments(module.entry)
    np.testing.assert_array_equal(build(module, target)(x), evaluate(module, [x]))


@pytest.mark.parametrize(
    ("spec", "dtype"), [("znver4", "f32"), ("znver4", "s16"), ("haswell", "f32")]
)
def test_reflected_edges_are_one_pass_without_gathers(spec: str, dtype: str) -> None:
    module = reflected(40, 56, dtype)
    assert stage_text(module, "cpu", "te").count("alloc") == 0
    asm = stage_text(module, f"cpu -mcpu={spec}", "asm")
    assert "gather" not in asm
    assert asm.count("nw_parallel@PLT") <= 1


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [("znver4", "f32"), ("znver4", "s16"), ("haswell", "f32")],
)
def test_lanes_inside_are_loaded_as_neighbors(spec: str, dtype: str) -> None:
    """Each lane at an end has a clamped index of its own, but those inside are neighbors."""
    asm = stage_text(padded("30,70", "1_1x3_1", dtype), f"cpu -mcpu={spec}", "asm")
    assert "gather" not in asm
    assert ("maskmov" if spec == "haswell" else "{%k") in asm
