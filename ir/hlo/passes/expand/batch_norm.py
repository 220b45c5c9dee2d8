"""Batch normalization as element-wise arithmetic and reductions.

With mean m and variance v over all dimensions but the feature's, over N elements each:
inference and training give ``(x - m) / sqrt(v + eps) * scale + offset``; the gradients of a loss
with gradient g at the output are, with ``y = (x - m) / sqrt(v + eps)``,

    d scale = sum(g y)    d offset = sum(g)
    d x = scale / sqrt(v + eps) * (g - (sum(g) + y sum(g y)) / N)

(Ioffe and Szegedy, 2015, section 3).
"""

from __future__ import annotations

from dataclasses import replace

from ....dtypes import f32
from ...nodes import HloModule, Instruction
from ...patterns import build
from ...patterns.match import is_static
from ...rewrite import make, map_computations, rebuild
from ..canonical.dot import sum_over


def expand_batch_norm(module: HloModule) -> HloModule:
    """``batch-norm-inference``, ``-training``, ``-grad``  ->  arithmetic on the same values."""
    return map_computations(module, lambda c: rebuild(c, _expand))


def _expand(i: Instruction) -> Instruction | None:
    if not i.opcode.startswith("batch-norm-") or not all(map(is_static, i.operands)):
        return None
    small = i.operands[0].array.dtype.bits < f32.bits
    return _in_f32(i) if small else _arithmetic(i)


def _in_f32(i: Instruction) -> Instruction:
    """Compute floats of fewer bits in f32 and round once at the end."""
    operands = tuple(build.convert(x, f32) for x in i.operands)
    dtype = i.operands[0].array.dtype
    result = _arithmetic(replace(i, operands=operands))
    if result.opcode != "tuple":
        return build.convert(result, dtype)
    parts = tuple(build.convert(x, dtype) for x in result.operands)
    return make("tuple", i.shape, parts)


def _arithmetic(i: Instruction) -> Instruction:
    match i.opcode:
        case "batch-norm-inference":
            x, scale, offset, mean, variance = i.operands
            return _normalized(i, x, scale, offset, mean, variance)
        case "batch-norm-training":
            return _training(i)
        case _:
            return _gradient(i)


def _spread(i: Instruction, vector: Instruction) -> Instruction:
    """Broadcast a value per feature to the shape of the input."""
    return build.broadcast(vector, (i.attrs["feature_index"],), i.operands[0].array.dims)


def _inverse_deviation(i: Instruction, variance: Instruction) -> Instruction:
    epsilon = build.full(i.attrs["epsilon"], variance.array.dtype, variance.array.dims)
    return build.pointwise("rsqrt", build.pointwise("add", variance, epsilon))


def _normalized(
    i: Instruction,
    x: Instruction,
    scale: Instruction,
    offset: Instruction,
    mean: Instruction,
    variance: Instruction,
) -> Instruction:
    factor = build.pointwise("multiply", _inverse_deviation(i, variance), scale)
    centered = build.pointwise("subtract", x, _spread(i, mean))
    scaled = build.pointwise("multiply", centered, _spread(i, factor))
    return build.pointwise("add", scaled, _spread(i, offset))


def _mean(i: Instruction, x: Instruction) -> Instruction:
    """Return the mean over all dimensions but the feature's."""
    feature = i.attrs["feature_index"]
    total = sum_over(x, tuple(d for d in range(x.array.rank) if d != feature))
    count = build.full(_count(i), total.array.dtype, total.array.dims)
    return build.pointwise("divide", total, count)


def _count(i: Instruction) -> int:
    x, feature = i.operands[0].array, int(i.attrs["feature_index"])
    return max(1, x.size // max(1, x.dims[feature]))


def _training(i: Instruction) -> Instruction:
    x, scale, offset = i.operands
    mean = _mean(i, x)
    centered = build.pointwise("subtract", x, _spread(i, mean))
    variance = _mean(i, build.pointwise("multiply", centered, centered))
    result = _normalized(i, x, scale, offset, mean, variance)
    parts = (result, mean, variance)
    return build.tuple_of(parts)


def _gradient(i: Instruction) -> Instruction:
    x, scale, mean, variance, g = i.operands
    inverse = _inverse_deviation(i, variance)
    centered = build.pointwise("subtract", x, _spread(i, mean))
    y = build.pointwise("multiply", centered, _spread(i, inverse))
    axes = tuple(d for d in range(x.array.rank) if d != i.attrs["feature_index"])
    g_offset = sum_over(g, axes)
    g_scale = sum_over(build.pointwise("multiply", g, y), axes)
    drift = build.pointwise("multiply", y, _spread(i, g_scale))
    both = build.pointwise("add", _spread(i, g_offset), drift)
    count = build.full(_count(i), x.array.dtype, x.array.dims)
    rest = build.pointwise("subtract", g, build.pointwise("divide", both, count))
    factor = build.pointwise("multiply", scale, inverse)
    parts = (build.pointwise("multiply", _spread(i, factor), rest), g_scale, g_offset)
    return build.tuple_of(parts)
