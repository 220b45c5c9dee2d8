"""Shape inference of operations on indices and of linear algebra: slices, gather, scatter, fft."""

from __future__ import annotations

from ..dtypes import c64, c128, f32, f64, u64
from .nodes import AnyShape, Computation, Shape, TupleShape
from .shape_text import show_shape
from .shapes_basic import (
    Attrs,
    Rule,
    Shapes,
    array,
    attr,
    count,
    dims_of,
    plain,
    reducer_types,
    refuse,
)


def slice_(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 1)
    a, cuts = array(shapes, 0), attr(attrs, "slice")
    if len(cuts) != a.rank:
        refuse(f"{len(cuts)} ranges for {show_shape(a)}")
    dims = []
    for size, c in zip(a.dims, cuts, strict=True):
        if not 0 <= c.start <= c.limit <= size or c.stride < 1:
            refuse(f"[{c.start}:{c.limit}:{c.stride}] of a dimension of {size}")
        dims.append((c.limit - c.start + c.stride - 1) // c.stride)
    return Shape(a.dtype, tuple(dims))


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


def dynamic_slice(shapes: Shapes, attrs: Attrs) -> Shape:
    a, sizes = array(shapes, 0), attr(attrs, "dynamic_slice_sizes")
    _starts(shapes, 1, a.rank)
    if len(sizes) != a.rank or any(not 0 <= s <= d for s, d in zip(sizes, a.dims, strict=True)):
        refuse(f"dynamic_slice_sizes {list(sizes)} of {show_shape(a)}")
    return Shape(a.dtype, sizes)


def dynamic_update_slice(shapes: Shapes, attrs: Attrs) -> Shape:
    a, update = array(shapes, 0), array(shapes, 1)
    _starts(shapes, 2, a.rank)
    fits = a.rank == update.rank and all(u <= d for u, d in zip(update.dims, a.dims, strict=True))
    if not fits or a.dtype != update.dtype:
        refuse(f"the update {show_shape(update)} does not fit {show_shape(a)}")
    return plain(a)


def gather(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 2)
    a, indices = array(shapes, 0), array(shapes, 1)
    sizes = attr(attrs, "slice_sizes")
    collapsed = dims_of(attrs, "collapsed_slice_dims", a.rank)
    batching = dims_of(attrs, "operand_batching_dims", a.rank, required=False)
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
    batch = index_dims(indices, vector, len(start_map))
    kept = [s for d, s in enumerate(sizes) if d not in collapsed + batching]
    rank = len(batch) + len(kept)
    offsets = dims_of(attrs, "offset_dims", rank)
    if len(offsets) != len(kept) or list(offsets) != sorted(offsets):
        refuse(f"offset_dims {list(offsets)} for {len(kept)} slice dimensions")
    rest = iter(batch)
    inner = iter(kept)
    return Shape(a.dtype, tuple(next(inner) if d in offsets else next(rest) for d in range(rank)))


def _batching(
    a: Shape, dims: tuple[int, ...], indices: Shape, others: tuple[int, ...], vector: int
) -> None:
    """Batching dimensions of an array and of the indices come in pairs of one size."""
    if [a.dims[d] for d in dims] != [indices.dims[d] for d in others] or vector in others:
        what = f"batching dimensions {list(dims)} of {show_shape(a)}"
        refuse(f"{what} and {list(others)} of {show_shape(indices)} do not go together")


def index_dims(indices: Shape, vector: int, length: int) -> tuple[int, ...]:
    """Dimensions of an index array without the one that holds index vectors of ``length``."""
    if not 0 <= vector <= indices.rank or not indices.dtype.is_int:
        refuse(f"index_vector_dim={vector} of indices {show_shape(indices)}")
    found = indices.dims[vector] if vector < indices.rank else 1
    if found != length:
        refuse(f"index vectors have {found} numbers, and {length} dimensions are indexed")
    return indices.dims[:vector] + indices.dims[vector + 1 :]


def scatter(shapes: Shapes, attrs: Attrs) -> AnyShape:
    n = len(shapes) // 2
    if n == 0 or len(shapes) != 2 * n + 1:
        refuse(f"it takes n operands, indices and n updates, not {len(shapes)} operands")
    operands = [array(shapes, i) for i in range(n)]
    indices = array(shapes, n)
    first, update = operands[0], array(shapes, n + 1)
    inserted = dims_of(attrs, "inserted_window_dims", first.rank)
    batching = dims_of(attrs, "input_batching_dims", first.rank, required=False)
    to_operand = dims_of(attrs, "scatter_dims_to_operand_dims", first.rank)
    window = dims_of(attrs, "update_window_dims", update.rank)
    vector = attr(attrs, "index_vector_dim", int)
    of_indices = dims_of(attrs, "scatter_indices_batching_dims", indices.rank, required=False)
    _batching(first, batching, indices, of_indices, vector)
    if {*batching} & {*inserted, *to_operand}:
        refuse("a batching dimension is inserted or indexed")
    batch = index_dims(indices, vector, len(to_operand))
    kept = [d for d in range(first.rank) if d not in inserted + batching]
    outer = tuple(d for k, d in enumerate(update.dims) if k not in window)
    if len(window) != len(kept) or outer != batch or list(window) != sorted(window):
        refuse(f"updates {show_shape(update)} do not fit indices {show_shape(indices)}")
    if any(update.dims[w] > first.dims[d] for w, d in zip(window, kept, strict=True)):
        refuse(f"updates {show_shape(update)} are larger than {show_shape(first)}")
    for i in range(n):
        if array(shapes, n + 1 + i).dims != update.dims or operands[i].dims != first.dims:
            refuse("operands or updates differ in shape")
    made = reducer_types(attr(attrs, "to_apply", Computation), operands)
    if any(t.kind != o.dtype.kind for t, o in zip(made, operands, strict=True)):
        refuse(f"the combiner makes {', '.join(map(str, made))}, not what the operands hold")
    return plain(first) if n == 1 else TupleShape(tuple(map(plain, operands)))


def fft(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 1)
    a = array(shapes, 0)
    lengths, kind = tuple(attr(attrs, "fft_length")), attr(attrs, "fft_type", str)
    if not 1 <= len(lengths) <= min(3, a.rank):
        refuse(f"fft_length {list(lengths)} of {show_shape(a)}")
    outer = a.dims[: a.rank - len(lengths)]
    half = (*lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
    if a.dims[len(outer) :] != (half if kind == "IRFFT" else lengths):
        refuse(f"fft_length {list(lengths)} of {show_shape(a)}")
    if a.dtype not in ((f32, f64) if kind == "RFFT" else (c64, c128)):
        refuse(f"fft_type={kind} of {show_shape(a)}")
    match kind:
        case "FFT" | "IFFT":
            return plain(a)
        case "RFFT":
            return Shape(c64 if a.dtype == f32 else c128, (*outer, *half))
        case "IRFFT":
            return Shape(f32 if a.dtype == c64 else f64, (*outer, *lengths))
        case _:
            refuse(f"fft_type={kind} is none of FFT, IFFT, RFFT, IRFFT")


def cholesky(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 1)
    a = array(shapes, 0)
    if a.rank < 2 or a.dims[-1] != a.dims[-2] or a.dtype.kind not in ("float", "complex"):
        refuse(f"{show_shape(a)} has no square matrices of floats")
    return plain(a)


def next_state(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 0)
    attr(attrs, "delta", int)
    return Shape(u64, (2,))


TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
"""How a triangular matrix may be taken."""


def triangular_solve(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 2)
    a, b = array(shapes, 0), array(shapes, 1)
    if a.rank < 2 or a.rank != b.rank or a.dims[-1] != a.dims[-2] or a.dims[:-2] != b.dims[:-2]:
        refuse(f"the matrix {show_shape(a)} and the right side {show_shape(b)} do not fit")
    if b.dims[-2 if attrs.get("left_side", False) else -1] != a.dims[-1]:
        refuse(f"the matrix {show_shape(a)} and the right side {show_shape(b)} do not fit")
    if a.dtype != b.dtype or a.dtype.kind not in ("float", "complex"):
        refuse(f"a system of {show_shape(a)} and {show_shape(b)}")
    if attrs.get("transpose_a", TRANSPOSES[0]) not in TRANSPOSES:
        refuse(f"transpose_a={attrs['transpose_a']} is none of {', '.join(TRANSPOSES)}")
    return plain(b)


RULES: dict[str, Rule] = {
    "slice": slice_,
    "dynamic-slice": dynamic_slice,
    "dynamic-update-slice": dynamic_update_slice,
    "gather": gather,
    "scatter": scatter,
    "fft": fft,
    "cholesky": cholesky,
    "rng-get-and-update-state": next_state,
    "triangular-solve": triangular_solve,
}
