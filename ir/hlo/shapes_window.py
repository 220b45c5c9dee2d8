"""Shape inference of operations on windows: convolution, reduce-window, select-and-scatter, pad."""

from __future__ import annotations

from .nodes import AnyShape, Computation, ConvLabels, Shape, TupleShape, WindowDim
from .shape_text import show_shape
from .shapes_basic import (
    Attrs,
    Rule,
    Shapes,
    array,
    attr,
    count,
    plain,
    reducer_types,
    refuse,
    same_dims,
    wider,
)  # fmt: skip


def dilated(size: int, dilation: int) -> int:
    """Extent of ``size`` elements set ``dilation`` apart."""
    return (size - 1) * dilation + 1 if size > 0 else 0


def window_positions(size: int, w: WindowDim) -> int:
    """How many times a window fits a dimension of ``size``.

    The dimension is dilated by ``lhs_dilate`` and padded, the window by ``rhs_dilate``:
    ``(padded - window) // stride + 1``, or none.
    """
    if w.size < 0 or w.stride < 1 or w.lhs_dilate < 1 or w.rhs_dilate < 1:
        refuse("a window has a size below 0, or a stride or dilation below 1")
    padded = dilated(size, w.lhs_dilate) + w.pad_low + w.pad_high
    extent = dilated(w.size, w.rhs_dilate)
    return max(0, (padded - extent) // w.stride + 1) if padded >= extent else 0


def convolution(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 2)
    lhs, rhs = array(shapes, 0), array(shapes, 1)
    labels: ConvLabels = attr(attrs, "dim_labels", ConvLabels)
    window = attrs.get("window", ())
    spatial = len(labels.lhs_spatial)
    if lhs.rank != spatial + 2 or rhs.rank != spatial + 2 or len(window) != spatial:
        why = f"dim_labels has {spatial} spatial dimensions, window {len(window)}"
        refuse(f"{why}, operands {show_shape(lhs)} and {show_shape(rhs)}")
    groups, batch_groups = attrs.get("feature_group_count", 1), attrs.get("batch_group_count", 1)
    features, outputs = lhs.dims[labels.lhs_feature], rhs.dims[labels.rhs_output]
    batch = lhs.dims[labels.lhs_batch]
    if groups < 1 or batch_groups < 1 or (groups > 1 and batch_groups > 1):
        refuse(f"feature_group_count={groups}, batch_group_count={batch_groups}")
    if features != rhs.dims[labels.rhs_input] * groups:
        why = f"{features} input features, the kernel takes {rhs.dims[labels.rhs_input]}"
        refuse(f"{why} in each of {groups} groups")
    if outputs % groups or outputs % batch_groups or batch % batch_groups:
        refuse(f"{outputs} output features and a batch of {batch} do not divide into groups")
    out = [0] * lhs.rank
    out[labels.out_batch], out[labels.out_feature] = batch // batch_groups, outputs
    for k, w in enumerate(window):
        kernel = rhs.dims[labels.rhs_spatial[k]]
        if kernel != w.size:
            refuse(f"window size {w.size} in dimension {k}, the kernel has {kernel}")
        out[labels.out_spatial[k]] = window_positions(lhs.dims[labels.lhs_spatial[k]], w)
    return Shape(wider(lhs.dtype, rhs.dtype), tuple(out))


def reduce_window(shapes: Shapes, attrs: Attrs) -> AnyShape:
    n = len(shapes) // 2
    if n == 0 or len(shapes) != 2 * n:
        refuse(f"it takes inputs and as many initial values, not {len(shapes)} operands")
    inputs = [array(shapes, i) for i in range(n)]
    window = attr(attrs, "window")
    if len(window) != inputs[0].rank:
        refuse(f"the window has {len(window)} dimensions, the input {show_shape(inputs[0])}")
    for i, a in enumerate(inputs):
        same_dims(a, inputs[0], "reduced arrays")
        if array(shapes, n + i).dims:
            refuse(f"initial value {i} is not a scalar")
    dims = tuple(window_positions(d, w) for d, w in zip(inputs[0].dims, window, strict=True))
    types = reducer_types(attr(attrs, "to_apply", Computation), inputs)
    out = tuple(Shape(t, dims) for t in types)
    return out[0] if n == 1 else TupleShape(out)


def select_and_scatter(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 3)
    operand, source, init = (array(shapes, i) for i in range(3))
    window = attr(attrs, "window")
    if len(window) != operand.rank or init.dims:
        refuse(f"the window has {len(window)} dimensions, the operand {show_shape(operand)}")
    if any(w.lhs_dilate != 1 for w in window):
        refuse("the operand of select-and-scatter is not dilated")
    dims = tuple(window_positions(d, w) for d, w in zip(operand.dims, window, strict=True))
    if dims != source.dims:
        refuse(f"the windows of the operand give {list(dims)}, the source is {show_shape(source)}")
    for name in ("select", "scatter"):
        if len(attr(attrs, name, Computation).parameters) != 2:
            refuse(f"`{name}` takes two scalars")
    return plain(operand)


def pad(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 2)
    a, value = array(shapes, 0), array(shapes, 1)
    padding = attr(attrs, "padding")
    if len(padding) != a.rank or value.dims or value.dtype != a.dtype:
        refuse(f"{len(padding)} paddings and the value {show_shape(value)} for {show_shape(a)}")
    dims = []
    for d, p in zip(a.dims, padding, strict=True):
        size = d + p.low + p.high + max(0, d - 1) * p.interior
        if size < 0 or p.interior < 0:
            refuse(f"padding {p.low}_{p.high}_{p.interior} of a dimension of {d}")
        dims.append(size)
    return Shape(a.dtype, tuple(dims))


RULES: dict[str, Rule] = {
    "convolution": convolution,
    "reduce-window": reduce_window,
    "select-and-scatter": select_and_scatter,
    "pad": pad,
}
