"""Gradients that have rows of their own: each is the transpose of its forward pass."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import f32, f64, s64

Called = Callable[..., Any]


def normal(*dims: int) -> Array:
    return np.random.default_rng(sum(dims)).standard_normal(dims, np.float32)


@pytest.mark.parametrize("edges", [(2, 1), (0, 3, 1, 0), (-1, 2, 3, -2), (1, 1, 0, 2, 2, 0)])
@pytest.mark.parametrize("size", [1, 4])
def test_edges_are_repeated_and_summed(called: Called, edges: Sequence[int], size: int) -> None:
    rank = len(edges) // 2
    x = normal(2, *([size + 3 * (min(edges) < 0)] * rank))
    widths = [(0, 0), *((edges[2 * k], edges[2 * k + 1]) for k in reversed(range(rank)))]
    padded = np.pad(x, np.maximum(widths, 0), "edge")
    want = padded[tuple(slice(max(0, -a), -max(0, -b) or None) for a, b in widths)]
    name = f"aten.replication_pad{rank}d"
    found = called(f"{name}.default", [(f32, want.shape)], x, list(edges))
    np.testing.assert_array_equal(found, want)
    grad = normal(*want.shape)
    back = called(f"{name}_backward.default", [(f32, x.shape)], grad, x, list(edges))
    np.testing.assert_allclose((back * x).sum(), (grad * want).sum(), rtol=1e-3)


def test_a_transposed_convolution_whose_result_is_longer_by_a_stride(called: Called) -> None:
    x, weight, grad = normal(1, 1, 4), normal(1, 1, 2), normal(1, 1, 14)
    how = [[2], [0], [4], True, [3], 1]
    made = called("aten.convolution.default", [(f32, grad.shape)], x, weight, None, *how)
    results = [(f32, x.shape), (f32, weight.shape)]
    given = [grad, x, weight, None, *how, [True, True, False]]
    backs = called("aten.convolution_backward.default", results, *given)
    for back, operand in zip(backs, (x, weight), strict=True):
        np.testing.assert_allclose((back * operand).sum(), (grad * made).sum(), rtol=1e-5)


INDICES = np.array([1, 2, 4, 4, 1, 3, 4])
OFFSETS = np.array([0, 0, 3, 4])
BAG = np.array([1, 1, 1, 2, 3, 3, 3])


EVEN = np.array([1, 2, 4, 4, 4, 4, 1, 3])


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [-1, 4])
@pytest.mark.parametrize("even", [False, True])
def test_bags_and_their_gradient(called: Called, mode: int, padding: int, even: bool) -> None:
    weight, grad = normal(6, 3), normal(4, 3)
    indices, offsets, bag = (INDICES, OFFSETS, BAG)
    if even:  # as of an array of indices, whose rows are the bags
        indices, offsets, bag = EVEN, np.arange(0, 8, 2), np.arange(8) // 2
        offsets.setflags(write=False)
    kept = [[i for i in indices[b == bag] if i != padding] for b in range(4)]
    reduce = (np.sum, np.mean, np.max)[mode]
    want = np.stack([reduce(weight[k], 0) if k else np.zeros(3) for k in kept])
    largest = np.stack([np.array(k)[weight[k].argmax(0)] if k else np.zeros(3, int) for k in kept])
    results = [(f32, (4, 3)), (s64, bag.shape), (s64, (4,)), (s64, (4, 3))]
    given = [False, mode, False, None, False, padding]
    found = called("aten._embedding_bag.default", results, weight, indices, offsets, *given)
    for a, b in zip(found, (want, bag, list(map(len, kept)), largest), strict=True):
        if a.dtype == np.float32 or a.shape != (4, 3) or mode == 2:
            np.testing.assert_allclose(a, b, rtol=1e-6)
    back = called(
        "aten._embedding_bag_backward.default",
        [(f32, weight.shape)],
        grad,
        indices,
        offsets,
        *found[1:],
        6,
        False,
        mode,
        False,
        None,
        padding,
    )
    np.testing.assert_allclose((back * weight).sum(), (grad * want).sum(), rtol=1e-4)
    assert not back[0].any() and (padding < 0 or not back[padding].any())


def test_bags_by_frequency_and_with_weights(called: Called) -> None:
    weight, grad, each = normal(6, 3), normal(4, 3), normal(7)
    operands = [grad, INDICES, OFFSETS, BAG, OFFSETS, OFFSETS, 6, True, 0, False]
    name = "aten._embedding_bag_backward.default"
    found = called(name, [(f32, weight.shape)], *operands, each)
    want = np.zeros_like(weight)
    for i, b, w in zip(INDICES, BAG, each, strict=True):
        want[i] += grad[b] * w / (i == INDICES).sum()
    np.testing.assert_allclose(found, want, rtol=1e-5)
    name = "aten._embedding_bag_per_sample_weights_backward.default"
    found = called(name, [(f32, each.shape)], grad, weight, INDICES, OFFSETS, BAG, 0, 4)
    np.testing.assert_allclose(found, (weight[INDICES] * grad[BAG]).sum(1) * (INDICES != 4), 1e-5)


def test_a_table_of_rows_without_elements_has_a_gradient(called: Called) -> None:
    name = "aten.embedding_dense_backward.default"
    grad = np.zeros((2, 0), np.float32)
    assert called(name, [(f32, (6, 0))], grad, np.array([1, 5]), 6, -1, False).shape == (6, 0)


@pytest.mark.parametrize("order", [1.0, 2.0, np.inf])
def test_rows_of_a_table_keep_within_a_norm(called: Called, order: float) -> None:
    weight, indices = normal(6, 3), np.array([[1, 2], [2, 5]])
    found = called("aten.embedding_renorm.default", [(f32, (6, 3))], weight, indices, 0.9, order)
    norms = np.linalg.norm(weight, order, axis=1)
    scaled = np.isin(np.arange(6), indices) & (norms > 0.9)
    assert scaled.any() and not scaled.all()
    np.testing.assert_allclose(found, np.where(scaled, 0.9 / norms, 1)[:, None] * weight, 1e-5)


@pytest.mark.parametrize("dim", [0, 2])
def test_a_norm_apart_has_two_gradients(called: Called, dim: int) -> None:
    v, grad, step = np.random.default_rng(1).standard_normal((3, 3, 4, 5))
    axes = tuple(k for k in range(3) if k != dim)
    g = np.abs(v).sum(axes, keepdims=True)

    def weight(v: Array, g: Array) -> Array:
        return v * g / np.sqrt((v * v).sum(axes, keepdims=True))

    norms = np.sqrt((v * v).sum(axes, keepdims=True))
    operands = [a.astype(np.float32) for a in (grad, v, g, norms)]
    name = "aten._weight_norm_interface_backward.default"
    dv, dg = called(name, [(f32, v.shape), (f32, g.shape)], *operands, dim)
    change = (weight(v + 1e-6 * step, g) - weight(v - 1e-6 * step, g)) / 2e-6
    np.testing.assert_allclose((dv * step).sum(), (change * grad).sum(), rtol=1e-3)
    np.testing.assert_allclose(dg, (weight(v, g / g) * grad).sum(axes, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_windows_start_where_samples_say(called: Called, rank: int) -> None:
    spatial, size, kernel = (7, 6, 5)[:rank], (3, 1, 4)[:rank], (2, 3, 1)[:rank]
    x, samples = normal(2, 2, *spatial), np.random.default_rng(0).random((2, 2, rank), np.float32)
    results = [(f32, (2, 2, *size)), (s64, (2, 2, *size))]
    name = f"aten.fractional_max_pool{rank}d"
    values, places = called(f"{name}.default", results, x, list(kernel), list(size), samples)
    order = range(rank) if rank == 3 else (1, 0)
    for plane in np.ndindex(2, 2):
        for at in np.ndindex(*size):
            given = zip(at, samples[plane][list(order)], spatial, size, kernel, strict=True)
            starts = [start(*row) for row in given]
            window = tuple(slice(s, s + w) for s, w in zip(starts, kernel, strict=True))
            assert values[plane][at] == x[plane][window].max() == x[plane].flat[places[plane][at]]
    grad = normal(*values.shape)
    back = called(f"{name}_backward.default", [(f32, x.shape)], grad, x, None, None, places)
    np.testing.assert_allclose((back * x).sum(), (grad * values).sum(), rtol=1e-4)


def start(i: int, u: np.float32, n: int, out: int, size: int) -> int:
    if i == out - 1:
        return n - size
    step = np.float32((n - size) / (out - 1))
    return int((np.float32(i) + u) * step) - int(u * step)


@pytest.mark.parametrize("kind", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("align", [False, True])
def test_antialiased_resizing_and_its_gradient(called: Called, kind: str, align: bool) -> None:
    x, grad = normal(1, 2, 7, 5), normal(1, 2, 3, 8)
    name = f"aten._upsample_{kind}2d_aa"
    out = called(f"{name}.default", [(f32, grad.shape)], x, [3, 8], align)
    operands = [grad, [3, 8], list(x.shape), align]
    back = called(f"{name}_backward.default", [(f32, x.shape)], *operands)
    np.testing.assert_allclose((back * x).sum(), (grad * out).sum(), rtol=1e-4)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf])
def test_gradients_of_distances(called: Called, p: float) -> None:
    a, b, grad = normal(2, 4, 3), normal(2, 5, 3), normal(2, 4, 5)
    b[0, 1], b[1, 2, 0] = a[0, 2], a[1, 3, 0]  # two rows, and one element of two rows, are the same

    def distances(rows: Array) -> Array:
        return called("aten._cdist_forward.default", [(f64, (2, 4, 5))], rows, b.astype("f8"), p)

    rows = a.astype(np.float64)
    far = distances(rows)
    operands = [grad, a, b, p, far.astype(np.float32)]
    found = called("aten._cdist_backward.default", [(f32, a.shape)], *operands)
    known = np.ones(a.shape, bool)
    known[0, 2], known[1, 3, 0] = p == 0, p == 0  # where it has no slope
    want = np.zeros_like(rows)
    for at in np.ndindex(a.shape):
        step = np.zeros_like(rows)
        step[at] = 1e-6
        want[at] = ((distances(rows + step) - distances(rows - step)) * grad).sum() / 2e-6
    np.testing.assert_allclose(found[known], want[known], rtol=1e-3, atol=1e-4)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("p", [1.0, 2.0, np.inf])
def test_gradients_of_distances_between_rows_of_one_array(called: Called, p: float) -> None:
    x, grad = normal(4, 3), normal(6)
    near, far = np.triu_indices(4, 1)
    pairs = [(f32, (6, 1, 1))]
    apart = called("aten._cdist_forward.default", pairs, x[near, None], x[far, None], p)
    sides = [
        called(
            "aten._cdist_backward.default", [(f32, (6, 1, 3))], grad[:, None, None], a, b, p, apart
        )
        for a, b in ((x[near, None], x[far, None]), (x[far, None], x[near, None]))
    ]
    want = np.zeros_like(x)
    for rows, side in zip((near, far), sides, strict=True):
        np.add.at(want, rows, side[:, 0])
    distances = apart[:, 0, 0]
    found = called("aten._pdist_backward.default", [(f32, x.shape)], grad, x, p, distances)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


def test_what_a_mask_scatters_comes_back(called: Called) -> None:
    grad, mask = normal(3, 4), np.array([True, False, True, True])
    name = "aten.masked_scatter_backward.default"
    found = called(name, [(f32, (2, 5))], grad, mask, [2, 5])
    chosen = grad[:, mask].ravel()
    np.testing.assert_array_equal(found.ravel(), np.append(chosen, [0])[:10])
    few = called(name, [(f32, (4,))], grad, mask, [4])
    np.testing.assert_array_equal(few, chosen[:4])
