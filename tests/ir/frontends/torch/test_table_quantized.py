"""Rows for quantized arrays, without torch: codes, scales and zero points, products of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import DType, f32, f64, pred, s8, s16, s32, s64, to_numpy, u8

Called = Callable[..., Any]
OWN = "quantized_decomposed."
X = np.float32(np.random.default_rng(0).normal(size=(6, 32)) * 4)
X[0, :4] = [1e9, -1e9, 0.015, -0.0]
CODES = np.random.default_rng(1).integers(-128, 128, (6, 32)).astype(np.int8)
SCALES = np.float32(np.random.default_rng(2).uniform(0.01, 0.1, 6))
ZEROS = np.array([0, -5, 7, 0, 1, 100])


def rounded(x: Array, inverse: Any, zero: Any, low: int, high: int, dtype: DType) -> Array:
    """By the operator's definition: an inverse in f32, whole numbers, the ends of a range."""
    codes = np.rint(x * np.float32(inverse)) + np.float32(zero)
    return np.clip(codes, low, high).astype(to_numpy(dtype))


@pytest.mark.parametrize(
    ("dtype", "zero", "low", "high"),
    [(u8, 12, 0, 255), (s8, 0, -127, 127), (s16, 5, -32768, 32767), (u8, 3, 1, 15)],
)
def test_one_scale(called: Called, dtype: DType, zero: int, low: int, high: int) -> None:
    want = rounded(X, 1 / 0.03, zero, low, high, dtype)
    rest = zero, low, high, dtype
    got = called(f"{OWN}quantize_per_tensor.default", [(dtype, X.shape)], X, 0.03, *rest)
    np.testing.assert_array_equal(got, want)
    arrays = np.array([0.03]), np.array([zero])
    got = called(f"{OWN}quantize_per_tensor.tensor", [(dtype, X.shape)], X, *arrays, *rest[1:])
    np.testing.assert_array_equal(got, want)
    ends = np.array(low), np.array(high), dtype
    got = called(f"{OWN}quantize_per_tensor.tensor2", [(dtype, X.shape)], X, *arrays, *ends)
    np.testing.assert_array_equal(got, want)
    back = called(f"{OWN}dequantize_per_tensor.default", [(f32, X.shape)], want, 0.03, *rest)
    np.testing.assert_array_equal(back, (np.float32(want) - zero) * np.float32(0.03))


def test_a_scale_for_each_channel(called: Called) -> None:
    scale, zero = SCALES[:, None], np.float32(ZEROS)[:, None]
    rest = SCALES, ZEROS, 0, -128, 127, s8
    got = called(f"{OWN}quantize_per_channel.default", [(s8, X.shape)], X, *rest)
    np.testing.assert_array_equal(got, rounded(X, 1 / scale, zero, -128, 127, s8))
    name = f"{OWN}dequantize_per_channel.default"
    back = called(name, [(f32, X.shape)], CODES, *rest)
    np.testing.assert_array_equal(back, (np.float32(CODES) - zero) * scale)
    turned = called(name, [(f32, (32, 6))], CODES.T, SCALES, None, 1, -128, 127, s8)
    np.testing.assert_array_equal(turned, (np.float32(CODES) * scale).T)


def test_a_scale_for_each_token_or_group(called: Called) -> None:
    """The zero point is added before rounding; groups are neighbors in a row."""
    scale, zero = SCALES[:, None], np.float32(ZEROS)[:, None]
    rest = scale, ZEROS[:, None], -128, 127, s8
    want = np.clip(np.rint(X * (1 / scale) + zero), -128, 127).astype(np.int8)
    got = called(f"{OWN}quantize_per_token.default", [(s8, X.shape)], X, *rest)
    np.testing.assert_array_equal(got, want)
    back = called(f"{OWN}dequantize_per_token.default", [(f32, X.shape)], CODES, *rest, f32)
    np.testing.assert_array_equal(back, (np.float32(CODES) - zero) * scale)
    grouped = np.repeat(SCALES[:4].reshape(2, 2), 16, 1)
    rows, rest = CODES[:2], (SCALES[:4].reshape(2, 2), None, -8, 7, s8, 16, f32)
    name = f"{OWN}dequantize_per_channel_group.default"
    got = called(name, [(f32, (2, 32))], rows, *rest)
    np.testing.assert_array_equal(got, np.float32(rows) * grouped)
    zeros = np.zeros((2, 2), np.float32)
    name = f"{OWN}quantize_per_channel_group.default"
    got = called(name, [(s8, (2, 32))], X[1:3], rest[0], zeros, -8, 7, s8, 16)
    np.testing.assert_array_equal(got, rounded(X[1:3], 1 / grouped, 0, -8, 7, s8))


def test_scales_that_follow_from_the_array(called: Called) -> None:
    x = X[1:]
    results = [(f64, (1,)), (s64, (1,))]
    scale, zero = called(f"{OWN}choose_qparams.tensor", results, x, 0, 255, 1e-7, u8)
    step = (x.max() - x.min()) / np.float32(255)
    assert scale == step and zero == -np.rint(x.min() / step)
    name = f"{OWN}choose_qparams_symmetric.tensor"
    scale, zero = called(name, results, x, -128, 127, 1e-7, s8)
    assert scale == np.abs(x).max() / np.float32(127.5) and zero == 0
    assert called(name, results, x, 0, 255, 1e-7, u8)[1] == 128
    scale, zero = called(f"{OWN}choose_qparams.tensor", results, 0 * x, 0, 255, 1e-7, u8)
    assert scale == np.float32(1e-7) and zero == 0, "an array of zeros"
    name = f"{OWN}choose_qparams_per_token_asymmetric.default"
    scale, zero = called(name, [(f64, (5, 1)), (s64, (5, 1))], x, s8)
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    np.testing.assert_array_equal(scale, (high - low) / np.float32(255))
    assert np.all(np.abs(zero - (-128 - low / scale)) <= 1)


def test_through_codes_and_back(called: Called) -> None:
    results = [(f32, X.shape), (pred, X.shape)]
    name = "aten.fake_quantize_per_tensor_affine_cachemask.default"
    got, inside = called(name, results, X, 0.03, 3, -128, 127)
    codes = np.rint(X * (np.float32(1) / np.float32(0.03))) + 3
    want = (np.clip(codes, -128, 127) - 3) * np.float32(0.03)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(inside, (codes >= -128) & (codes <= 127))
    name = "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default"
    for on in (0, 1):
        given = np.float32(0.03), np.int32(3), np.array([on])
        got, inside = called(name, results, X, *map(np.asarray, given), -128, 127)
        np.testing.assert_array_equal(got, want if on else X)
        assert on or inside.all()
    name = "aten.fake_quantize_per_channel_affine_cachemask.default"
    got, _ = called(name, results, X, SCALES, ZEROS.astype(np.int32), 0, -128, 127)
    scale, zero = SCALES[:, None], np.float32(ZEROS)[:, None]
    codes = np.clip(np.rint(X * (np.float32(1) / scale)) + zero, -128, 127)
    np.testing.assert_array_equal(got, (codes - zero) * scale)


def test_products_of_bytes(called: Called) -> None:
    b = CODES[:, ::-1].T.copy()
    got = called("aten._int_mm.default", [(s32, (6, 6))], CODES, b)
    np.testing.assert_array_equal(got, CODES.astype(np.int32) @ b.astype(np.int32))
    got = called("aten._weight_int8pack_mm.default", [(f32, (6, 6))], X[:, :], CODES, SCALES)
    want = X.astype(np.float64) @ (np.float32(CODES) * SCALES[:, None]).T.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)
