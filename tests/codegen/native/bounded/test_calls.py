"""Models of bounded size as a whole: StableHLO, frozen parameters, deep loops."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.errors import ArgumentError
from nestwright.ir.frontends.stablehlo.reader import parse as read_stablehlo
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

SUM = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[<=6,3] parameter(0)
 z = f32[] constant(0)
 ROOT r = f32[3] reduce(x, z), dimensions={0}, to_apply=add }"""

STABLEHLO = """func.func @main(%x: tensor<6xf32>, %s: tensor<2xi32>, %y: tensor<3xf32>)
  -> (tensor<?x3xf32, #stablehlo.bounds<2, ?>>, tensor<?x3xf32, #stablehlo.bounds<4, ?>>,
      tensor<?x?xi32, #stablehlo.bounds<5, 5>>) {
  %0 = stablehlo.dynamic_reshape %x, %s
    : (tensor<6xf32>, tensor<2xi32>) -> tensor<?x3xf32, #stablehlo.bounds<2, ?>>
  %1 = stablehlo.dynamic_broadcast_in_dim %y, %s, dims = [1]
    : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x3xf32, #stablehlo.bounds<4, ?>>
  %2 = stablehlo.dynamic_iota %s, dim = 0
    : (tensor<2xi32>) -> tensor<?x?xi32, #stablehlo.bounds<5, 5>>
  return %0, %1, %2 : tensor<?x3xf32, #stablehlo.bounds<2, ?>>,
    tensor<?x3xf32, #stablehlo.bounds<4, ?>>, tensor<?x?xi32, #stablehlo.bounds<5, 5>>
}"""


def test_bounded_results_of_stablehlo() -> None:
    module = read_stablehlo(STABLEHLO, "m.mlir")
    exe = build(module)
    x, y = np.arange(6, dtype=np.float32), np.arange(3, dtype=np.float32)
    for rows in (0, 1, 2):
        sizes = np.array([rows, 3], np.int32)
        shaped, spread, counted = exe(x, sizes, y)
        np.testing.assert_array_equal(shaped, x[: 3 * rows].reshape(rows, 3))
        np.testing.assert_array_equal(spread, np.tile(y, (rows, 1)))
        np.testing.assert_array_equal(counted, np.indices((rows, 3))[0])
        assert counted.flags.c_contiguous, "its padding is not kept"
        wanted = evaluate(module, [x, sizes, y])
        assert [w.shape for w in wanted] == [(rows, 3)] * 3


def test_a_frozen_parameter_has_any_size_within_the_bound() -> None:
    module = parse(SUM)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(build(module, constants={0: x})(), evaluate(module, [x]))
    with pytest.raises(ArgumentError, match=r"it takes f32\[<=6,3\]"):
        build(module, constants={0: np.zeros((7, 3), np.float32)})


def test_sizes_that_vary_in_deep_loops_are_found_in_little_time() -> None:
    """Each loop learns from the one inside it that its state varies; that must not add up."""
    depth, state = 18, "(s32[], f32[<=9])"
    head = f" s = {state} parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
    parts = [
        f"test {{\n{head} n = s32[] constant(1)\n ROOT l = pred[] compare(i, n), direction=LT }}",
        f"body0 {{\n{head} x = f32[<=9] get-tuple-element(s), index=1\n"
        " d = s32[] get-dimension-size(x), dimensions={0}\n one = s32[] constant(1)\n"
        " m = s32[] subtract(d, one)\n y = f32[<=9] set-dimension-size(x, m), dimensions={0}\n"
        f" j = s32[] add(i, one)\n ROOT t = {state} tuple(j, y) }}",
    ]
    for n in range(1, depth):
        parts.append(
            f"body{n} {{\n{head} x = f32[<=9] get-tuple-element(s), index=1\n"
            f" z = s32[] constant(0)\n a = {state} tuple(z, x)\n"
            f" w = {state} while(a), condition=test, body=body{n - 1}\n"
            f" y = f32[<=9] get-tuple-element(w), index=1\n one = s32[] constant(1)\n"
            f" j = s32[] add(i, one)\n ROOT t = {state} tuple(j, y) }}"
        )
    parts.append(
        "ENTRY e { x = f32[9] parameter(0)\n z = s32[] constant(0)\n"
        f" a = (s32[], f32[9]) tuple(z, x)\n w = {state} while(a), condition=test,"
        f" body=body{depth - 1}\n ROOT r = f32[<=9] get-tuple-element(w), index=1 }}"
    )
    module = parse("HloModule deep\n" + "\n".join(parts))
    x = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(build(module)(x), evaluate(module, [x]))
