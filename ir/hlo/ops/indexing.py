"""Operations that compute the indices they access: dynamic slices, gather, scatter."""

from __future__ import annotations

from collections.abc import Callable

from ..meaning import indexing as meaning_indexing
from ..meaning import live as meaning_live
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
    plain,
    reducer_types,
    refuse,
    require_count,
    require_scalar_parameters,
    sorted_dims,
)
from .definition import (
    ComplexPolicy,
    NarrowPolicy,
    OpDef,
    Pattern,
    Role,
    Rounding,
    Work,
    data_operand,
    size_of,
    two,
)


def _starts(shapes: Shapes, first: int, rank: int) -> None:
    given = shapes[first:]
    if len(given) == 1 and rank != 1 and array(given, 0).rank == 1:
        given = [Shape(array(given, 0).dtype)] * array(given, 0).dims[0]  # the old form
    if len(given) == 1 and array(given, 0).dims == (rank,):
        return
    for i in range(len(given)):
        if array(given, i).dims or not array(given, i).dtype.is_int:
            refuse(f"start {i} is {show_shape(array(given, i))}, not an integer scalar")
    if len(given) != rank:
        refuse(f"{len(given)} start indices for rank {rank}")
    types = {array(given, i).dtype for i in range(rank)}
    if len(types) > 1:
        refuse(f"start indices have the types {', '.join(sorted(map(str, types)))}")


def _dynamic_slice(shapes: Shapes, attrs: Attrs) -> Shape:
    a, sizes = array(shapes, 0), attr(attrs, "dynamic_slice_sizes")
    _starts(shapes, 1, a.rank)
    if len(sizes) != a.rank or any(not 0 <= s <= d for s, d in zip(sizes, a.dims, strict=True)):
        refuse(f"dynamic_slice_sizes {list(sizes)} of {show_shape(a)}")
    return marked(
        a.dtype, sizes, [m and s == d for m, s, d in zip(a.marks, sizes, a.dims, strict=True)]
    )


def _dynamic_update_slice(shapes: Shapes, attrs: Attrs) -> Shape:
    a, update = array(shapes, 0), array(shapes, 1)
    _starts(shapes, 2, a.rank)
    fits = a.rank == update.rank and all(u <= d for u, d in zip(update.dims, a.dims, strict=True))
    if not fits or a.dtype != update.dtype:
        refuse(f"the update {show_shape(update)} does not fit {show_shape(a)}")
    return plain(a)


def _gather(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 2)
    a, indices = array(shapes, 0), array(shapes, 1)
    sizes = attr(attrs, "slice_sizes")
    collapsed = sorted_dims(attrs, "collapsed_slice_dims", a.rank)
    batching = sorted_dims(attrs, "operand_batching_dims", a.rank, required=False)
    start_map = dims_of(attrs, "start_index_map", a.rank)
    vector = attr(attrs, "index_vector_dim", int)
    of_indices = dims_of(attrs, "start_indices_batching_dims", indices.rank, required=False)
    _batching(a, batching, indices, of_indices, vector)
    if {*batching} & {*collapsed, *start_map}:
        refuse("a batching dimension is collapsed or indexed")
    if len(sizes) != a.rank or any(not 0 <= s <= d for s, d in zip(sizes, a.dims, strict=True)):
        refuse(f"slice_sizes {list(sizes)} of {show_shape(a)}")
    if any(sizes[d] > 1 for d in collapsed + batching):
        refuse("a collapsed dimension has a slice size over 1")
    batch = _index_dims(indices, vector, len(start_map))
    kept = [d for d in range(a.rank) if d not in collapsed + batching]
    rank = len(batch) + len(kept)
    offsets = sorted_dims(attrs, "offset_dims", rank)
    if len(offsets) != len(kept):
        refuse(f"offset_dims {list(offsets)} for {len(kept)} slice dimensions")
    rest = iter(zip(batch, (m for d, m in enumerate(indices.marks) if d != vector), strict=True))
    inner = iter((sizes[d], a.marks[d] and sizes[d] == a.dims[d]) for d in kept)
    made = [next(inner) if d in offsets else next(rest) for d in range(rank)]
    marks = tuple(mark for _, mark in made)
    return Shape(a.dtype, tuple(n for n, _ in made), None, marks if any(marks) else ())


def _batching(
    a: Shape, dims: tuple[int, ...], indices: Shape, others: tuple[int, ...], vector: int
) -> None:
    """Require the batching dimensions of an array and of its indices to have the same sizes."""
    if [a.dims[d] for d in dims] != [indices.dims[d] for d in others] or vector in others:
        what = f"batching dimensions {list(dims)} of {show_shape(a)}"
        refuse(f"{what} and {list(others)} of {show_shape(indices)} do not go together")


def _index_dims(indices: Shape, vector: int, length: int) -> tuple[int, ...]:
    """Return an index array's dimensions without the one that holds index vectors of ``length``."""
    if not 0 <= vector <= indices.rank or not indices.dtype.is_int:
        refuse(f"index_vector_dim={vector} of indices {show_shape(indices)}")
    found = indices.dims[vector] if vector < indices.rank else 1
    if found != length:
        refuse(f"index vectors have {found} numbers, and {length} dimensions are indexed")
    return indices.dims[:vector] + indices.dims[vector + 1 :]


