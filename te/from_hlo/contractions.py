"""Dot and convolution as blocks ``out += a * b`` whose every index is linear in the axes.

Sums of f16 and bf16 are kept in f32 and rounded once, where they are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dtypes import accumulator
from ...ir.hlo.attributes import SKIPS
from ...ir.hlo.nodes import ConvLabels, Instruction, WindowDim
from ...ir.loop.build import add, cast, const, mul, op, select, sub
from ...ir.loop.nodes import AxisKind, Expr, Load
from .. import blocks
from ..blocks import Axis, variables
from .padding import padded, unpadded
from .plan import is_padded
from .scalars import literal, refuse
from .stages import Draft


def dot(d: Draft, x: Instruction) -> None:
    """``out[b.., m.., n..] += lhs[b, m, k] * rhs[b, k, n]``, with the dimensions in any order."""
    batch = x.attrs.get("lhs_batch_dims", ()), x.attrs.get("rhs_batch_dims", ())
    contracted = x.attrs.get("lhs_contracting_dims", ()), x.attrs.get("rhs_contracting_dims", ())
    extents = x.operands[0].array.dims
    space = d.emitter.spatial(x.array.dims)
    terms = d.emitter.reducing([extents[n] for n in contracted[0]])
    outer, inner = variables(space), variables(terms)
    free = iter(outer[len(batch[0]) :])  # first those of the left operand, then of the right one
    values = []
    for n, operand in enumerate(x.operands):
        known = dict(zip(batch[n], outer, strict=False))
        known.update(zip(contracted[n], inner, strict=True))
        place = [known[i] if i in known else next(free) for i in range(operand.array.rank)]
        values.append(d.emitter.element(operand, place))
    _contract(d, x, (*space, *terms), outer, values[0], values[1])


def convolution(d: Draft, x: Instruction) -> None:
    """``out[b, y.., f] += in[b, y * stride + k * dilation.., c] * w[k.., c, f]``.

    Padding and dilation of the input go to a block of their own, so that the inner loops have no
    condition, unless the convolution skips its holes: then each product has one. With feature
    groups the features are two axes (group, feature in it); a depthwise convolution needs one.
    """
    if x.attrs.get("batch_group_count", 1) != 1:
        refuse(x, d.emitter.computation, "it has batch groups", hint="optimize the module")
    lhs, rhs = x.operands
    labels: ConvLabels = x.attrs["dim_labels"]
    window: Sequence[WindowDim] = x.attrs.get("window", ())
    channels = rhs.array.dims[labels.rhs_input]
    space, at, group = _result_axes(d, x, labels)
    wide = [n for n, w in enumerate(window) if w.size != 1]
    deep = channels != 1 or not wide
    sizes = [window[n].size for n in wide]
    terms = d.emitter.reducing([*sizes, channels] if deep else sizes)
    inner = variables(terms)
    kernel = dict(zip(wide, inner, strict=False))
    channel = inner[-1] if deep else const(0)

    taken: list[Expr] = [const(0)] * len(at)
    weight: list[Expr] = [const(0)] * len(at)
    taken[labels.lhs_batch] = at[labels.out_batch]
    taken[labels.lhs_feature] = add(mul(group, channels), channel)
    weight[labels.rhs_input], weight[labels.rhs_output] = channel, at[labels.out_feature]
    for n, w in enumerate(window):
        k = kernel.get(n, const(0))
        start = mul(at[labels.out_spatial[n]], w.stride)
        taken[labels.lhs_spatial[n]] = add(start, mul(k, w.rhs_dilate))
        weight[labels.rhs_spatial[n]] = sub(w.size - 1, k) if w.reversal else k
    condition: Expr | None = None
    if x.attrs.get(SKIPS):
        inputs = dict(zip(labels.lhs_spatial, window, strict=True))
        taken, condition = unpadded(d, lhs, taken, inputs)
        a = d.emitter.element(lhs, taken) if lhs.array.size else literal(0, lhs.array.dtype)
    elif is_padded(x):
        reach = {
            labels.lhs_spatial[n]: (w, x.array.dims[labels.out_spatial[n]])
            for n, w in enumerate(window)
        }
        zero = literal(0, lhs.array.dtype)
        a = Load(padded(d, lhs, reach, zero), tuple(taken))
    else:
        a = d.emitter.element(lhs, taken)
    _contract(d, x, (*space, *terms), at, a, d.emitter.element(rhs, weight), condition)


def _result_axes(
    d: Draft, x: Instruction, labels: ConvLabels
) -> tuple[tuple[Axis, ...], tuple[Expr, ...], Expr]:
    """Spatial axes of a convolution, the index of its result, and the feature group."""
    feature, count = labels.out_feature, x.attrs.get("feature_group_count", 1)
    extents = list(x.array.dims)
    each = extents[feature] // max(count, 1)
    if count == 1 or each == 1:
        space = d.emitter.spatial(extents)
        at = variables(space)
        return space, at, const(0) if count == 1 else at[feature]
    space = d.emitter.spatial([*extents[:feature], count, each, *extents[feature + 1 :]])
    split = variables(space)
    group = split[feature]
    whole = add(mul(group, each), split[feature + 1])
    return space, (*split[:feature], whole, *split[feature + 2 :]), group


def _contract(
    d: Draft,
    x: Instruction,
    axes: Sequence[Axis],
    at: tuple[Expr, ...],
    a: Expr,
    b: Expr,
    condition: Expr | None = None,
) -> None:
    """The block ``out[at] += a * b``; a plain product where nothing is summed.

    Where ``condition`` is false the product is zero.
    """
    dtype = accumulator(x.array.dtype)
    name = d.fresh("dot" if x.opcode == "dot" else "conv")
    out = d.target((x, 0), name, x.array.dims, dtype)
    product: Expr = op("multiply", cast(a, dtype), cast(b, dtype))
    if condition is not None:
        product = select(condition, product, literal(0, dtype))
    if any(axis.kind is AxisKind.REDUCE for axis in axes):
        body = blocks.store(out, at, op("add", Load(out, at), product))
        init = blocks.store(out, at, literal(0, dtype))
        d.body.append(blocks.nest(name, axes, body, init))
    else:
        d.body.append(blocks.nest(name, axes, blocks.store(out, at, product)))
    d.done((x, 0), out)
