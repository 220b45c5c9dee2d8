"""Convolutions, also transposed and grouped, and their gradients; deformable convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from .....hlo.nodes import ConvLabels
from ....lax.functions import wide
from ....lax.images.sampling import deformed_conv
from ....lax.linear import conv, conv_transpose
from ....lax.reductions import sum_
from ....lax.shaping import full, per_channel, slice_
from ....lax.term import Term
from ..call import AtenCall, Rows, Sized

Ints = Sequence[int]


def _spread(values: Ints, count: int) -> list[int]:
    """A number for each dimension; one given counts for all."""
    return list(values) * count if len(values) == 1 else list(values)


def _convolution(
    c: AtenCall,
    x: Term,
    weight: Term,
    bias: Term | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Term:
    c.fixed(x, range(1, x.rank))
    c.fixed(weight, range(weight.rank))
    if not c.shape.size or not x.shape.size or not weight.shape.size:
        found = full(c.graph, 0, c.dtype, c.dims)
    elif transposed:
        found = _transposed(x, weight, stride, padding, dilation, c.dims[2:], groups)
    else:
        found = _plain(x, weight, stride, padding, dilation, groups)
    if bias is None:
        return found
    return found + per_channel(bias.to(found.dtype), x.rank)


def _plain(x: Term, weight: Term, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Term:
    n = x.rank - 2
    pads = [(p, p) for p in _spread(padding, n)]
    apart = _spread(dilation, n)
    return conv(
        x, weight, _spread(stride, n), pads, rhs_dilation=apart, groups=groups, dtype=wide(x.dtype)
    )


def _transposed(
    x: Term,
    weight: Term,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    size: Ints,
    groups: int,
) -> Term:
    """The adjoint of a convolution whose operand has this ``size``."""
    low, steps, apart = (_spread(v, x.rank - 2) for v in (padding, stride, dilation))
    return conv_transpose(x, weight, size, steps, low, apart, groups=groups, dtype=wide(x.dtype))


def _kernel_gradient(
    x: Term, grad: Term, size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Term:
    """The gradient ``[o, i, ..]`` of a kernel, of its operand and of its result's gradient."""
    n = x.rank - 2
    steps, apart = _spread(stride, n), _spread(dilation, n)
    pads = []
    for k, p in enumerate(_spread(padding, n)):
        reach = (grad.dims[2 + k] - 1) * steps[k] + 1
        pads.append((p, (size[k] - 1) * apart[k] + reach - x.dims[2 + k] - p))
    place = tuple(range(2, 2 + n))
    labels = ConvLabels(1, 0, place, 0, 1, place, 1, 0, place)
    return conv(
        x,
        grad,
        apart,
        pads,
        rhs_dilation=steps,
        batch_groups=groups,
        labels=labels,
        dtype=wide(x.dtype),
    )


def _backward(
    c: AtenCall,
    grad: Term,
    x: Term,
    weight: Term,
    bias_sizes: Ints | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_mask: Sequence[bool],
) -> list[Term | None]:
    spatial, size = x.dims[2:], weight.dims[2:]
    if not grad.shape.size or not x.shape.size:
        return [
            full(c.graph, 0, s.dtype, s.dims) if wanted and s is not None else None
            for s, wanted in zip(c.results, output_mask, strict=True)
        ]
    found: list[Term | None] = [None, None, None]
    if output_mask[0] and transposed:
        whole = _plain(grad, weight, stride, padding, dilation, groups)
        found[0] = slice_(whole, [0] * x.rank, x.dims)  # larger if output_padding has a stride
    elif output_mask[0]:
        found[0] = _transposed(grad, weight, stride, padding, dilation, spatial, groups)
    if output_mask[1]:
        large, small = (grad, x) if transposed else (x, grad)
        found[1] = _kernel_gradient(large, small, size, stride, padding, dilation, groups)
    if output_mask[2]:
        axes = [0, *range(2, grad.rank)]
        found[2] = sum_(grad.to(wide(grad.dtype)), axes)
    return found


def _deformed(
    c: AtenCall,
    x: Term,
    weight: Term,
    offset: Term,
    mask: Term,
    bias: Term,
    *steps_and_groups: int,
) -> Term:
    """A convolution whose kernel reads at places that ``offset`` moves. What follows the arrays are
    strides, paddings and dilations, each for both dimensions, the groups of the kernel and those of
    the places, and whether the mask counts."""
    *steps, groups, parts, masked = steps_and_groups
    if not c.shape.size:
        return full(c.graph, 0, c.dtype, c.dims)
    apart = [(steps[k], steps[4 + k], steps[2 + k]) for k in (0, 1)]
    image, kernel, moved, weighed = (t.to(wide(x.dtype)) for t in (x, weight, offset, mask))
    weights = weighed if masked else None
    found = deformed_conv(image, kernel, moved, weights, apart, groups, parts)
    return found + per_channel(bias.to(found.dtype), x.rank)


ROWS: Rows = {
    "torchvision.deform_conv2d.default": _deformed,
    "aten.convolution.default": Sized(_convolution),
    "aten.convolution_backward.default": _backward,
}
