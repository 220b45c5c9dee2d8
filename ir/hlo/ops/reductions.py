"""Operations that apply a scalar computation to arrays, and orderings: reduce, map, sort, topk."""

from __future__ import annotations

from collections.abc import Callable

from ...dtypes import s32
from ..meaning import live as meaning_live
from ..meaning import reduce as meaning_reduce
from ..meaning import sort as meaning_sort
from ..nodes import AnyShape, Computation, Instruction, Shape, TupleShape
from ..shape_text import show_shape
from ..signatures import (
    Attrs,
    Shapes,
    array,
    arrays,
    attr,
    dims_of,
    floats_or_same,
    marked,
    marks_of,
    reducer_types,
    refuse,
    require_count,
    require_predicate,
    require_same_dims,
    require_scalar_parameters,
    takes,
)
from .definition import (
    ComplexPolicy,
    NarrowPolicy,
    OpDef,
    Pattern,
    Role,
    Work,
    every_operand,
    size_of,
)


def _reduce(shapes: Shapes, attrs: Attrs) -> AnyShape:
    inputs, inits = _halves(shapes)
    dims = dims_of(attrs, "dimensions", inputs[0].rank)
    for a, init in zip(inputs, inits, strict=True):
        require_same_dims(a, inputs[0], "reduced arrays")
        if init.dims or not takes(init.dtype, a.dtype):
            refuse(f"the initial value {show_shape(init)} does not fit {show_shape(a)}")
    kept = [k for k in range(inputs[0].rank) if k not in dims]
    types = reducer_types(attr(attrs, "to_apply", Computation), inputs)
    marks = marks_of(inputs)
    sizes = [inputs[0].dims[k] for k in kept]
    out = [marked(t, sizes, (marks[k] for k in kept)) for t in types]
    return out[0] if len(out) == 1 else TupleShape(tuple(out))


def _halves(shapes: Shapes) -> tuple[list[Shape], list[Shape]]:
    n = len(shapes) // 2
    if n == 0 or len(shapes) != 2 * n:
        refuse(f"it takes inputs and as many initial values, not {len(shapes)} operands")
    arrays = [array(shapes, i) for i in range(2 * n)]
    return arrays[:n], arrays[n:]


def _sort(shapes: Shapes, attrs: Attrs) -> AnyShape:
    first = array(shapes, 0)
    if len(dims_of(attrs, "dimensions", first.rank)) != 1:
        refuse("`dimensions` of sort is one dimension")
    arrays = [array(shapes, i) for i in range(len(shapes))]
    for a in arrays:
        require_same_dims(a, first, "sorted arrays")
    comparator = attr(attrs, "to_apply", Computation)
    if len(comparator.parameters) != 2 * len(arrays):
        refuse(f"`{comparator.name}` must have {2 * len(arrays)} parameters")
    marks = marks_of(arrays)
    out = tuple(marked(a.dtype, a.dims, marks) for a in arrays)
    return out[0] if len(out) == 1 else TupleShape(out)


def _topk(shapes: Shapes, attrs: Attrs) -> AnyShape:
    require_count(shapes, 1)
    a, k = array(shapes, 0), attr(attrs, "k", int)
    if not a.dims or not 0 <= k <= a.dims[-1]:
        refuse(f"k={k} of {show_shape(a)}")
    if a.dtype.kind == "complex":
        refuse(f"{a.dtype} has no order")
    dims, marks = (*a.dims[:-1], k), (*a.marks[:-1], False)
    return TupleShape((marked(a.dtype, dims, marks), marked(s32, dims, marks)))


def _map(shapes: Shapes, attrs: Attrs) -> Shape:
    first = array(shapes, 0)
    body = attr(attrs, "to_apply", Computation)
    if list(dims_of(attrs, "dimensions", first.rank)) != list(range(first.rank)):
        refuse(f"`dimensions` must be all {first.rank} dimensions in order")
    for i in range(len(shapes)):
        require_same_dims(array(shapes, i), first, "mapped arrays")
    marks = marks_of([array(shapes, i) for i in range(len(shapes))])
    return marked(array([body.root.shape], 0).dtype, first.dims, marks)


def check_reducer(i: Instruction, operands: Shapes) -> None:
    """Require a reducer that takes the accumulators, then the new values."""
    given = arrays(operands)
    n = len(given) // 2
    reducer = attr(i.attrs, "to_apply", Computation)
    require_scalar_parameters(reducer, given[n:] + given[:n], takes)


def _check_map(i: Instruction, operands: Shapes) -> None:
    require_scalar_parameters(attr(i.attrs, "to_apply", Computation), arrays(operands))


def _check_comparator(i: Instruction, operands: Shapes) -> None:
    comparator = attr(i.attrs, "to_apply", Computation)
    require_predicate(comparator)
    require_scalar_parameters(comparator, [s for s in arrays(operands) for _ in range(2)])


def _reduced(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Count the reducer once for each element by which the array shrinks."""
    gone = max(0.0, size_of(i.operands[0]) - size_of(i))
    return of(i.attrs["to_apply"]).times(gone)


def _mapped(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    return of(i.attrs["to_apply"]).times(size_of(i))


def _compared(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Count the comparisons of a merge sort."""
    (axis,) = i.attrs["dimensions"]
    levels = _levels(i.operands[0].array.dims[axis])
    return of(i.attrs["to_apply"]).times(size_of(i.operands[0]) * levels)


def _ranked(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Count one comparison for each element and level of a tree of the k best."""
    levels = _levels(i.attrs["k"] + 1)
    return Work(1.0, 0.0, 1.0).times(size_of(i.operands[0]) * levels)


def _levels(count: int) -> float:
    """Return log2 of a count, rounded up."""
    return float(max(0, count - 1).bit_length())


DEFINITIONS = (
    OpDef(
        "reduce",
        attributes="dimensions",
        calls=("to_apply",),
        shape=_reduce,
        check=check_reducer,
        result_type=floats_or_same,
        numpy=meaning_reduce.reduce,
        fit=meaning_live.inputs,
        work=_reduced,
        pattern=Pattern.REDUCTION,
        role=Role.MATERIAL,
        narrow=NarrowPolicy.COMBINED,
        carries_nan=every_operand,
        complex=ComplexPolicy.COMBINED,
    ),
    OpDef(
        "map",
        attributes="dimensions",
        calls=("to_apply",),
        shape=_map,
        check=_check_map,
        numpy=meaning_reduce.map_,
        fit=meaning_live.all_operands,
        flops=1.0,
        work=_mapped,
        complex=ComplexPolicy.COMBINED,
    ),
    OpDef(
        "sort",
        attributes="dimensions is_stable?",
        calls=("to_apply",),
        shape=_sort,
        check=_check_comparator,
        numpy=meaning_sort.sort,
        fit=meaning_live.all_operands,
        work=_compared,
        role=Role.MATERIAL,
        drops_elements=True,
        complex=ComplexPolicy.COMBINED,
    ),
    OpDef(
        "topk",
        attributes="k largest",
        shape=_topk,
        numpy=meaning_sort.topk,
        work=_ranked,
        role=Role.MATERIAL,
        drops_elements=True,
        narrow=NarrowPolicy.RANKED,
    ),
)
