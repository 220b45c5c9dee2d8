"""Resize, GridSample, DeformConv and regions, beside ONNX's reference."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(3)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


def floats(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", [*COORDINATES, "half_pixel_symmetric"])
@pytest.mark.parametrize("more", [{}, {"antialias": 1}, {"exclude_outside": 1}])
def test_resize_by_scales(check, mode, coordinates, more):
    scales = np.array([1, 1, 0.4, 1.7], np.float32)
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, **more}
    near = 4e-6 if more.get("antialias") else 1e-6  # places of wide windows, computed in f32
    check("Resize", [floats(2, 1, 7, 5), None, scales], known=[2], atol_=near, **attributes)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_resize_to_the_nearest(check, rounding, coordinates):
    for sizes in ([3, 14], [7, 5], [1, 2], [20, 3]):
        check(
            "Resize",
            [floats(7, 5), None, None, np.array(sizes)],
            known=[3],
            nearest_mode=rounding,
            coordinate_transformation_mode=coordinates,
        )


@pytest.mark.parametrize(
    ("coordinates", "places"), [("asymmetric", [0, 1, 3, 5]), ("half_pixel", [0, 2, 3, 5])]
)
def test_resize_does_not_fall_below_whole_places(check, coordinates, places):
    x = floats(7)  # 3 / 0.6 and 1.5 / 0.6 are below 5 and 2.5 in f64: the scale is one of f32
    check(
        "Resize",
        [x, None, np.array([0.6], np.float32)],
        known=[2],
        wanted=[x[places]],
        nearest_mode="floor",
        coordinate_transformation_mode=coordinates,
    )


@pytest.mark.parametrize(("old", "new"), [(9, 13), (10, 7)])
def test_resize_has_the_size_that_a_rounded_scale_was_made_of(check, old, new):
    x = floats(old)  # 13/9 and 7/10 are below themselves in f32, and their products whole there
    check(
        "Resize",
        [x, None, np.array([new / old], np.float32)],
        known=[2],
        wanted=[x[np.arange(new) * old // new]],
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


def test_resize_of_few_axes_in_their_order(check):
    check(
        "Resize",
        [floats(2, 6, 3, 9), None, None, np.array([4, 3])],
        known=[3],
        axes=[3, 1],
        mode="linear",
        keep_aspect_ratio_policy="not_larger",
    )


def test_resize_with_many_taps_is_a_product(check):
    sizes = np.array([1, 2, 3, 5])
    check(
        "Resize", [floats(1, 2, 64, 80), None, None, sizes], known=[3], mode="linear", antialias=1
    )


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_resize_of_a_cropped_region(check, mode):
    roi = np.array([0, 0, -0.2, 0.3, 1, 1, 1.1, 0.8], np.float32)
    inputs = [floats(1, 1, 6, 5), roi, None, np.array([1, 1, 4, 7])]
    attributes = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": mode}
    check("Resize", inputs, known=[1, 3], extrapolation_value=9.5, **attributes)


def test_resized_bytes_are_rounded(check):
    x = RNG.integers(0, 256, (1, 3, 5, 4), np.uint8)
    for mode in ("linear", "cubic"):
        sizes = np.array([1, 3, 8, 9])  # the reference computes in f64: halves may round apart
        check("Resize", [x, None, None, sizes], known=[3], mode=mode, atol_=1)


KINDS = [
    (mode, padding)
    for mode in ("nearest", "linear", "cubic")
    for padding in ("zeros", "border", "reflection")
    if (mode, padding) != ("cubic", "border")  # where the reference moves the places
]


@pytest.mark.parametrize(("mode", "padding"), KINDS)
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(check, mode, padding, corners):
    grid = (RNG.random((2, 3, 4, 2)) * 3 - 1.5).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    check("GridSample", [floats(2, 3, 5, 4), grid], rtol_=1e-3, **attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grid_sample_of_volumes(check, mode):
    grid = (RNG.random((1, 2, 3, 2, 3)) * 2.4 - 1.2).astype(np.float32)
    check("GridSample", [floats(1, 2, 4, 3, 5), grid], mode=mode, rtol_=1e-3)


def test_grid_sample_does_not_read_what_lies_outside(check):
    x = np.full((1, 1, 2, 2), np.inf, np.float32)
    grid = np.array([[[[-3, 0], [0, 5]]]], np.float32)
    check("GridSample", [x, grid], wanted=[np.zeros((1, 1, 1, 2), np.float32)])


def test_deformed_convolution_with_groups_and_mask(check):
    x, w = floats(2, 4, 5, 6), floats(6, 2, 3, 2)
    offset, mask = floats(2, 2 * 2 * 6, 3, 3), floats(2, 2 * 6, 3, 3)
    attributes = {"group": 2, "offset_group": 2, "strides": [2, 2], "pads": [1, 1, 1, 0]}
    check("DeformConv", [x, w, offset, floats(6), mask], rtol_=1e-4, **attributes)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("half", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(check, mode, half, ratio):
    rois = np.array([[0, 0, 4, 4], [1, 2, 7.5, 3], [-1, -1, 9, 9], [5, 5, 2, 2]], np.float32)
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": half,
        "sampling_ratio": ratio,
        "output_height": 2,
        "output_width": 3,
        "spatial_scale": 0.8,
    }
    inputs = [floats(2, 3, 6, 7), rois[: 3 if ratio == 0 else 4], np.array([1, 0, 1, 0])]
    inputs[2] = inputs[2][: len(inputs[1])]
    check("RoiAlign", inputs, rtol_=1e-4, **attributes)


def test_max_roi_pool_takes_rounded_bins(check):
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    rois = np.array([[0, 0, 0, 5, 5], [0, 1.4, 1.6, 3, 4]], np.float32)
    right = [[[[14, 17], [32, 35]]], [[[20, 21], [26, 27]]]]
    wanted = [np.array(right, np.float32)]
    check("MaxRoiPool", [x, rois], pooled_shape=[2, 2], wanted=wanted)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [[1, 2, 3, 4], [2, 1, 1, 3], [1, 1, 3, 1, 2]])
def test_grids_of_matrices(check, size, corners):
    rank = len(size) - 2
    theta = floats(size[0], rank, rank + 1)
    with np.errstate(divide="ignore"):  # by the reference, where a size is 1
        check("AffineGrid", [theta, np.array(size)], known=[1], align_corners=corners)


def test_cubic_interpolation_at_the_border_moves_neighbors_not_places(check):
    x = np.array([1, 2, 4], np.float32).reshape(1, 1, 1, 3)
    grid = np.array([1.2, 0.0], np.float32).reshape(1, 1, 1, 2)  # place 2.2: neighbors 1, 2, 2, 2
    wanted = np.full((1, 1, 1, 1), -0.096 * 2 + 1.096 * 4, np.float32)
    attributes = {"mode": "cubic", "padding_mode": "border", "align_corners": 1}
    check("GridSample", [x, grid], wanted=[wanted], **attributes)


def test_a_region_s_places_are_those_of_f32(check):
    x = floats(6)  # 0.1 is above itself in f32, and its product with 5 not
    check(
        "Resize",
        [x, np.array([0.1, 0.9], np.float32), None, np.array([5])],
        known=[1, 3],
        wanted=[x[:5]],
        coordinate_transformation_mode="tf_crop_and_resize",
    )
