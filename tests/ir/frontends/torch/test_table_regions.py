"""Rows that read images at regions of interest or at moved places, beside loops over elements."""

from collections.abc import Callable
from itertools import product
from math import ceil, floor
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import f32, s32

Called = Callable[..., Any]

IMAGE = np.random.default_rng(0).standard_normal((2, 12, 5, 6), np.float32)
ROIS = np.array(
    [
        [1, 0.5, 1, 5.2, 4],
        [0, -2, -1, 9, 8],  # beyond all sides
        [1, 3, 2, 3.4, 2.2],  # smaller than an element
        [0, 4, 3, 2, 1],  # turned inside out
    ],
    np.float32,
)
BINS = (2, 3)


def _at(plane: Array, y: float, x: float) -> float:
    """Between the four neighbors; the last elements beyond the ends, 0 from one further on."""
    if not (-1 <= y <= plane.shape[0] and -1 <= x <= plane.shape[1]):
        return 0.0
    y, x = (min(max(p, 0.0), n - 1.0) for p, n in zip((y, x), plane.shape, strict=True))
    i, j = floor(y), floor(x)
    near = np.pad(plane, (0, 1), mode="edge")[i : i + 2, j : j + 2]
    return float(np.array([i + 1 - y, y - i]) @ near @ np.array([j + 1 - x, x - j]))


def _aligned(
    channel: Callable[[int, int, int], int], channels: int, ratio: int, shift: float, least: float
) -> Array:
    """The means of the samples of bins; ``channel`` of a result's channel and bin is read."""
    found = np.zeros((len(ROIS), channels, *BINS), np.float32)
    for r, (batch, x0, y0, x1, y1) in enumerate(ROIS):
        starts = y0 * 0.5 - shift, x0 * 0.5 - shift
        sizes = [max(float(v) * 0.5, least) for v in (y1 - y0, x1 - x0)]
        steps = [s / b for s, b in zip(sizes, BINS, strict=True)]
        counts = [ratio if ratio > 0 else ceil(s) for s in steps]
        for k, i, j in np.ndindex(found.shape[1:]):
            plane = IMAGE[int(batch), channel(k, i, j)]
            samples = [
                _at(
                    plane,
                    starts[0] + (i + (a + 0.5) / counts[0]) * steps[0],
                    starts[1] + (j + (b + 0.5) / counts[1]) * steps[1],
                )
                for a, b in product(range(counts[0]), range(counts[1]))
            ]
            found[r, k, i, j] = sum(samples) / max(len(samples), 1)
    return found


@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("half", [False, True])
def test_bins_of_regions_are_means_of_samples(called: Called, ratio: int, half: bool) -> None:
    name, shape = "torchvision.roi_align.default", (len(ROIS), 12, *BINS)
    found = called(name, [(f32, shape)], IMAGE, ROIS, 0.5, *BINS, ratio, half)
    shift, least = (0.5, -np.inf) if half else (0.0, 1.0)
    want = _aligned(lambda k, *_: k, 12, ratio, shift, least)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    assert (
        called(name, [(f32, (0, *shape[1:]))], IMAGE, ROIS[:0], 0.5, *BINS, ratio, half).size == 0
    )


def test_bins_with_channels_of_their_own(called: Called) -> None:
    shape = (len(ROIS), 2, *BINS)
    results = [(f32, shape), (s32, shape)]
    name = "torchvision.ps_roi_align.default"
    found, channels = called(name, results, IMAGE, ROIS, 0.5, *BINS, 2)
    want = _aligned(lambda k, i, j: (k * 2 + i) * 3 + j, 2, 2, 0.5, -np.inf)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(channels, np.broadcast_to(np.arange(12).reshape(2, 2, 3), shape))


def _spans(low: float, length: float, bins: int, size: int) -> list[slice]:
    step = max(length, 1) / bins
    edges = [(floor(k * step) + low, ceil((k + 1) * step) + low) for k in range(bins)]
    return [slice(*(int(min(max(e, 0), size)) for e in pair)) for pair in edges]


def test_bins_of_whole_elements(called: Called) -> None:
    results = [(f32, (len(ROIS), 12, *BINS)), (s32, (len(ROIS), 12, *BINS))]
    image = np.maximum(IMAGE, 0)  # many are equally large: the first of them counts
    best, places = called("torchvision.roi_pool.default", results, image, ROIS, 0.5, *BINS)
    means_of = [(t, (len(ROIS), 2, *BINS)) for t in (f32, s32)]
    means, _ = called("torchvision.ps_roi_pool.default", means_of, IMAGE, ROIS, 0.5, *BINS)
    for r, roi in enumerate(ROIS):
        x0, y0, x1, y1 = (floor(abs(v) * 0.5 + 0.5) * (1 if v > 0 else -1) for v in roi[1:])
        for k, i, j in np.ndindex(12, *BINS):
            rows = _spans(y0, y1 - y0 + 1, 2, 5)[i]
            columns = _spans(x0, x1 - x0 + 1, 3, 6)[j]
            plane = image[int(roi[0]), k]
            inside = plane[rows, columns]
            assert best[r, k, i, j] == inside.max(initial=0)
            number = np.arange(30).reshape(5, 6)[rows, columns]
            first = number.reshape(-1)[inside.argmax()] if inside.size else -1
            assert places[r, k, i, j] == first
        for k, i, j in np.ndindex(2, *BINS):
            rows, columns = _spans(y0, y1 - y0, 2, 4)[i], _spans(x0, x1 - x0, 3, 5)[j]
            inside = IMAGE[int(roi[0]), (k * 2 + i) * 3 + j][rows, columns]
            want = inside.mean(dtype=np.float64) if inside.size else 0
            np.testing.assert_allclose(means[r, k, i, j], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_a_kernel_that_reads_at_moved_places(called: Called, masked: bool) -> None:
    rng = np.random.default_rng(1)
    x, weight = IMAGE[:, :4], rng.standard_normal((6, 2, 3, 2), np.float32)
    out = (3, 8)  # strides 2, 1, padding 1, 2, dilations 1, 2
    offset = rng.normal(0, 2, (2, 2 * 2 * 6, *out)).astype(np.float32)
    mask, bias = rng.random((2, 2 * 6, *out), np.float32), np.arange(6, dtype=np.float32)
    numbers = (2, 1, 1, 2, 1, 2, 2, 2, masked)
    name, shape = "torchvision.deform_conv2d.default", (2, 6, *out)
    found = called(name, [(f32, shape)], x, weight, offset, mask, bias, *numbers)
    wide = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])  # what lies outside is 0
    want = np.zeros(shape) + bias[:, None, None]
    for n, o, i, j, c, a, b in np.ndindex(2, 6, *out, 2, 3, 2):
        channel = o // 3 * 2 + c
        tap = channel // 2 * 6 + a * 2 + b
        y = i * 2 - 1 + a + offset[n, tap * 2, i, j] + 1
        z = j * 1 - 2 + b * 2 + offset[n, tap * 2 + 1, i, j] + 1
        if -1 < y < wide.shape[2] and -1 < z < wide.shape[3]:
            value = _at(wide[n, channel], float(y), float(z)) * weight[o, c, a, b]
            want[n, o, i, j] += value * (mask[n, tap, i, j] if masked else 1)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
