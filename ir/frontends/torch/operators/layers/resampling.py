"""Images at another size, or at computed places: nearest, linear and cubic interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from .....arrays import Array
from .....dtypes import f32, f64, u8
from ....lax.images.resize import Rule, Samples, Stretch, resample, samples
from ....lax.images.resize_bytes import resized_bytes
from ....lax.images.sampling import grid_gradient, grid_sample, image_gradient
from ....lax.linear import dot_general
from ....lax.shaping import full, move_axis
from ....lax.term import Term
from ..call import AtenCall, Operator, Rows, wide

Real: TypeAlias = "type[np.floating[Any]]"


def _real(x: Term) -> Real:
    """The type of steps and weights: torch computes these of f64 alone in f64."""
    return np.float64 if x.dtype == f64 else np.float32


def _ratio(n: int, out: int, scale: float | None, real: Real = np.float32) -> Any:
    """The step in the operand for one of the result, as torch rounds it."""
    return real(1 / scale) if scale else real(n) / real(out)


def _nearest_places(n: int, out: int, scale: float | None, exact: bool) -> Array:
    at = np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)
    places: Array = np.floor(at * _ratio(n, out, scale)).astype(np.int64)
    return np.minimum(places, n - 1)


def _nearest(rank: int, exact: bool) -> Operator:
    def write(c: AtenCall, x: Term, size: Any, *scales: Any) -> Term:
        for axis, scale in zip(range(2, x.rank), _scales(rank, scales), strict=True):
            places = _nearest_places(x.dims[axis], c.dims[axis], scale, exact)
            x = resample(x, axis, Samples(places[:, None], np.ones((len(places), 1))))
        return x

    return write


def _scales(rank: int, given: Sequence[Any]) -> list[float | None]:
    """Scale factors, one for each dimension: given as a list, one by one, or not at all."""
    flat = [v for g in given for v in (g if isinstance(g, list | tuple) else [g])]
    return (flat + [None] * rank)[:rank]


def _floats(x: Term) -> Term:
    return wide(x) if x.dtype.is_float else x.to(f32)


def _rounded(found: Term, x: Term) -> Term:
    """Sums of whole numbers as whole numbers again, held in the range of ``x``."""
    return found if x.dtype.is_float else found.do("round-nearest-even").to(x.dtype)


def _linear(rank: int) -> Operator:
    def write(c: AtenCall, x: Term, size: Any, align: bool, *scales: Any) -> Term:
        if rank == 2 and x.dtype == u8:
            return _bytes(c, x, Rule("linear", "half_pixel"), align, scales)
        found = _floats(x)
        axes = zip(range(2, x.rank), _scales(rank, scales), strict=True)
        for axis, scale in reversed(list(axes)):  # the last first: the others copy whole rows
            found = _interpolated(found, axis, c.dims[axis], align, scale)
        return _rounded(found, x)

    return write


def _linear_places(
    n: int, out: int, align: bool, scale: float | None, real: Real
) -> tuple[Array, Array]:
    """The lower place and the weight of the next one, for each element of the result."""
    at = np.arange(out, dtype=real)
    if align:
        place = at * real((n - 1) / (out - 1) if out > 1 else 0)
    else:
        place = np.maximum((at + real(0.5)) * _ratio(n, out, scale, real) - real(0.5), 0)
    low = np.minimum(np.floor(place).astype(np.int64), n - 1)
    return low, np.clip(place - low, 0, 1).astype(real).astype(np.float64)


def _interpolated(x: Term, axis: int, out: int, align: bool, scale: float | None) -> Term:
    n = x.dims[axis]
    low, weight = _linear_places(n, out, align, scale, _real(x))
    if not weight.any() and out == n:
        return x
    places = np.stack([low, np.minimum(low + 1, n - 1)], 1)
    return resample(x, axis, Samples(places, np.stack([1 - weight, weight], 1)))


def _nearest_backward(rank: int, exact: bool) -> Operator:
    def write(c: AtenCall, grad: Term, size: Any, input_size: Sequence[int], *scales: Any) -> Term:
        found = wide(grad)
        for axis, scale in zip(range(2, grad.rank), _scales(rank, scales), strict=True):
            places = _nearest_places(c.dims[axis], grad.dims[axis], scale, exact)
            ones = np.ones((len(places), 1))
            found = _returned(found, axis, c.dims[axis], Samples(places[:, None], ones))
        return found

    return write


def _returned(grad: Term, axis: int, n: int, found: Samples) -> Term:
    """Each number added to the elements that it was made of, by their weights: a product."""
    rows = np.arange(len(found.positions))[:, None]
    matrix = np.zeros((len(rows), n))
    np.add.at(matrix, (rows, found.positions), found.weights)
    weights = Term(grad.site, grad.site.constant(matrix.astype(_real(grad)))).to(grad.dtype)
    return move_axis(dot_general(grad, weights, ([axis], [0])), -1, axis)


def _cubic(c: AtenCall, x: Term, size: Any, align: bool, *scales: Any) -> Term:
    if x.dtype == u8:
        return _bytes(c, x, Rule("cubic", "half_pixel"), align, scales)
    found = _floats(x)
    for axis, scale in zip((2, 3), _scales(2, scales), strict=True):
        n, out = x.dims[axis], c.dims[axis]
        coordinates = "align_corners" if align else "half_pixel"
        ratio = out / n if align else 1 / float(_ratio(n, out, scale, _real(x)))
        found = resample(found, axis, samples(Stretch(n, out, ratio), Rule("cubic", coordinates)))
    return _rounded(found, x)


def _bytes(c: AtenCall, x: Term, rule: Rule, align: bool, scales: Sequence[Any]) -> Term:
    """Both dimensions of images of bytes, the rows first; steps are in f64."""
    if align and not rule.antialias:
        rule = replace(rule, coordinates="align_corners")
    for axis, scale in reversed(list(zip((2, 3), _scales(2, scales), strict=True))):
        n, out = x.dims[axis], c.dims[axis]
        if n == out:
            continue
        factor = scale or out / n
        if align and rule.antialias:
            factor = (out - 1) / (n - 1) if out > 1 and n > 1 else math.inf
        x = resized_bytes(x, axis, Stretch(n, out, factor), rule)
    return x


def _antialiased(mode: str) -> Operator:
    rule = _wide_kernel(mode)

    def write(c: AtenCall, x: Term, size: Any, align: bool, *scales: Any) -> Term:
        if x.dtype == u8:
            return _bytes(c, x, rule, align, scales)
        found = _floats(x)
        for axis, scale in zip((2, 3), _scales(2, scales), strict=True):
            stretch = _stretch(x.dims[axis], c.dims[axis], align, scale, _real(x))
            found = resample(found, axis, samples(stretch, rule))
        return _rounded(found, x)

    return write


def _antialiased_backward(mode: str) -> Operator:
    rule = _wide_kernel(mode)

    def write(c: AtenCall, grad: Term, size: Any, given: Any, align: bool, *scales: Any) -> Term:
        found = wide(grad)
        for axis, scale in zip((2, 3), _scales(2, scales), strict=True):
            stretch = _stretch(c.dims[axis], grad.dims[axis], align, scale, _real(grad))
            found = _returned(found, axis, c.dims[axis], samples(stretch, rule))
        return found

    return write


def _wide_kernel(mode: str) -> Rule:
    """Kernels as wide as a step where the image shrinks, by the weights of what is in the image."""
    return Rule(mode, "half_pixel", cubic=-0.5, exclude_outside=True, antialias=True)


def _stretch(n: int, out: int, align: bool, scale: float | None, real: Real) -> Stretch:
    ratio = float(_ratio(n, out, scale, real))
    if align:
        ratio = (n - 1) / (out - 1) if out > 1 else 0.0
    return Stretch(n, out, 1 / ratio if ratio else math.inf)


def _grid_sample(
    c: AtenCall, x: Term, grid: Term, mode: int, padding: int, align_corners: bool
) -> Term:
    if not c.shape.size:
        return full(c.graph, 0, c.dtype, c.dims)
    return grid_sample(wide(x), wide(grid), *_of_grids(mode, padding), align_corners)


def _of_grids(mode: int, padding: int) -> tuple[str, str]:
    """The names of a mode and a padding."""
    name = ("bilinear", "nearest", "bicubic")[mode]
    return name, ("zeros", "border", "reflection")[padding]


def _grid_sample_backward(
    c: AtenCall,
    grad: Term,
    x: Term,
    grid: Term,
    mode: int,
    padding: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> list[Term | None]:
    if not grad.shape.size:
        zeros = (full(c.graph, 0, t.dtype, t.dims) for t in (x, grid))
        return [t if asked else None for t, asked in zip(zeros, output_mask, strict=True)]
    given = wide(grad), wide(x), wide(grid)
    names = _of_grids(mode, padding)
    gradients = zip((image_gradient, grid_gradient), output_mask, strict=True)
    return [f(*given, *names, align_corners) if asked else None for f, asked in gradients]


def _both(name: str, operator: Operator) -> Rows:
    return {f"aten.{name}.{kind}": operator for kind in ("vec", "default")}


_LINEAR = {"linear1d": 1, "bilinear2d": 2, "trilinear3d": 3}

ROWS: Rows = {
    **_both("upsample_bicubic2d", _cubic),
    **{
        k: v
        for name, mode in (("bilinear", "linear"), ("bicubic", "cubic"), ("lanczos", "lanczos"))
        for k, v in {
            **_both(f"_upsample_{name}2d_aa", _antialiased(mode)),
            f"aten._upsample_{name}2d_aa_backward.default": _antialiased_backward(mode),
        }.items()
    },
    "aten.grid_sampler_2d.default": _grid_sample,
    "aten.grid_sampler_3d.default": _grid_sample,
    "aten.grid_sampler_2d_backward.default": _grid_sample_backward,
    "aten.grid_sampler_3d_backward.default": _grid_sample_backward,
    **{
        k: v
        for n in (1, 2, 3)
        for name, exact in (("upsample_nearest", False), ("_upsample_nearest_exact", True))
        for k, v in {
            **_both(f"{name}{n}d", _nearest(n, exact)),
            f"aten.{name}{n}d_backward.default": _nearest_backward(n, exact),
        }.items()
    },
    **{
        k: v
        for name, n in _LINEAR.items()
        for k, v in _both(f"upsample_{name}", _linear(n)).items()
    },
}
