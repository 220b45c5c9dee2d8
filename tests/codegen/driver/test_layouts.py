"""Layouts of parameters and results: arrays are taken and given as the module's header says."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nestwright.codegen.driver.artifact import load
from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.stages import stage_text
from nestwright.codegen.plan.signature import ArraySpec
from nestwright.codegen.runtime.arguments import as_seen, as_stored
from nestwright.ir.dtypes import f32
from nestwright.ir.errors import ArgumentError
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.layouts import entry_orders
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.text import parse

COLUMNS = """HloModule m, entry_computation_layout={(f32[3,4]{0,1}, f32[4,5]{1,0})->f32[3,5]{0,1}}
ENTRY e {
  x = f32[3,4] parameter(0)
  w = f32[4,5] parameter(1)
  ROOT d = f32[3,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""

TUPLES = """HloModule m
ENTRY e {
  p = (f32[2,3,4]{0,2,1}, s32[], (bf16[6,2]{0,1}, pred[3]{0})) parameter(0)
  x = f32[2,3,4]{0,2,1} get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  q = (bf16[6,2]{0,1}, pred[3]{0}) get-tuple-element(p), index=2
  h = bf16[6,2]{0,1} get-tuple-element(q), index=0
  y = f32[2,3,4]{0,2,1} negate(x)
  ROOT t = (bf16[6,2]{0,1}, (f32[2,3,4]{0,2,1}, s32[]), (bf16[6,2]{0,1}, pred[3]{0})) tuple(h, s, q)
}""".replace("  ROOT", "  s = (f32[2,3,4]{0,2,1}, s32[]) tuple(y, n)\n  ROOT")


def draw(seed: int, *dims: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


@pytest.fixture(scope="module")
def columns() -> HloModule:
    return parse(COLUMNS)


def test_results_come_in_the_layout_that_the_header_says(columns: HloModule) -> None:
    exe, x, w = build(columns), draw(0, 3, 4), draw(1, 4, 5)
    expected = evaluate(columns, [x, w])
    for first in (x, np.asfortranarray(x), draw(0, 3, 4)[:, ::-1][:, ::-1]):
        result = exe(first, w)
        assert result.shape == (3, 5) and result.strides == (4, 12)
        np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_square_array_is_not_taken_for_its_transpose() -> None:
    text = "HloModule m, entry_computation_layout={(f32[4,4]{0,1})->f32[4,4]{1,0}}\nENTRY e {"
    exe = build(parse(text + "x = f32[4,4] parameter(0)\nROOT y = f32[4,4] negate(x) }"))
    x = draw(3, 4, 4)
    np.testing.assert_array_equal(exe(x), -x)
    np.testing.assert_array_equal(exe(x.T), -x.T)


def test_an_argument_that_lies_so_is_taken_where_it_is() -> None:
    spec = ArraySpec("x", f32, (3, 4), (1, 0))
    x = np.asfortranarray(draw(0, 3, 4))
    assert as_stored(x, spec).flags.c_contiguous and np.shares_memory(as_stored(x, spec), x)
    np.testing.assert_array_equal(as_seen(as_stored(x, spec), spec), x)


def test_out_gets_the_results_whatever_its_strides(columns: HloModule) -> None:
    exe, x, w = build(columns), draw(0, 3, 4), draw(1, 4, 5)
    expected = exe(x, w)
    for out in (np.empty((3, 5), "f4"), np.empty((3, 5), "f4", order="F"), np.empty((6, 5), "f4")):
        target = out[::2] if len(out) == 6 else out
        assert exe(x, w, out=target) is target
        np.testing.assert_array_equal(target, expected)
    with pytest.raises(ArgumentError):
        exe(x, w, out=np.empty((5, 3), "f4"))
    with pytest.raises(ArgumentError):
        exe(x.T.copy(), w)


def test_layouts_inside_tuples(tmp_path: Path) -> None:
    module = parse(TUPLES)
    assert entry_orders(module).params == ((1, 2, 0), (), (1, 0), ())
    x, h = draw(0, 2, 3, 4), draw(1, 6, 2).astype(ml_dtypes.bfloat16)
    flags = np.array([True, False, True])
    built = build(module)
    built.save(tmp_path / "m.nw")
    for exe in (built, load(tmp_path / "m.nw")):
        first, (second, number), (third, kept) = exe((x, np.int32(7), (h, flags)))
        np.testing.assert_array_equal(second, -x)
        assert second.strides == (4, 32, 8) and first.strides == third.strides == (2, 12)
        np.testing.assert_array_equal(first.astype("f4"), h.astype("f4"))
        np.testing.assert_array_equal(third.astype("f4"), h.astype("f4"))
        assert number == 7 and (kept == flags).all()


def test_the_optimized_module_is_row_major_and_the_plan_says_how_arrays_lie(
    columns: HloModule,
) -> None:
    optimized = parse(stage_text(columns, "cpu", "optimized"))
    assert optimized.entry.parameters[0].array.dims == (4, 3)
    assert entry_orders(optimized).results == ((),)
    assert "result 0: f32[3,5]{0,1}" in stage_text(columns, "cpu", "plan")


def test_frozen_parameters_leave_the_other_layouts(columns: HloModule) -> None:
    x, w = draw(0, 3, 4), draw(1, 4, 5)
    frozen = build(columns, constants={1: w})
    np.testing.assert_allclose(frozen(x), x @ w, rtol=1e-5)
    assert frozen.plan.params[0].order == frozen.plan.results[0].order == (1, 0)
    other = build(columns, constants={"x": x})
    np.testing.assert_allclose(other(w), x @ w, rtol=1e-5)
    assert other.plan.params[0].order == ()


def test_layouts_on_a_simulated_gpu(columns: HloModule) -> None:
    exe, x, w = build(columns, "cuda-sim"), draw(0, 3, 4), draw(1, 4, 5)
    result = exe(np.asfortranarray(x), w)
    assert result.strides == (4, 12)
    np.testing.assert_allclose(result, x @ w, rtol=1e-5)
