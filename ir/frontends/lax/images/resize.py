"""Images at another size: one axis after the other, each as a weighted sum of its neighbors.

The rules are those of ONNX's ``Resize``, which has the choices of other frameworks as attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....arrays import Array
from ....dtypes import DType, f32, f64, pred, s32
from ..indexing import take
from ..linear import matmul
from ..shaping import broadcast_to, expand_dims, literal, reshape, slice_, transpose
from ..term import Term

MOST_TAPS = 8
"""Most neighbors that are added one by one; more of them make a product with a matrix."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The attributes of a Resize that say where an element comes from and how it is weighed."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """One axis to resize: sizes before and after, scale, and the part that is read, of 0 to 1."""

    size: int
    new: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class Samples:
    """``positions[o, k]`` is weighed by ``weights[o, k]``; where ``outside[o]`` none of them is."""

    positions: Array
    weights: Array
    outside: Array | None = None


def sources(axis: Stretch, coordinates: str, dtype: type[Any] = np.float64) -> Array:
    """Return the places of the result's elements on the operand's axis by the formulas of the
    attribute ``coordinate_transformation_mode``; quotients by the scale are in ``dtype``."""
    y = np.arange(axis.new, dtype=np.float64)
    length, last = axis.scale * axis.size, axis.size - 1
    whole = ((y + 0.5) / axis.scale).astype(dtype)
    half = whole - 0.5
    match coordinates:
        case "asymmetric":
            return (y / axis.scale).astype(dtype)
        case "half_pixel":
            return half
        case "pytorch_half_pixel":
            return half if axis.new > 1 else np.full_like(y, -0.5 if length == 1 else half[0])
        case "half_pixel_symmetric":
            return axis.size / 2 * (1 - axis.new / length) + whole - 0.5
        case "tf_half_pixel_for_nn":
            return whole
        case "align_corners":
            return y * 0 if length == 1 else y * last / (length - 1)
        case "tf_crop_and_resize":
            ends: Array = np.array([axis.start, axis.end], dtype)
            if length == 1:
                return np.full_like(y, ends.mean() * last)
            step = y.astype(dtype) * (ends[1] - ends[0]) * last / dtype(length - 1)
            cropped: Array = ends[0] * last + step
            return cropped
        case _:
            raise ValueError(f"no coordinate_transformation_mode is called {coordinates!r}")


NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""By ``nearest_mode``."""


def _triangle(x: Array, rule: Rule) -> Array:
    found: Array = np.maximum(1 - np.abs(x), 0.0)
    return found


def _keys(x: Array, rule: Rule) -> Array:
    """Cubic convolution (R. Keys, 1981) with the free parameter ``cubic_coeff_a``."""
    a, d = rule.cubic, np.abs(x)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _lanczos(x: Array, rule: Rule) -> Array:
    """Three lobes of sinc, weighed by a wider one (C. Lanczos, 1956)."""
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


KERNELS: dict[str, tuple[int, Callable[[Array, Rule], Array]]] = {
    "linear": (1, _triangle),
    "cubic": (2, _keys),
    "lanczos": (3, _lanczos),
}
"""By ``mode``: how far a kernel reaches, and its values."""


def samples(axis: Stretch, rule: Rule) -> Samples:
    """Return what each element of the result is made of."""
    crops = rule.coordinates == "tf_crop_and_resize"
    near = sources(axis, rule.coordinates, np.float32)  # where 3 / 0.6 is 5, and not below it
    outside = (near < 0) | (near > axis.size - 1) if crops else None
    if rule.mode == "nearest":
        near = np.clip(NEAREST[rule.nearest](near), 0, axis.size - 1).astype(np.int64)
        return Samples(near[:, None], np.ones((axis.new, 1)), outside)
    x = sources(axis, rule.coordinates)
    reach, kernel = KERNELS[rule.mode]
    shrink = min(axis.scale, 1.0) if rule.antialias else 1.0
    first = int(np.floor(-reach / shrink)) + 1
    taps = np.arange(first, 2 - first)
    below = np.ceil(x) - 1
    weights = kernel((taps - (x - below)[:, None]) * shrink, rule)
    positions = below.astype(np.int64)[:, None] + taps
    if rule.exclude_outside:
        weights = np.where((positions < 0) | (positions >= axis.size), 0.0, weights)
    if rule.exclude_outside or rule.antialias:
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return Samples(np.clip(positions, 0, axis.size - 1), weights, outside)


def _picked(x: Term, positions: Array, d: int) -> Term:
    """Elements at constant positions of one dimension: repeated, strided, or gathered."""
    size, new = x.dims[d], len(positions)
    if new and new % size == 0 and np.array_equal(positions, np.arange(new) // (new // size)):
        times = new // size
        wide = (*x.dims[: d + 1], times, *x.dims[d + 1 :])
        spread = broadcast_to(expand_dims(x, [d + 1]), wide)
        return reshape(spread, (*x.dims[:d], new, *x.dims[d + 1 :]))
    step = int(positions[1] - positions[0]) if new > 1 else 1
    if new and step > 0 and np.array_equal(positions, positions[0] + step * np.arange(new)):
        low = [0] * x.rank
        high, steps = list(x.dims), [1] * x.rank
        low[d], high[d], steps[d] = int(positions[0]), int(positions[-1]) + 1, step
        return slice_(x, low, high, steps)
    return take(x, literal(x.site, positions, s32), d)


def _along(values: Array, x: Term, d: int, dtype: DType) -> Term:
    """A constant per element of one dimension, to be broadcast."""
    dims = [1] * x.rank
    dims[d] = len(values)
    return literal(x.site, values.reshape(dims), dtype)


def resample(x: Term, d: int, found: Samples) -> Term:
    """One dimension of a float array, resized."""
    count = found.positions.shape[1]
    if count == 1:
        return _picked(x, found.positions[:, 0], d)
    if count > MOST_TAPS:
        matrix = np.zeros((len(found.positions), x.dims[d]))
        rows = np.arange(len(matrix))[:, None]
        np.add.at(matrix, (rows, found.positions), found.weights)
        order = [k for k in range(x.rank) if k != d] + [d]
        last = matmul(transpose(x, order), literal(x.site, matrix.T, x.dtype))
        back = [order.index(k) for k in range(x.rank)]
        return transpose(last, back)
    total: Term | None = None
    for k in range(count):
        part = _picked(x, found.positions[:, k], d) * _along(found.weights[:, k], x, d, x.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


def resize(x: Term, axes: Sequence[tuple[int, Stretch]], rule: Rule) -> Term:
    """``x`` with each of the dimensions given resized; integers are rounded and saturate."""
    dtype = x.dtype
    exact = rule.mode == "nearest"
    if not exact and not dtype.is_float:
        x = x.to(f64 if dtype.bits > 16 else f32)
    for d, axis in axes:
        whole = (axis.start, axis.end) == (0.0, 1.0) or rule.coordinates != "tf_crop_and_resize"
        if axis.size == axis.new and axis.scale == 1 and whole:
            continue
        found = samples(axis, rule)
        x = resample(x, d, found)
        if found.outside is not None and found.outside.any():
            x = _along(found.outside, x, d, pred).select(rule.extrapolation, x)
    if x.dtype == dtype:
        return x
    return x.do("round-nearest-even").to(dtype)  # which saturates