def _scatter(shapes: Shapes, attrs: Attrs) -> AnyShape:
    n = len(shapes) // 2
    if n == 0 or len(shapes) != 2 * n + 1:
        refuse(f"it takes n operands, indices and n updates, not {len(shapes)} operands")
    operands = [array(shapes, i) for i in range(n)]
    indices = array(shapes, n)
    first, update = operands[0], array(shapes, n + 1)
    inserted = sorted_dims(attrs, "inserted_window_dims", first.rank)
    batching = sorted_dims(attrs, "input_batching_dims", first.rank, required=False)
    to_operand = dims_of(attrs, "scatter_dims_to_operand_dims", first.rank)
    window = sorted_dims(attrs, "update_window_dims", update.rank)
    vector = attr(attrs, "index_vector_dim", int)
    of_indices = dims_of(attrs, "scatter_indices_batching_dims", indices.rank, required=False)
    _batching(first, batching, indices, of_indices, vector)
    if {*batching} & {*inserted, *to_operand}:
        refuse("a batching dimension is inserted or indexed")
    batch = _index_dims(indices, vector, len(to_operand))
    kept = [d for d in range(first.rank) if d not in inserted + batching]
    outer = tuple(d for k, d in enumerate(update.dims) if k not in window)
    if len(window) != len(kept) or outer != batch:
        refuse(f"updates {show_shape(update)} do not fit indices {show_shape(indices)}")
    if any(update.dims[w] > first.dims[d] for w, d in zip(window, kept, strict=True)):
        refuse(f"updates {show_shape(update)} are larger than {show_shape(first)}")
    for i in range(n):
        if array(shapes, n + 1 + i).dims != update.dims or operands[i].dims != first.dims:
            refuse("operands or updates differ in shape")
    made = reducer_types(attr(attrs, "to_apply", Computation), operands)
    if not all(floats_or_same(t, o.dtype) for t, o in zip(made, operands, strict=True)):
        refuse(f"the combiner makes {', '.join(map(str, made))}, not what the operands hold")
    return plain(first) if n == 1 else TupleShape(tuple(map(plain, operands)))


def _check_combiner(i: Instruction, operands: Shapes) -> None:
    """Require a combiner that takes the old elements, then the updates."""
    given = arrays(operands)
    n = len(given) // 2
    require_scalar_parameters(attr(i.attrs, "to_apply", Computation), given[:n] + given[n + 1 :])


def _combined(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Count the combiner once for each element of the updates."""
    return of(i.attrs["to_apply"]).times(size_of(i.operands[-1]))


def _from_second(count: int) -> range:
    return range(1, count)


def _from_third(count: int) -> range:
    return range(2, count)


def _second(count: int) -> range:
    return range(1, 2)


def _middle(count: int) -> range:
    """The indices of a scatter are between its arrays and as many updates."""
    return range(count // 2, count // 2 + 1)


DEFINITIONS = (
    OpDef(
        "dynamic-slice",
        attributes="dynamic_slice_sizes",
        shape=_dynamic_slice,
        numpy=meaning_indexing.dynamic_slice,
        fit=meaning_live.dynamic_slice,
        in_place=two,
        pattern=Pattern.INJECTIVE,
        rounding=Rounding.PLACES,
        drops_elements=True,
        takes_part=True,
        recompute=False,
        carries_nan=data_operand,
        complex=ComplexPolicy.SEPARATE,
        indices=_from_second,
    ),
    OpDef(
        "dynamic-update-slice",
        shape=_dynamic_update_slice,
        numpy=meaning_indexing.dynamic_update_slice,
        fit=meaning_live.dynamic_update_slice,
        changes_part=True,
        complex=ComplexPolicy.SEPARATE,
        indices=_from_third,
    ),
    OpDef(
        "gather",
        attributes=(
            "offset_dims collapsed_slice_dims start_index_map "
            "operand_batching_dims? start_indices_batching_dims? index_vector_dim "
            "slice_sizes indices_are_sorted?"
        ),
        shape=_gather,
        numpy=meaning_indexing.gather,
        fit=meaning_live.gather,
        in_place=two,
        pattern=Pattern.INJECTIVE,
        rounding=Rounding.PLACES,
        drops_elements=True,
        takes_part=True,
        recompute=False,
        gaps=True,
        carries_nan=data_operand,
        complex=ComplexPolicy.SEPARATE,
        indices=_second,
    ),
    OpDef(
        "scatter",
        attributes=(
            "update_window_dims inserted_window_dims scatter_dims_to_operand_dims "
            "input_batching_dims? scatter_indices_batching_dims? index_vector_dim "
            "indices_are_sorted? unique_indices?"
        ),
        calls=("to_apply",),
        shape=_scatter,
        check=_check_combiner,
        numpy=meaning_indexing.scatter,
        fit=meaning_live.scatter,
        work=_combined,
        role=Role.MATERIAL,
        narrow=NarrowPolicy.COMBINED,
        complex=ComplexPolicy.COMBINED,
        indices=_middle,
    ),
)
