"""The table of ATen's operators, without torch: rows are called with terms and interpreted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, DType, bf16, c64, f32, f64, pred, s32, s64, to_numpy, u8
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.frontends.lax.graph import Graph
from nestwright.ir.frontends.lax.term import Term
from nestwright.ir.frontends.torch import table
from nestwright.ir.frontends.torch.operators.promotion import common_type, wider
from nestwright.ir.frontends.torch.refusals import REFUSED
from nestwright.ir.hlo.nodes import Shape

Called = Callable[..., Any]


def test_rows_are_named_as_overloads_are() -> None:
    space = re.compile(r"(aten|prims|quantized_decomposed|torchvision|transformers)\.\w+\.\w+")
    higher = {
        "cond",
        "while_loop",
        "map_impl",
        "scan",
        "wrap_with_set_grad_enabled",
        "flex_attention",
    }
    assert {n for n in table.ROWS if not space.fullmatch(n)} - higher <= {"invoke_subgraph"}


def test_no_refused_operator_has_a_row() -> None:
    packets = {".".join(n.split(".")[:2]) for n in table.ROWS}
    assert [n for n in REFUSED if n in table.ROWS or n in packets] == []


def test_an_unknown_operator_is_not_compiled() -> None:
    assert table.row("aten.rand.default") is None
    assert "generator" in table.why_not("aten.rand.default")
    assert "no row" in table.why_not("mine.own.default")


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [(s64, f32, f32), (u8, s32, s32), (bf16, f32, f32), (pred, u8, u8), (f64, c64, "c128")],
)
def test_types_are_promoted_as_in_torch(a: DType, b: DType, result: DType | str) -> None:
    assert wider(a, b) == wider(b, a)
    assert str(wider(a, b)) == str(result)


def test_a_number_does_not_widen_an_array() -> None:
    graph = Graph("test")
    half = Term(graph, graph.parameter(Shape(bf16, (2,)), "x"))
    whole = Term(graph, graph.parameter(Shape(s32, (2,)), "n"))
    scalar = Term(graph, graph.parameter(Shape(f64, ()), "s"))
    assert common_type(half, 2.0) == bf16
    assert common_type(half, scalar) == bf16
    assert common_type(whole, 2) == s32
    assert common_type(whole, 2.0) == f32
    assert common_type(whole, scalar) == f64
    assert common_type(True, whole) == s32


def test_floor_division_follows_python(called: Called) -> None:
    a = np.array([7, -7, 7, -7, 0], np.int64)
    b = np.array([3, 3, -3, -3, 5], np.int64)
    mode = "aten.div.Tensor_mode"
    np.testing.assert_array_equal(called(mode, [(s64, (5,))], a, b, "floor"), a // b)
    x, y = a.astype(np.float32) / 2, b.astype(np.float32)
    np.testing.assert_array_equal(called(mode, [(f32, (5,))], x, y, "floor"), x // y)


@pytest.mark.parametrize("overlap", [0, 1])
def test_a_pool_gives_places_and_its_gradient_goes_there(called: Called, overlap: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 7), np.float32)
    x[0, 0, 2, 3] = np.nan
    out = (1, 2, 2, 3) if not overlap else (1, 2, 3, 4)
    args: list[Any] = [[2, 2], [2, 2], [0, 0]] if not overlap else [[3, 3], [2, 2], [1, 1]]
    name = "aten.max_pool2d_with_indices"
    best, places = called(f"{name}.default", [(f32, out), (s64, out)], x, *args)
    flat = x.reshape(2, -1)
    np.testing.assert_array_equal(
        best.reshape(2, -1), np.take_along_axis(flat, places.reshape(2, -1), 1)
    )
    grad = np.arange(best.size, dtype=np.float32).reshape(out) + 1
    back = called(
        f"{name}_backward.default", [(f32, x.shape)], grad, x, *args, [1, 1], False, places
    )
    want = np.zeros_like(flat)
    for k in range(2):
        np.add.at(want[k], places.reshape(2, -1)[k], grad.reshape(2, -1)[k])
    np.testing.assert_array_equal(back.reshape(2, -1), want)


def test_separate_indices_put_their_dimensions_first(called: Called) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    i, j = np.array([0, 1, 1]), np.array([3, -1, 0])
    found = called("aten.index.Tensor", [(f32, (3, 3))], x, [i, None, j])
    np.testing.assert_array_equal(found, x[i, :, j])


def test_polygamma_left_of_its_poles(called: Called) -> None:
    x = np.array([-8.4783735, -0.25, 0.25, -1], np.float32)
    found = called("aten.polygamma.default", [(f32, (4,))], 1, x)
    want = [9.8040395, 18.5418797, 17.1973292, np.inf]  # pi^2 / sin^2(pi x) - psi_1(1 - x)
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_no_elements_have_no_variance(called: Called) -> None:
    x = np.zeros((0, 2), np.float32)
    for correction in (-1, 0, 1):
        found = called("aten.var.correction", [(f32, (2,))], x, [0], correction=correction)
        assert np.isnan(found).all()


@pytest.mark.parametrize("dims", [(2, 6), (1, 6, 5), (2, 6, 3, 1), (1, 6, 2, 3, 2)])
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_groups_of_channels_are_normalized(
    called: Called, dims: tuple[int, ...], groups: int
) -> None:
    x = np.random.default_rng(0).normal(3, 2, dims).astype(np.float32)
    weight, bias = (np.arange(6, dtype=np.float32) + k for k in (1, 2))
    results = [(f32, dims), (f32, (dims[0], groups)), (f32, (dims[0], groups))]
    sizes = (dims[0], 6, x[0, 0].size, groups, 1e-5)
    found = called("aten.native_group_norm.default", results, x, weight, bias, *sizes)
    parts = x.reshape(dims[0], groups, -1).astype(np.float64)
    center, scale = parts.mean(2), (parts.var(2) + 1e-5) ** -0.5
    apart = (parts - center[..., None]) * scale[..., None]
    column = (-1, *[1] * (len(dims) - 2))
    want = apart.reshape(dims) * weight.reshape(column) + bias.reshape(column)
    for a, b in zip(found, (want, center, scale), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_attention_of_rows_that_a_mask_hides_is_zero(called: Called) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 3, 4), np.float32) for _ in range(3))
    mask = np.array([[True, False, True], [False] * 3, [False, False, True]])
    found = called("aten.scaled_dot_product_attention.default", [(f32, q.shape)], q, k, v, mask)
    assert not found[:, :, 1].any() and np.isfinite(found).all()
    np.testing.assert_allclose(found[:, :, 2], v[:, :, 2], rtol=1e-6)
    bias = np.where(mask, 0, -np.inf).astype(np.float32)
    flash = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    shapes = [(f32, q.shape), (f32, q.shape[:-1])]
    same, sums = called(flash, shapes, q, k, v, attn_mask=bias)
    np.testing.assert_allclose(same, found, rtol=1e-6)
    assert not sums[:, :, 1].any()  # as in torch, so that the weights of the gradient are zeros


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_is_attention_and_two_layers(called: Called, norm_first: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4), np.float32)
    sizes = [(12, 4), (12,), (4, 4), (4,)], [(4,)] * 4, [(6, 4), (6,), (4, 6), (4,)]
    attention, norms, layers = ([rng.standard_normal(d, np.float32) for d in g] for g in sizes)
    hides = np.array([[False, False, True], [False] * 3])
    flags = [False, norm_first, 1e-5]
    name = "aten._transformer_encoder_layer_fwd.default"
    operands = [x, 4, 2, *attention, *flags, *norms, *layers, hides, 1]
    found = called(name, [(f32, x.shape)], *operands)

    def norm(y: Array, scale: Array, shift: Array) -> Array:
        apart = y - y.mean(-1, keepdims=True)
        return apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5) * scale + shift

    def attend(y: Array) -> Array:
        rows = (y @ attention[0].T + attention[1]).reshape(2, 3, 3, 2, 2).transpose(2, 0, 3, 1, 4)
        scores = rows[0] @ rows[1].swapaxes(-1, -2) / np.sqrt(2)
        weights = np.exp(np.where(hides[:, None, None], -np.inf, scores))
        weights /= weights.sum(-1, keepdims=True)
        return (weights @ rows[2]).swapaxes(1, 2).reshape(2, 3, 4) @ attention[2].T + attention[3]

    def network(y: Array) -> Array:
        return np.maximum(y @ layers[0].T + layers[1], 0) @ layers[2].T + layers[3]

    if norm_first:
        y = x + attend(norm(x, *norms[:2]))
        want = y + network(norm(y, *norms[2:]))
    else:
        y = norm(x + attend(x), *norms[:2])
        want = norm(y + network(y), *norms[2:])
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_views_of_memory_that_is_in_another_order(called: Called) -> None:
    memory = np.arange(24, dtype=np.float32)
    x = memory.reshape(2, 3, 4).transpose(1, 0, 2)
    taken = called("aten.as_strided.default", [(f32, (5, 3))], x, [5, 3], [4, 2], 1)
    wanted = np.lib.stride_tricks.as_strided(memory[1:], (5, 3), (16, 8))
    np.testing.assert_array_equal(taken, wanted)
    source = -np.ones((2, 4), np.float32)
    to = [(f32, (3, 2, 4))]
    found = called("aten.as_strided_scatter.default", to, x, source, [2, 4], [12, 2], 3)
    written = memory.copy()
    np.lib.stride_tricks.as_strided(written[3:], (2, 4), (48, 8))[:] = source
    np.testing.assert_array_equal(found, written.reshape(2, 3, 4).transpose(1, 0, 2))
    part = memory.reshape(4, 6)[:, :5]
    with pytest.raises(UnsupportedError, match="does not cover"):
        called("aten.as_strided.default", [(f32, (24,))], part, [24], [1])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 100])
def test_values_are_found_among_edges(called: Called, size: int, right: bool) -> None:
    rng = np.random.default_rng(size)
    edges = np.sort(rng.integers(0, 50, size)).astype(np.float32)
    values = np.concatenate([rng.uniform(-1, 51, 20), edges[:5], [np.nan, np.inf, -np.inf]])
    values = values.astype(np.float32).reshape(-1, 1)
    wanted = np.searchsorted(edges, values, "right" if right else "left")
    wanted[np.isnan(values)] = size
    result = [(s64, values.shape)]
    found = called("aten.searchsorted.Tensor", result, edges, values, right=right)
    np.testing.assert_array_equal(found, wanted)
    found = called("aten.bucketize.Tensor", result, values, edges, right=right)
    np.testing.assert_array_equal(found, wanted)


def test_rows_of_values_are_found_among_rows_of_edges(called: Called) -> None:
    rng = np.random.default_rng(0)
    edges = np.sort(rng.integers(0, 30, (2, 3, 9)), -1)
    values = rng.integers(-2, 33, (2, 3, 5))
    order = np.argsort(-edges, -1)
    wanted = [np.searchsorted(e, v) for e, v in zip(*map(_rows_of, (edges, values)), strict=True)]
    found = called("aten.searchsorted.Tensor", [(s64, values.shape)], edges, values)
    np.testing.assert_array_equal(found, np.reshape(wanted, values.shape))
    turned = np.take_along_axis(edges, order, -1)
    back = np.argsort(order, -1)
    args: list[Any] = [[(s64, values.shape)], turned, values]
    found = called("aten.searchsorted.Tensor", *args, sorter=back)
    np.testing.assert_array_equal(found, np.reshape(wanted, values.shape))


def _rows_of(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def test_edges_that_are_not_sorted_are_halved_as_in_torch(called: Called) -> None:
    edges, values = np.array([5, 1, 4, 2, 3], np.int64), np.array([0, 1, 2, 3, 4, 5, 6])
    # torch 2.13: torch.searchsorted(edges, values)
    found = called("aten.searchsorted.Tensor", [(s64, (7,))], edges, values)
    np.testing.assert_array_equal(found, [0, 0, 2, 2, 2, 5, 5])


def test_transforms_without_normalization(called: Called) -> None:
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    z = np.fft.fft2(x).astype(np.complex64)
    close: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
    found = called("prims.fft_r2c.default", [(c64, (4, 4))], x, dim=[0, 1], onesided=True)
    np.testing.assert_allclose(found, np.fft.rfft2(x), **close)
    found = called("prims.fft_r2c.default", [(c64, (4, 6))], x, dim=[1], onesided=False)
    np.testing.assert_allclose(found, np.fft.fft(x), **close)
    for forward, wanted in ((True, np.fft.fft2(z)), (False, np.fft.ifft2(z) * z.size)):
        found = called("prims.fft_c2c.default", [(c64, (4, 6))], z, dim=[0, 1], forward=forward)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)
    half = np.ascontiguousarray(z[:, :4])
    found = called("prims.fft_c2r.default", [(f32, (4, 6))], half, dim=[0, 1], last_dim_size=6)
    np.testing.assert_allclose(found, x * x.size, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("operator", "wanted"),
    [
        ("sign", [-1, -1, 0, 0, 1, 1, 0]),
        ("sgn", [-1, -1, 0, 0, 1, 1, 0]),
        ("angle", [np.pi, np.pi, 0, 0, 0, 0, np.nan]),
    ],
)
def test_infinities_have_signs_and_angles(
    called: Called, operator: str, wanted: list[float]
) -> None:
    x = np.array([-np.inf, -2, -0.0, 0, 3, np.inf, np.nan], np.float32)
    found = called(f"aten.{operator}.default", [(f32, (7,))], x)
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))


SHRUNK = {  # torch 2.13: interpolate(x, (1, 3), mode=mode, antialias=True, align_corners=align)
    ("bilinear", False): [2.0526316, 13.452381, 35.578949],
    ("bilinear", True): [3.9069765, 23.854166, 43.066666],
    ("bicubic", False): [1.0357937, 12.718559, 37.485275],
    ("bicubic", True): [2.2116833, 24.623539, 48.660728],
    ("lanczos", False): [0.65745991, 12.25, 38.301464],
}


@pytest.mark.parametrize(("mode", "align"), SHRUNK)
def test_images_shrink_by_kernels_as_wide_as_a_step(called: Called, mode: str, align: bool) -> None:
    x = (np.arange(8, dtype=np.float32) ** 2).reshape(1, 1, 1, 8)
    name = f"aten._upsample_{mode}2d_aa.default"
    found = called(name, [(f32, (1, 1, 1, 3))], x, [1, 3], align)
    np.testing.assert_allclose(found.ravel(), SHRUNK[mode, align], rtol=1e-5)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("bilinear", [0, 91, 237, 129, 3, 7, 9]), ("bicubic", [0, 102, 252, 152, 0, 0, 10])],
)
def test_bytes_between_bytes_are_rounded(called: Called, mode: str, wanted: list[int]) -> None:
    x = np.array([0, 255, 3, 9], np.uint8).reshape(1, 1, 1, 4)
    name = f"aten.upsample_{mode}2d.default"
    found = called(name, [(u8, (1, 1, 1, 7))], x, [1, 7], False)  # as torch 2.13
    np.testing.assert_array_equal(found.ravel(), wanted)


@pytest.mark.parametrize(
    ("name", "wanted"),  # as torch 2.13
    [
        ("upsample_bilinear2d", [[64, 143, 192, 194], [255, 215, 122, 5]]),
        ("upsample_bicubic2d", [[58, 141, 191, 200], [255, 215, 118, 0]]),
        ("_upsample_bilinear2d_aa", [[96, 135, 161, 163], [255, 195, 102, 5]]),
        ("_upsample_bicubic2d_aa", [[89, 131, 159, 169], [255, 196, 94, 0]]),
        ("_upsample_lanczos2d_aa", [[89, 123, 156, 169], [255, 200, 80, 0]]),
    ],
)
def test_rows_of_bytes_are_bytes_before_columns_are_weighed(
    called: Called, name: str, wanted: list[list[int]]
) -> None:
    x = np.array([[0, 255, 255], [255, 0, 9], [255, 255, 3]], np.uint8)[None, None]
    found = called(f"aten.{name}.default", [(u8, (1, 1, 2, 4))], x, [2, 4], False)
    np.testing.assert_array_equal(found[0, 0], wanted)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("scale", [None, 1.7, 0.6])
def test_aligned_corners_are_read_where_they_are(
    called: Called, mode: str, scale: float | None
) -> None:
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.float32).reshape(1, 1, 1, 8)
    out = int(8 * scale) if scale else 5
    name = f"aten.upsample_{mode}2d.default"
    found = called(name, [(f32, (1, 1, 1, out))], x, [1, out], True, 1.0, scale)
    np.testing.assert_allclose(found[0, 0, 0, [0, -1]], [3, 6], rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "wanted"),  # as torch 2.13 converts
    [
        ("f8e4m3fn", [448, -448, 448, -448, np.nan, 0, 448]),
        ("f8e8m0fnu", [512, 1024, np.nan, np.nan, np.nan, 2.0**-127, 512]),
    ],
)
def test_floats_of_8_bits_without_infinities(
    called: Called, kind: str, wanted: list[float]
) -> None:
    x = np.array([500, -1000, np.inf, -np.inf, np.nan, 0, 464], np.float64)
    found = called("aten._to_copy.default", [(BY_NAME[kind], (7,))], x)
    np.testing.assert_array_equal(found.astype(np.float32), np.array(wanted, np.float32))


@pytest.mark.parametrize("dtype", [f32, f64])
@pytest.mark.parametrize(("operator", "base"), [("log2", 2), ("log10", 10), ("exp2", 2)])
def test_whole_logarithms_are_whole(
    called: Called, dtype: DType, operator: str, base: float
) -> None:
    whole = np.arange(-37, 11, dtype=to_numpy(dtype))
    powers = np.power(base, whole.astype(np.float64)).astype(whole.dtype)
    x, wanted = (whole, powers) if operator == "exp2" else (powers, whole)
    found = called(f"aten.{operator}.default", [(dtype, x.shape)], x)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("operator", "wanted"),
    [
        ("log2", [np.nan, -np.inf, -np.inf, np.inf, np.nan]),
        ("log10", [np.nan, -np.inf, -np.inf, np.inf, np.nan]),
        ("exp2", [0.5, 1, 1, np.inf, np.nan]),
    ],
)
def test_logarithms_have_poles(called: Called, operator: str, wanted: list[float]) -> None:
    x = np.array([-1, -0.0, 0, np.inf, np.nan], np.float32)
    found = called(f"aten.{operator}.default", [(f32, (5,))], x)
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))


@pytest.mark.parametrize("dtype", [c64, BY_NAME["c128"]])
def test_complex_logarithms_and_powers(called: Called, dtype: DType) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((2, 5)) + 1j * rng.standard_normal((2, 5))).astype(to_numpy(dtype))
    wanted = {
        "log2": np.log(x) / np.log(2),
        "log10": np.log10(x),
        "exp2": np.exp2(x.real) * np.exp(1j * np.log(2) * x.imag),
    }
    for operator, values in wanted.items():
        found = called(f"aten.{operator}.default", [(dtype, x.shape)], x)
        np.testing.assert_allclose(found, values, rtol=1e-5)
    sums = called("aten.logcumsumexp.default", [(dtype, x.shape)], x, 1)
    np.testing.assert_allclose(np.exp(sums), np.cumsum(np.exp(x), 1), rtol=1e-5)


@pytest.mark.parametrize("dtype", [bf16, BY_NAME["f16"]])
@pytest.mark.parametrize(
    ("operator", "numbers", "wanted"),
    [
        ("mul.Tensor", (0.01,), lambda x: x * 0.01),
        ("leaky_relu.default", (0.3,), lambda x: np.where(x > 0, x, x * 0.3)),
        ("deg2rad.default", (), np.deg2rad),
        ("add.Tensor", (0.1,), lambda x: x + 0.1),
        ("mul.Tensor", (257,), lambda x: x * 257),
        ("div.Tensor", (1e6,), lambda x: x / 1e6),
    ],
)
def test_numbers_are_not_rounded_to_narrow_types(
    called: Called, dtype: DType, operator: str, numbers: Any, wanted: Any
) -> None:
    """Results are those of exact numbers, rounded once."""
    x = np.linspace(-3, 3, 101).astype(to_numpy(dtype))
    found = called(f"aten.{operator}", [(dtype, x.shape)], x, *numbers)
    exact = wanted(x.astype(np.float32)).astype(np.float32).astype(x.dtype)
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("dtype", [f32, f64])
def test_mantissas_keep_all_digits(called: Called, dtype: DType) -> None:
    info = np.finfo(to_numpy(dtype))
    x = np.array([1 / 3, -7.1, 0, info.max, info.tiny / 1024, np.inf], to_numpy(dtype))
    results = [(dtype, (6,)), (s32, (6,))]
    mantissa, exponent = called("aten.frexp.Tensor", results, x)
    wanted, powers = np.frexp(x)
    np.testing.assert_array_equal(mantissa, wanted)
    np.testing.assert_array_equal(exponent, powers)


@pytest.mark.parametrize(("name", "count"), [("fftfreq", 7), ("rfftfreq", 4)])
@pytest.mark.parametrize("dtype", [f32, f64, bf16])
def test_frequencies_are_constants(called: Called, name: str, count: int, dtype: DType) -> None:
    found = called(f"aten.fft_{name}.default", [(dtype, (count,))], 7, 0.5)
    wanted = getattr(np.fft, name)(7, 0.5).astype(to_numpy(dtype))
    np.testing.assert_array_equal(found, wanted)


def test_bits_are_shifted_by_the_operators_of_python(called: Called) -> None:
    x = np.array([-7, 3, 100], np.int64)
    found = called("aten.__lshift__.Scalar", [(s64, (3,))], x, 2)
    np.testing.assert_array_equal(found, x << 2)
    found = called("aten.__rshift__.Tensor", [(s64, (3,))], x, x % 3)
    np.testing.assert_array_equal(found, x >> x % 3)


@pytest.mark.parametrize("dtype", [f32, f64])
def test_bessel_functions_of_order_0(called: Called, dtype: DType) -> None:
    """Beside the integral of exp(x cos t), which the rule of rectangles gives exactly."""
    x = np.array([0, 1e-3, 0.5, 3, 7.99, 8, 8.01, 30, 80, -2], to_numpy(dtype))
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    wide = x.astype(np.float64)[:, None]
    scaled = np.exp(wide * np.cos(angles) - np.abs(wide)).mean(1)
    near = {"rtol": 1e-6 if dtype == f32 else 1e-14}
    found = called("aten.special_i0e.default", [(dtype, x.shape)], x)
    np.testing.assert_allclose(found, scaled, **near)
    found = called("aten.i0.default", [(dtype, x.shape)], x)
    np.testing.assert_allclose(found, scaled * np.exp(np.abs(wide[:, 0])), rtol=near["rtol"] * 20)


def test_incomplete_gamma_functions_of_whole_numbers_are_sums(called: Called) -> None:
    a = np.array([1, 1, 2, 5, 5, 30, 30, 400, 400], np.float64)
    x = np.array([1e-9, 3, 0.5, 2, 30, 20, 31, 380, 520], np.float64)
    lower = called("aten.igamma.default", [(f64, (9,))], a, x)
    upper = called("aten.igammac.default", [(f64, (9,))], a, x)
    chances = [[math.exp(k * math.log(t) - t - math.lgamma(k + 1)) for k in range(1300)] for t in x]
    below = [math.fsum(p[: int(n)]) for n, p in zip(a, chances, strict=True)]
    above = [math.fsum(p[int(n) :]) for n, p in zip(a, chances, strict=True)]
    np.testing.assert_allclose(lower, above, rtol=1e-12)
    np.testing.assert_allclose(upper, below, rtol=1e-12)


def test_incomplete_gamma_functions_have_edges(called: Called) -> None:
    a = np.array([0, 0, 2, 2, np.inf, np.inf, -1, 2, np.nan], np.float32)
    x = np.array([0, 1, 0, np.inf, 2, np.inf, 2, -1, 2], np.float32)
    wanted = np.array([np.nan, 1, 0, 1, 0, np.nan, np.nan, np.nan, np.nan], np.float32)
    lower = called("aten.igamma.default", [(f32, (9,))], a, x)
    upper = called("aten.igammac.default", [(f32, (9,))], a, x)
    np.testing.assert_array_equal(lower, wanted)
    np.testing.assert_array_equal(upper, 1 - wanted)


def test_random_slopes_are_the_middle_outside_of_training(called: Called) -> None:
    x = np.array([-2, 3], np.float32)
    name, results = "aten.rrelu_with_noise_functional.default", [(f32, (2,))] * 2
    out, noise = called(name, results, x, x * 0, 0.25, 0.75, False)
    np.testing.assert_array_equal(out, [-1, 3])
    np.testing.assert_array_equal(noise, [0, 0])
    with pytest.raises(UnsupportedError, match="generator"):
        called(name, results, x, x * 0, 0.25, 0.75, True)


@pytest.mark.parametrize("biases", [False, True])
def test_cells_of_an_lstm_project_their_state(called: Called, biases: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = [(4, 2, 3), (1, 2, 2), (1, 2, 5), (20, 3), (20, 2), (20,), (20,), (2, 5)]
    x, h, c, own, old, bias, old_bias, projection = (
        rng.uniform(-1, 1, s).astype(np.float32) for s in shapes
    )
    params = [own, old, *([bias, old_bias] if biases else []), projection]
    results = [(f32, (4, 2, 2)), (f32, (1, 2, 2)), (f32, (1, 2, 5))]
    layer = (biases, 1, 0.0, False, False, False)
    found = called("aten.lstm.input", results, x, [h, c], params, *layer)
    state, cell, states = h[0], c[0], []
    for row in x:
        gates = row @ own.T + state @ old.T + (bias + old_bias if biases else 0)
        i, f, g, o = np.split(gates, 4, axis=-1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        state = (o * np.tanh(cell)) @ projection.T
        states.append(state)
    for ours, wanted in zip(found, [np.stack(states), state[None], cell[None]], strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)
