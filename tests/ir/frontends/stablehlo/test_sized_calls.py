"""Operations that exporters write as calls with sizes as operands, and approximate top k."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import NestwrightError, ParseError, UnsupportedError
from nestwright.ir.library.registry import unregister_custom_call

TOP_K = """
  func.func public @main(%x: tensor<?x5xf32>) -> (tensor<?x2xf32>, tensor<?x2xi32>) {
    %k = stablehlo.constant dense<2> : tensor<i32>
    %r:2 = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %k) {api_version = 2 : i32}
      : (tensor<?x5xf32>, tensor<i32>) -> (tensor<?x2xf32>, tensor<?x2xi32>)
    return %r#0, %r#1 : tensor<?x2xf32>, tensor<?x2xi32>
  }
"""
BITS = """
  func.func public @main(%x: tensor<?x2xf32>, %s: tensor<2xui64>)
      -> (tensor<2xui64>, tensor<?x3xui32>) {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
    %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %three = stablehlo.constant dense<3> : tensor<1xi32>
    %sizes = stablehlo.concatenate %one, %three, dim = 0
      : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %r:2 = stablehlo.custom_call @stablehlo.dynamic_rng_bit_generator(%s, %sizes) {
      api_version = 2 : i32, rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>
    } : (tensor<2xui64>, tensor<2xi32>) -> (tensor<2xui64>, tensor<?x3xui32>)
    return %r#0, %r#1 : tensor<2xui64>, tensor<?x3xui32>
  }
"""
WINDOW = """
  func.func private @both(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>)
      -> (tensor<f32>, tensor<i32>) {
    %0 = stablehlo.add %a, %c : tensor<f32>
    %1 = stablehlo.maximum %b, %d : tensor<i32>
    return %0, %1 : tensor<f32>, tensor<i32>
  }
  func.func public @main(%x: tensor<?xf32>, %y: tensor<?xi32>) -> (tensor<?xf32>, tensor<?xi32>) {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %half = stablehlo.divide %n, %two : tensor<i32>
    %size = stablehlo.reshape %half : (tensor<i32>) -> tensor<1xi32>
    %ones = stablehlo.constant dense<1> : tensor<1xi32>
    %pad = stablehlo.constant dense<[[1, 0]]> : tensor<1x2xi32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %least = stablehlo.constant dense<-9> : tensor<i32>
    %r:2 = stablehlo.custom_call @stablehlo.dynamic_reduce_window(
      %x, %y, %zero, %least, %size, %size, %ones, %ones, %pad
    ) {api_version = 2 : i32, called_computations = [@both]}
      : (tensor<?xf32>, tensor<?xi32>, tensor<f32>, tensor<i32>, tensor<1xi32>, tensor<1xi32>,
         tensor<1xi32>, tensor<1xi32>, tensor<1x2xi32>) -> (tensor<?xf32>, tensor<?xi32>)
    return %r#0, %r#1 : tensor<?xf32>, tensor<?xi32>
  }
"""
COMPARE = """
  func.func private @above(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>)
      -> tensor<i1> {
    %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    return %0 : tensor<i1>
  }
"""
APPROXIMATE = (
    COMPARE
    + """
  func.func public @main(%x: tensor<3x40xf32>) -> (tensor<3x5xf32>, tensor<3x5xi32>) {
    %i = stablehlo.iota dim = 1 : tensor<3x40xi32>
    %v = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %p = stablehlo.constant dense<-1> : tensor<i32>
    %r:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %v, %p) {
      called_computations = [@above], mhlo.backend_config = {aggregate_to_topk = true,
      is_fallback = true, recall_target = 0.95 : f32, reduction_dim = 1 : i64,
      reduction_input_size_override = -1 : i64, top_k = 5 : i64}
    } : (tensor<3x40xf32>, tensor<3x40xi32>, tensor<f32>, tensor<i32>)
      -> (tensor<3x5xf32>, tensor<3x5xi32>)
    return %r#0, %r#1 : tensor<3x5xf32>, tensor<3x5xi32>
  }
"""
)
OPEN_APPROXIMATE = (
    COMPARE
    + """
  func.func public @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xi32>) {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %k = stablehlo.divide %n, %two : tensor<i32>
    %size = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
    %all = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %i = stablehlo.dynamic_iota %all, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
    %v = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %p = stablehlo.constant dense<-1> : tensor<i32>
    %r:2 = stablehlo.custom_call @stablehlo.dynamic_approx_top_k(%x, %i, %v, %p, %k, %size, %size) {
      called_computations = [@above], indices_of_shape_operands = dense<[5, 6]> : tensor<2xi64>,
      mhlo.backend_config = {aggregate_to_topk = true, is_fallback = true,
      recall_target = 0.95 : f32, reduction_dim = 0 : i64, reduction_input_size_override = -1 : i64}
    } : (tensor<?xf32>, tensor<?xi32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<1xi32>,
         tensor<1xi32>) -> (tensor<?xf32>, tensor<?xi32>)
    return %r#0, %r#1 : tensor<?xf32>, tensor<?xi32>
  }
