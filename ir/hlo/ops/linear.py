"""Linear algebra: dot, Fourier transforms, factorizations and solvers, batch norm."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ...dtypes import c64, c128, f32, f64
from ..meaning import linear as meaning_linear
from ..meaning import live as meaning_live
from ..nodes import AnyShape, Computation, Instruction, Shape, TupleShape
from ..shape_text import show_shape
from ..signatures import (
    Attrs,
    Shapes,
    array,
    arrays,
    attr,
    both_or_neither_complex,
    dims_of,
    marked,
    plain,
    refuse,
    require_count,
    same_shape,
    wider,
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

ALGORITHMS = frozenset(
    {
        "unset",
        "dot_any_f8_any_f8_f32",
        "dot_any_f8_any_f8_f32_fast_accum",
        "dot_f16_f16_f16",
        "dot_f16_f16_f32",
        "dot_bf16_bf16_bf16",
        "dot_bf16_bf16_f32",
        "dot_bf16_bf16_f32_x3",
        "dot_bf16_bf16_f32_x6",
        "dot_bf16_bf16_f32_x9",
        "dot_tf32_tf32_f32",
        "dot_tf32_tf32_f32_x3",
        "dot_f32_f32_f32",
        "dot_f64_f64_f64",
    }
)
"""Values of the ``algorithm`` of a dot."""

TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
"""Values of ``transpose_a``."""


def _dot(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 2)
    a, b = array(shapes, 0), array(shapes, 1)
    if (algorithm := attrs.get("algorithm", "unset")).lower() not in ALGORITHMS:
        refuse(f"algorithm={algorithm} is not known")
    lhs_batch = dims_of(attrs, "lhs_batch_dims", a.rank, required=False)
    rhs_batch = dims_of(attrs, "rhs_batch_dims", b.rank, required=False)
    lhs_sum = dims_of(attrs, "lhs_contracting_dims", a.rank, required=False)
    rhs_sum = dims_of(attrs, "rhs_contracting_dims", b.rank, required=False)
    pairs = [(lhs_batch, rhs_batch, "batch"), (lhs_sum, rhs_sum, "contracting")]
    for mine, theirs, what in pairs:
        if [a.dims[d] for d in mine] != [b.dims[d] for d in theirs]:
            refuse(f"{what} dimensions of {show_shape(a)} and {show_shape(b)} differ")
    if set(lhs_batch) & set(lhs_sum) or set(rhs_batch) & set(rhs_sum):
        refuse("a dimension is both batch and contracting")
    kept = [(a, d) for d in lhs_batch]
    kept += [(a, d) for d in range(a.rank) if d not in lhs_batch + lhs_sum]
    kept += [(b, d) for d in range(b.rank) if d not in rhs_batch + rhs_sum]
    marks = tuple(x.marks[d] for x, d in kept) if a.dynamic or b.dynamic else ()
    return Shape(wider(a.dtype, b.dtype), tuple(x.dims[d] for x, d in kept), None, marks)


def ragged_kind(attrs: Attrs) -> str:
    """Return what the ragged dimension of a ``ragged-dot`` is: free, contracting or batch.

    Groups of rows have right operands of their own, or make a result each, or mean nothing.
    """
    (ragged,) = attrs["lhs_ragged_dims"]
    if ragged in attrs["lhs_contracting_dims"]:
        return "contracting"
    return "batch" if ragged in attrs.get("lhs_batch_dims", ()) else "free"


def _ragged_dot(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 3)
    a, b, sizes = (array(shapes, n) for n in range(3))
    ragged = dims_of(attrs, "lhs_ragged_dims", a.rank)
    for side, operand in (("lhs", a), ("rhs", b)):
        dims_of(attrs, f"{side}_contracting_dims", operand.rank)
    groups = dims_of(attrs, "rhs_group_dims", b.rank, required=False)
    if len(ragged) != 1 or not sizes.dtype.is_int:
        refuse(f"lhs_ragged_dims {list(ragged)}, sizes {show_shape(sizes)}")
    if sizes.rank != 1:
        refuse(f"sizes {show_shape(sizes)}: one vector of sizes serves all batches and rows")
    kind = ragged_kind(attrs)
    if len(groups) != (kind == "free") or any(b.dims[d] != sizes.dims[0] for d in groups):
        refuse(f"rhs_group_dims {list(groups)} of {show_shape(b)}, sizes {show_shape(sizes)}")
    theirs = {n: attrs[n] for n in attrs if n.endswith(("_batch_dims", "_contracting_dims"))}
    if set(groups) & {d for n, dims in theirs.items() if n.startswith("rhs") for d in dims}:
        refuse("a group dimension is batch or contracting")
    product = _dot((a, b), theirs)
    if kind == "contracting":
        return Shape(product.dtype, (*sizes.dims, *product.dims))
    kept = list(product.dims)
    if groups:
        fixed = (*attrs.get("rhs_batch_dims", ()), *attrs["rhs_contracting_dims"])
        free = [d for d in range(b.rank) if d not in fixed]
        del kept[len(kept) - len(free) + free.index(groups[0])]
    return Shape(product.dtype, tuple(kept))


def _batch_norm(shapes: Shapes, attrs: Attrs) -> AnyShape:
    """Infer the result of ``batch-norm-training`` and ``-grad``: an array like the operand and two
    vectors of the feature dimension."""
    a = array(shapes, 0)
    feature = attr(attrs, "feature_index", int)
    if not 0 <= feature < a.rank:
        refuse(f"feature_index={feature} of {show_shape(a)}")
    one = Shape(a.dtype, (a.dims[feature],))
    return TupleShape((plain(a), one, one))


def _fft(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 1)
    a = array(shapes, 0)
    lengths, kind = tuple(attr(attrs, "fft_length")), attr(attrs, "fft_type", str)
    if not 1 <= len(lengths) <= min(3, a.rank):
        refuse(f"fft_length {list(lengths)} of {show_shape(a)}")
    outer = a.dims[: a.rank - len(lengths)]
    marks = (*a.marks[: len(outer)], *[False] * len(lengths))
    half = (*lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
    if a.dims[len(outer) :] != (half if kind == "IRFFT" else lengths):
        refuse(f"fft_length {list(lengths)} of {show_shape(a)}")
    if a.dtype not in ((f32, f64) if kind == "RFFT" else (c64, c128)):
        refuse(f"fft_type={kind} of {show_shape(a)}")
    match kind:
        case "FFT" | "IFFT":
            return plain(a)
        case "RFFT":
            return marked(c64 if a.dtype == f32 else c128, (*outer, *half), marks)
        case "IRFFT":
            return marked(f32 if a.dtype == c64 else f64, (*outer, *lengths), marks)
        case _:
            refuse(f"fft_type={kind} is not one of FFT, IFFT, RFFT, IRFFT")


def _dft(shapes: Shapes, attrs: Attrs) -> Shape:
    """Infer the result of ``dft``: what ``fft`` gives for one dimension, which it may move."""
    if len(shapes) != 2:
        require_count(shapes, 3)
    a, lengths, places = array(shapes, 0), attr(attrs, "fft_length"), attr(attrs, "dimensions")
    if len(lengths) != 1 or lengths[0] < 1:
        refuse(f"fft_length {list(lengths)}: it transforms one dimension, of 1 or more")
    if a.rank != 3 or places not in ((1, 1), (2, 2), (2, 1)):
        refuse(f"dimensions {list(places)} of {show_shape(a)}")
    along, to = places
    rows = Shape(a.dtype, (*(n for d, n in enumerate(a.dims) if d != along), a.dims[along]))
    found = _fft((rows,), attrs)
    if to == 1 and attrs["fft_type"] not in ("FFT", "IFFT"):
        refuse(f"dimensions {list(places)} of real rows")
    *outer, n = found.dims
    dims = (*outer[:to], n, *outer[to:])
    part = f64 if c128 in (a.dtype, found.dtype) else f32
    for k, rest in enumerate((lengths, dims[1:])[: len(shapes) - 1], 1):
        wanted = Shape(part, (*rest, 2))
        if not same_shape(array(shapes, k), wanted):
            refuse(f"a table {show_shape(array(shapes, k))} where {show_shape(wanted)} is needed")
    return Shape(found.dtype, dims)


def _cholesky(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 1)
    a = array(shapes, 0)
    if a.rank < 2 or a.dims[-1] != a.dims[-2] or a.dtype.kind not in ("float", "complex"):
        refuse(f"{show_shape(a)} has no square matrices of floats")
    return plain(a)


def _triangular_solve(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 2)
    a, b = array(shapes, 0), array(shapes, 1)
    if a.rank < 2 or a.rank != b.rank or a.dims[-1] != a.dims[-2] or a.dims[:-2] != b.dims[:-2]:
        refuse(f"the matrix {show_shape(a)} and the right side {show_shape(b)} do not fit")
    if b.dims[-2 if attrs.get("left_side", False) else -1] != a.dims[-1]:
        refuse(f"the matrix {show_shape(a)} and the right side {show_shape(b)} do not fit")
    if a.dtype != b.dtype or a.dtype.kind not in ("float", "complex"):
        refuse(f"a system of {show_shape(a)} and {show_shape(b)}")
    if attr(attrs, "transpose_a", str) not in TRANSPOSES:
        refuse(f"transpose_a={attrs['transpose_a']} is not one of {', '.join(TRANSPOSES)}")
    return plain(b)


def _check_batch_norm(i: Instruction, operands: Shapes) -> None:
    """Require an operand, vectors of its features, and for the gradient one more array like it."""
    given = arrays(operands)
    feature = attr(i.attrs, "feature_index", int)
    wants = 3 if i.opcode == "batch-norm-training" else 5
    if len(given) != wants or not 0 <= feature < given[0].rank:
        refuse(f"feature_index={feature}, {len(given)} operands of {wants}")
    attr(i.attrs, "epsilon", float)
    whole = plain(given[0])
    vector = Shape(whole.dtype, (whole.dims[feature],))
    wanted = [whole] + [vector] * (wants - 1)
    if i.opcode == "batch-norm-grad":
        wanted[-1] = whole
    for s, w in zip(given, wanted, strict=True):
        if not same_shape(s, w) or not whole.dtype.is_float:
            refuse(f"it takes {show_shape(w)} where it has {show_shape(s)}")


def _like_first(shapes: Shapes, attrs: Attrs) -> Shape:
    return plain(array(shapes, 0))


def _contracted(i: Instruction) -> int:
    """Return the number of products in an element of a dot."""
    lhs = i.operands[0].array
    return prod(lhs.dims[d] for d in i.attrs.get("lhs_contracting_dims", ()))


def _butterflies(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Count 8 operations for each element and level of a radix-2 transform."""
    levels = prod(max(1, n).bit_length() - 1 for n in i.attrs["fft_length"])
    return Work(8.0, 0.0, 8.0).times(size_of(i.operands[0]) * levels)


