"""StableHLO whose entry leaves sizes open, as JAX exports symbols: settled, or in buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError, ParseError, UnsupportedError
from nestwright.ir.frontends.declared import declared_inputs
from nestwright.ir.frontends.load import load
from nestwright.ir.hlo.interp.evaluate import evaluate

# The mean of tanh(x) over its rows, and those rows in one; x has a multiple of two rows.
TEXT = """module @open {
  func.func public @main(%x: tensor<?x3xf32>, %w: tensor<3xf32>)
      -> (tensor<3xf32>, tensor<?xf32>) {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %left = stablehlo.remainder %n, %two : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %even = stablehlo.compare EQ, %left, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%even, %n) {
      api_version = 2 : i32, error_message = "rows must be even, not {0}", has_side_effect = true
    } : (tensor<i1>, tensor<i32>) -> ()
    %r:2 = func.call @rows(%n, %x, %w) : (tensor<i32>, tensor<?x3xf32>, tensor<3xf32>)
      -> (tensor<3xf32>, tensor<?xf32>)
    return %r#0, %r#1 : tensor<3xf32>, tensor<?xf32>
  }
  func.func private @rows(%n: tensor<i32>, %x: tensor<?x3xf32>, %w: tensor<3xf32>)
      -> (tensor<3xf32>, tensor<?xf32>) {
    %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %three = stablehlo.constant dense<3> : tensor<1xi32>
    %sizes = stablehlo.concatenate %one, %three, dim = 0
      : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %ws = stablehlo.dynamic_broadcast_in_dim %w, %sizes, dims = [1]
      : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x3xf32>
    %p = stablehlo.multiply %x, %ws : tensor<?x3xf32>
    %y = stablehlo.tanh %p : tensor<?x3xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<?x3xf32>, tensor<f32>) -> tensor<3xf32>
    %f = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
    %fs = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %mean = stablehlo.divide %s, %fs : tensor<3xf32>
    %all = stablehlo.multiply %one, %three : tensor<1xi32>
    %flat = stablehlo.dynamic_reshape %y, %all : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<?xf32>
    return %mean, %flat : tensor<3xf32>, tensor<?xf32>
  }
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "open.mlir"
    made.write_text(TEXT)
    return made


def assert_right(model: Any, rows: int) -> None:
    rng = np.random.default_rng(rows)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((rows, 3), (3,)))
    mean, flat = model(x, w)
    np.testing.assert_allclose(mean, np.tanh(x * w).mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(flat, np.tanh(x * w).reshape(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("which", [0, "x"])
def test_sizes_are_settled_by_place_or_by_name(path: Path, which: int | str) -> None:
    for rows in (2, 6):
        assert_right(nw.build(path, shapes={which: (rows, None)}), rows)


@pytest.mark.parametrize("rule", ["exact", "buckets"])
def test_a_range_of_sizes(path: Path, rule: Any) -> None:
    model = nw.build(path, shapes={"x": (range(2, 17, 2), 3)}, rule=rule)
    for rows in (6, 4, 16):
        assert_right(model, rows)


def test_open_sizes_are_declared(path: Path) -> None:
    assert declared_inputs(path) == {"x": (None, 3), "w": (3,)}


@pytest.mark.parametrize(
    ("shapes", "error", "told"),
    [
        (None, UnsupportedError, r"`%x` of `main` .* its size has no bound"),
        ({0: (4, 5)}, ArgumentError, r"input 0 cannot have the shape \[4,5\]"),
        ({0: (4,)}, UnsupportedError, "its size has no bound"),
        ({0: (3, 3)}, ParseError, "rows must be even, not 3"),
    ],
)
def test_what_does_not_settle_them(path: Path, shapes: Any, error: type, told: str) -> None:
    with pytest.raises(error, match=told):
        nw.build(path, shapes=shapes)


# The sums of the rows up to each, as JAX exports a scan: rows are cut out at computed places. The
# sizes of an array that the loop makes are computed before it.
SCAN = """module @scan {
  func.func public @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %none = stablehlo.constant dense<0.0> : tensor<1x2xf32>
    %unit = stablehlo.constant dense<1.0> : tensor<f32>
    %two = stablehlo.constant dense<2> : tensor<1xi32>
    %rows = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %sizes = stablehlo.concatenate %rows, %two, dim = 0
      : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %sum:3 = stablehlo.while(%i = %zero, %s = %none, %out = %x)
      : tensor<i32>, tensor<1x2xf32>, tensor<?x2xf32>
    cond {
      %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %row = func.call @row(%x, %i) : (tensor<?x2xf32>, tensor<i32>) -> tensor<1x2xf32>
      %t = stablehlo.add %s, %row : tensor<1x2xf32>
      %new = stablehlo.dynamic_update_slice %out, %t, %i, %zero
        : (tensor<?x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<?x2xf32>
      %units = stablehlo.dynamic_broadcast_in_dim %unit, %sizes, dims = []
        : (tensor<f32>, tensor<2xi32>) -> tensor<?x2xf32>
      %same = stablehlo.multiply %new, %units : tensor<?x2xf32>
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %t, %same : tensor<i32>, tensor<1x2xf32>, tensor<?x2xf32>
    }
    return %sum#2 : tensor<?x2xf32>
  }
  func.func private @row(%x: tensor<?x2xf32>, %i: tensor<i32>) -> tensor<1x2xf32> {
    %zero = stablehlo.constant dense<0> : tensor<1xi32>
    %ones = stablehlo.constant dense<1> : tensor<2xi32>
    %sizes = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
    %at = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>
    %start = stablehlo.concatenate %at, %zero, dim = 0
      : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %end = stablehlo.add %start, %sizes : tensor<2xi32>
    %cut = stablehlo.real_dynamic_slice %x, %start, %end, %ones
      : (tensor<?x2xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> RESULT
    %row = stablehlo.reshape %cut : (RESULT) -> tensor<1x2xf32>
    return %row : tensor<1x2xf32>
  }
}
"""


@pytest.mark.parametrize("result", ["tensor<?x2xf32>", "tensor<1x2xf32>"])
def test_a_slice_of_known_size_may_start_anywhere(tmp_path: Path, result: str) -> None:
    path = tmp_path / "scan.mlir"
    path.write_text(SCAN.replace("RESULT", result))
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    found = evaluate(load(path, {0: x.shape}).module, [x])
    np.testing.assert_array_equal(found, x.cumsum(0))


# The shape of the result is computed after a call that constants do not settle.
AFTER = """module @after {
  func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %m = func.call @loop(%n) : (tensor<i32>) -> tensor<i32>
    %sizes = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %f = stablehlo.convert %m : (tensor<i32>) -> tensor<f32>
    %y = stablehlo.dynamic_broadcast_in_dim %f, %sizes, dims = []
      : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
    return %y : tensor<?xf32>
  }
  func.func private @loop(%n: tensor<i32>) -> tensor<i32> {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %m = stablehlo.while(%i = %n) : tensor<i32>
    cond {
      %more = stablehlo.compare GT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %less = stablehlo.subtract %i, %one : tensor<i32>
      stablehlo.return %less : tensor<i32>
    }
    return %m : tensor<i32>
  }
}
"""


def test_sizes_are_known_after_a_call_of_a_loop(tmp_path: Path) -> None:
    path = tmp_path / "after.mlir"
    path.write_text(AFTER)
    x = np.zeros(4, np.float32)
    found = evaluate(load(path, {0: x.shape}).module, [x])
    np.testing.assert_array_equal(found, np.ones(4, np.float32))
