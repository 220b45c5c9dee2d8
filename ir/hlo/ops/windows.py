"""Operations on sliding windows: convolution, reduce-window, select-and-scatter."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..attributes import SKIPS
from ..meaning import conv as meaning_conv
from ..meaning import live as meaning_live
from ..meaning import window as meaning_window
from ..nodes import AnyShape, Computation, ConvLabels, Instruction, Shape, TupleShape
from ..shape_text import show_shape
from ..signatures import (
    Attrs,
    Shapes,
    array,
    attr,
    both_or_neither_complex,
    floats_or_same,
    marked,
    marks_of,
    plain,
    reducer_types,
    refuse,
    require_count,
    require_predicate,
    require_same_dims,
    require_scalar_parameters,
    same_shape,
    wider,
    window_positions,
)
from .definition import (
    ComplexPolicy,
    NarrowPolicy,
    OpDef,
    Pattern,
    Role,
    Work,
    every_operand,
    products,
    size_of,
)
from .reductions import check_reducer


def _convolution(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 2)
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
    marks = [False] * lhs.rank
    marks[labels.out_batch] = lhs.marks[labels.lhs_batch]
    marks[labels.out_feature] = rhs.marks[labels.rhs_output]
    for place, to in zip(labels.lhs_spatial, labels.out_spatial, strict=True):
        marks[to] = lhs.marks[place]
    return marked(wider(lhs.dtype, rhs.dtype), out, marks)


def _reduce_window(shapes: Shapes, attrs: Attrs) -> AnyShape:
    n = len(shapes) // 2
    if n == 0 or len(shapes) != 2 * n:
        refuse(f"it takes inputs and as many initial values, not {len(shapes)} operands")
    inputs = [array(shapes, i) for i in range(n)]
    window = attr(attrs, "window")
    if len(window) != inputs[0].rank:
        refuse(f"the window has {len(window)} dimensions, the input {show_shape(inputs[0])}")
    for i, a in enumerate(inputs):
        require_same_dims(a, inputs[0], "reduced arrays")
        if array(shapes, n + i).dims:
            refuse(f"initial value {i} is not a scalar")
    dims = tuple(window_positions(d, w) for d, w in zip(inputs[0].dims, window, strict=True))
    types = reducer_types(attr(attrs, "to_apply", Computation), inputs)
    out = tuple(marked(t, dims, marks_of(inputs)) for t in types)
    return out[0] if n == 1 else TupleShape(out)


def _select_and_scatter(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 3)
    operand, source, init = (array(shapes, i) for i in range(3))
    window = attr(attrs, "window")
    if len(window) != operand.rank:
        refuse(f"the window has {len(window)} dimensions, the operand {show_shape(operand)}")
    if init.dims or not floats_or_same(init.dtype, operand.dtype):
        refuse(f"the initial value {show_shape(init)} does not fit {show_shape(operand)}")
    if any(w.lhs_dilate != 1 for w in window):
        refuse("the operand of select-and-scatter is not dilated")
    dims = tuple(window_positions(d, w) for d, w in zip(operand.dims, window, strict=True))
    if dims != source.dims:
        refuse(f"the windows of the operand give {list(dims)}, the source is {show_shape(source)}")
    for name in ("select", "scatter"):
        if len(attr(attrs, name, Computation).parameters) != 2:
            refuse(f"`{name}` takes two scalars")
    return plain(operand)


def _check_select_and_scatter(i: Instruction, operands: Shapes) -> None:
    operand, source = array(operands, 0), array(operands, 1)
    select, scatter = (attr(i.attrs, name, Computation) for name in ("select", "scatter"))
    require_scalar_parameters(select, [operand, operand])
    require_predicate(select)
    require_scalar_parameters(scatter, [operand, source])
    if not same_shape(scatter.root.shape, Shape(operand.dtype), floats_or_same):
        refuse(f"`{scatter.name}` returns {show_shape(scatter.root.shape)}")


def _taps(i: Instruction) -> int:
    """Return the number of kernel elements that contribute to an element of the result."""
    kernel = i.operands[1].array
    outputs: int = kernel.dims[i.attrs["dim_labels"].rhs_output]
    return kernel.size // max(1, outputs)


def _places(i: Instruction) -> int:
    """Return the number of elements in a window."""
    return prod(w.size for w in i.attrs["window"])


def _windows(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Count the reducer once less than each window has elements."""
    return of(i.attrs["to_apply"]).times(size_of(i) * max(0, _places(i) - 1))


def _selected(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Count the comparisons within each window, and one combination per window."""
    source = size_of(i.operands[1])
    chosen = of(i.attrs["select"]).times(source * max(0, _places(i) - 1))
    return chosen + of(i.attrs["scatter"]).times(source)


DEFINITIONS = (
    OpDef(
        "convolution",
        attributes=(
            "window dim_labels feature_group_count? batch_group_count? conv_kind? padding_type?"
        ),
        further=f"operand_precision {SKIPS}",
        omitted_if_empty="window",
        shape=_convolution,
        result_type=both_or_neither_complex,
        numpy=meaning_conv.convolution,
        fit=meaning_live.convolution,
        work=products(_taps),
        terms=_taps,
        pattern=Pattern.OUT_FUSABLE,
        role=Role.MATERIAL,
        narrow=NarrowPolicy.SUMMED,
        carries_nan=every_operand,
        complex=ComplexPolicy.PRODUCT,
    ),
    OpDef(
        "reduce-window",
        attributes="window",
        calls=("to_apply",),
        omitted_if_empty="window",
        shape=_reduce_window,
        check=check_reducer,
        result_type=floats_or_same,
        numpy=meaning_window.reduce_window,
        fit=meaning_live.inputs,
        work=_windows,
        terms=_places,
        pattern=Pattern.WINDOW,
        role=Role.MATERIAL,
        narrow=NarrowPolicy.COMBINED,
        carries_nan=every_operand,
        complex=ComplexPolicy.COMBINED,
    ),
    OpDef(
        "select-and-scatter",
        attributes="window",
        calls=("select", "scatter"),
        omitted_if_empty="window",
        shape=_select_and_scatter,
        check=_check_select_and_scatter,
        numpy=meaning_window.select_and_scatter,
        fit=meaning_live.select_and_scatter,
        work=_selected,
        role=Role.MATERIAL,
        narrow=NarrowPolicy.COMBINED,
        complex=ComplexPolicy.COMBINED,
    ),
)