def _factored(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Count n**3 / 3 operations for each n-by-n matrix."""
    return Work(1.0, 0.0, 1.0).times(size_of(i) * i.array.dims[-1] / 3)


def _substituted(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Count n multiply-adds for each element of the solution of an n-by-n system."""
    return Work(2.0, 0.0, 2.0).times(size_of(i) * i.operands[0].array.dims[-1])


PAIRED = "lhs_batch_dims? lhs_contracting_dims rhs_batch_dims? rhs_contracting_dims"
"""Attributes of a product: the pairs of batch and of contracting dimensions."""

DEFINITIONS = (
    OpDef(
        "dot",
        attributes=f"{PAIRED} algorithm?",
        further="operand_precision",
        shape=_dot,
        result_type=both_or_neither_complex,
        numpy=meaning_linear.dot,
        fit=meaning_live.dot,
        work=products(_contracted),
        terms=_contracted,
        pattern=Pattern.OUT_FUSABLE,
        role=Role.MATERIAL,
        narrow=NarrowPolicy.SUMMED,
        carries_nan=every_operand,
        complex=ComplexPolicy.PRODUCT,
    ),
    OpDef(
        "ragged-dot",
        attributes=f"{PAIRED} lhs_ragged_dims rhs_group_dims?",
        further="operand_precision",
        shape=_ragged_dot,
        result_type=both_or_neither_complex,
        numpy=meaning_linear.ragged_dot,
        work=products(_contracted),
    ),
    OpDef(
        "fft",
        attributes="fft_type fft_length",
        shape=_fft,
        numpy=meaning_linear.fft,
        work=_butterflies,
        pattern=Pattern.LIBRARY,
    ),
    OpDef(
        "dft",
        attributes="fft_type fft_length dimensions",
        shape=_dft,
        numpy=meaning_linear.dft,
        work=_butterflies,
        pattern=Pattern.IN_FUSABLE,
        role=Role.MATERIAL,
    ),
    OpDef(
        "cholesky",
        attributes="lower?",
        shape=_cholesky,
        numpy=meaning_linear.cholesky,
        work=_factored,
        pattern=Pattern.LIBRARY,
    ),
    OpDef(
        "triangular-solve",
        attributes="left_side? lower? unit_diagonal? transpose_a",
        shape=_triangular_solve,
        numpy=meaning_linear.triangular_solve,
        work=_substituted,
        pattern=Pattern.LIBRARY,
    ),
    OpDef(
        "batch-norm-training",
        attributes="epsilon feature_index",
        shape=_batch_norm,
        check=_check_batch_norm,
        numpy=meaning_linear.batch_norm_training,
    ),
    OpDef(
        "batch-norm-inference",
        attributes="epsilon feature_index",
        shape=_like_first,
        check=_check_batch_norm,
        numpy=meaning_linear.batch_norm_inference,
    ),
    OpDef(
        "batch-norm-grad",
        attributes="epsilon feature_index",
        shape=_batch_norm,
        check=_check_batch_norm,
        numpy=meaning_linear.batch_norm_grad,
    ),
)
