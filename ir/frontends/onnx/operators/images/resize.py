"""Resize and Upsample: their attributes, sizes and scales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .....hlo.limits import require_bytes
from ....lax.images.resize import Rule, Stretch, resize
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator


def _rule(node: Node) -> Rule:
    if node.version == 10:
        return Rule(mode=_mode(node), coordinates="asymmetric", nearest="floor")
    return Rule(
        mode=_mode(node),
        coordinates=node.string("coordinate_transformation_mode"),
        nearest=node.string("nearest_mode"),
        cubic=node.float_("cubic_coeff_a"),
        exclude_outside=bool(node.int_("exclude_outside")),
        antialias=bool(node.int_("antialias", 0)),
        extrapolation=node.float_("extrapolation_value"),
    )


def _mode(node: Node) -> str:
    name = node.string("mode", "nearest")
    return {"bilinear": "linear", "trilinear": "linear"}.get(name, name)


def _given(node: Node, n: int) -> list[float] | None:
    """The numbers of an input; None where it is left out or empty."""
    x = node.optional(n)
    if x is None or not x.shape.size:
        return None
    return [float(v) for v in node.known(n).reshape(-1)]


def _plan(node: Node, x: Term) -> list[tuple[int, Stretch]]:
    """Return what becomes of each dimension that the node names."""
    first = 1 if node.version == 10 else 2
    scales, sizes = _given(node, first), _given(node, first + 1)
    named = node.ints("axes")
    axes = [node.dimension(a, x.rank) for a in named] if named else list(range(x.rank))
    if len(sizes or scales or ()) != len(axes):
        node.malformed(f"it has not one scale or size for each of {len(axes)} dimensions")
    old = [x.dims[d] for d in axes]
    if sizes is not None:
        scales, new = _fitted(node, old, [int(s) for s in sizes])
    else:
        assert scales is not None
        new = [_stretched(n, s) for n, s in zip(old, scales, strict=True)]
    if any(s <= 0 for s in scales) or any(n < 0 for n in new):
        node.malformed(f"its scales {scales} are not all positive")
    crops = node.version > 10 and node.string("coordinate_transformation_mode")
    roi = _given(node, 1) if crops == "tf_crop_and_resize" else None
    roi = roi or [0.0] * len(axes) + [1.0] * len(axes)
    parts = zip(old, new, scales, roi[: len(axes)], roi[len(axes) :], strict=True)
    return [(d, Stretch(*part)) for d, part in zip(axes, parts, strict=True)]


def _stretched(n: int, scale: float) -> int:
    """The whole part of a product in f32: a scale that was rounded from 13/9 makes 13 of 9."""
    return int(np.float32(n) * np.float32(scale))


def _fitted(node: Node, old: list[int], sizes: list[int]) -> tuple[list[float], list[int]]:
    """Scales and sizes by ``keep_aspect_ratio_policy``."""
    scales = [n / o if o else 1.0 for n, o in zip(sizes, old, strict=True)]
    policy = node.string("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales, sizes
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [scale] * len(old), [int(scale * n + 0.5) for n in old]


@operator("Resize", since=10, sized=True)
def resize_node(node: Node) -> Term:
    """Sizes, scales and the region of interest have to be known when the model is read.

    In operator set 10 an axis that shrinks takes the element above, as ONNX's example shows.
    """
    x = node.input(0)
    plan = _plan(node, x)
    for _, axis in plan:
        require_bytes(axis.new * 8, "its result", node.place)
    rule = _rule(node)
    if node.version > 10:
        return _resized(node, x, plan, rule)
    shrunk = [(d, axis) for d, axis in plan if axis.scale < 1]
    x = _resized(node, x, shrunk, replace(rule, nearest="ceil"))
    return _resized(node, x, [part for part in plan if part not in shrunk], rule)


def _resized(node: Node, x: Term, plan: list[tuple[int, Stretch]], rule: Rule) -> Term:
    """Dimensions of other sizes, none of which depend on values before."""
    node.fixed(x, [d for d, a in plan if (a.size, a.scale) != (a.new, 1)])
    return resize(x, plan, rule)


@operator("Upsample", sized=True)
def upsample(node: Node) -> Term:
    """Resize as it was up to operator set 9: nearest from below, or linear."""
    x = node.input(0)
    scales = node.floats("scales") or [float(s) for s in node.known(1)]
    plan = [
        (d, Stretch(n, _stretched(n, s), s))
        for d, (n, s) in enumerate(zip(x.dims, scales, strict=True))
    ]
    rule = Rule(mode=_mode(node), coordinates="asymmetric", nearest="floor")
    return _resized(node, x, plan, rule)