"""
)
FOREIGN = """
  func.func public @main(%x: tensor<?x2xf32>) -> tensor<?xf32> {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
    %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %r = stablehlo.custom_call @row_sums(%x, %one) {
      indices_of_shape_operands = dense<[1]> : tensor<1xi64>
    } : (tensor<?x2xf32>, tensor<1xi32>) -> tensor<?xf32>
    return %r : tensor<?xf32>
  }
"""


def built(folder: Path, body: str, **settings: Any) -> Any:
    path = folder / "calls.mlir"
    path.write_text(f"module @calls {{{body}}}")
    return nw.build(path, **settings)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def assert_largest(x: Any, k: int, found: Sequence[Any]) -> None:
    places = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(found[0], np.take_along_axis(x, places, -1))
    np.testing.assert_array_equal(found[1], places)


@pytest.mark.parametrize("rows", [1, 4])
def test_top_k_of_open_rows(rows: int, tmp_path: Path) -> None:
    x = numbers(rows, 5)
    assert_largest(x, 2, built(tmp_path, TOP_K, shapes={0: (rows, 5)})(x))


@pytest.mark.parametrize("rows", [1, 7])
def test_random_bits_of_open_sizes(rows: int, tmp_path: Path) -> None:
    state = np.array([3, 5], np.uint64)
    _, bits = built(tmp_path, BITS, shapes={0: (rows, 2)})(numbers(rows, 2), state)
    _, more = built(tmp_path, BITS, shapes={0: (8, 2)})(numbers(8, 2), state)
    assert bits.shape == (rows, 3)
    assert len(set(more.reshape(-1).tolist())) == 24


@pytest.mark.parametrize("size", [4, 6])
def test_windows_of_open_sizes(size: int, tmp_path: Path) -> None:
    x, y = numbers(size), np.arange(size, dtype=np.int32)[::-1].copy()
    sums, most = built(tmp_path, WINDOW, shapes={0: (size,), 1: (size,)})(x, y)
    half = size // 2
    parts = [(max(at - 1, 0), at - 1 + half) for at in range(0, size + 2 - half, half)]
    np.testing.assert_allclose(sums, [x[a:b].sum() for a, b in parts], rtol=1e-6)
    np.testing.assert_array_equal(most, [y[a:b].max() for a, b in parts])


def test_an_approximate_top_k_is_exact(tmp_path: Path) -> None:
    x = numbers(3, 40)
    assert_largest(x, 5, built(tmp_path, APPROXIMATE)(x))
    for size in (2, 9):
        some = numbers(size)
        found = built(tmp_path, OPEN_APPROXIMATE, shapes={0: (size,)})(some)
        assert_largest(some, size // 2, found)


def test_a_function_of_ones_own_has_the_listed_shape(tmp_path: Path) -> None:
    nw.register_custom_call("row_sums", lambda call, x: x.sum(1))
    try:
        x = numbers(3, 2)
        np.testing.assert_allclose(built(tmp_path, FOREIGN, shapes={0: (3, 2)})(x), x.sum(1))
    finally:
        unregister_custom_call("row_sums")


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (TOP_K.replace("dense<2>", "dense<6>"), ParseError, "k = 6 of f32"),
        (TOP_K.replace("(%x, %k)", "(%x)").replace(", tensor<i32>)", ")"), ParseError, "not 2"),
        (WINDOW.replace("[@both]", "[@other]"), ParseError, "there is no function `other`"),
        (WINDOW.replace("[@both]", "[]"), ParseError, "region 0 is missing"),
        (BITS.replace("THREE_FRY", "ONE_FRY"), ParseError, "`ONE_FRY` is not an algorithm"),
        (APPROXIMATE.replace("n_dim = 1", "n_dim = 2"), ParseError, "does not say how"),
        (APPROXIMATE.replace("3x5x", "3x41x"), ParseError, "cannot be"),
        (FOREIGN.replace("dense<[1]>", "dense<[2]>"), ParseError, "does not name an operand"),
        (FOREIGN.replace("%one)", "%y)"), NestwrightError, "%y"),
        (
            TOP_K.replace("<2> : tensor<i32>", "<2> : tensor<2xi32>").replace(
                ", tensor<i32>)", ", tensor<2xi32>)"
            ),
            ParseError,
            "one number, not 2",
        ),
        (
            APPROXIMATE.replace("(%x, %i, %v, %p)", "(%x, %v)").replace(
                "40xf32>, tensor<3x40xi32>, tensor<f32>, tensor<i32>)", "40xf32>, tensor<f32>)"
            ),
            ParseError,
            "too few for 2",
        ),
        (BITS.replace("<3>", "<-3>"), ParseError, "is not a shape"),
        (FOREIGN, UnsupportedError, "no function computes `row_sums`"),
    ],
)
def test_what_is_refused(text: str, error: type, told: str, tmp_path: Path) -> None:
    sizes: dict[int, tuple[int, ...]] = {0: (4, 5 if "?x5" in text else 2)}
    if "@both" in text or "@other" in text:
        sizes = {0: (4,), 1: (4,)}
    with pytest.raises(error, match=told):
        built(tmp_path, text, **({} if text.startswith(COMPARE) else {"shapes": sizes}))
