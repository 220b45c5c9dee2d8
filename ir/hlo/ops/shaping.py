"""Operations that move elements to statically known places: broadcast, reshape, slice, pad, ..."""

from __future__ import annotations

from ...dtypes import pred, s32
from ..layouts import slowest_first
from ..meaning import live as meaning_live
from ..meaning import pointwise as meaning_pointwise
from ..meaning import shaping as meaning_shaping
from ..meaning.values import first
from ..nodes import AnyShape, Instruction, Shape
from ..shape_text import show_shape
from ..signatures import (
    Attrs,
    Shapes,
    array,
    attr,
    dims_of,
    marked,
    plain,
    refuse,
    require_count,
)
from .definition import (
    BEFORE,
    ComplexPolicy,
    NarrowPolicy,
    OpDef,
    Pattern,
    Role,
    Rounding,
    every_operand,
    free,
    per_operand,
    two,
)


def _transpose(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 1)
    a = array(shapes, 0)
    order = dims_of(attrs, "dimensions", a.rank)
    if len(order) != a.rank:
        refuse(f"`dimensions` must order all {a.rank} dimensions")
    marks = tuple(a.dynamic[d] for d in order) if a.dynamic else ()
    return Shape(a.dtype, tuple(a.dims[d] for d in order), None, marks)


def _reverse(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 1)
    dims_of(attrs, "dimensions", array(shapes, 0).rank)
    return plain(array(shapes, 0))


def _concatenate(shapes: Shapes, attrs: Attrs) -> Shape:
    first = array(shapes, 0)
    axes = dims_of(attrs, "dimensions", first.rank)
    if len(axes) != 1:
        refuse("`dimensions` of concatenate is one dimension")
    total = 0
    for i in range(len(shapes)):
        a = array(shapes, i)
        rest = [d for k, d in enumerate(a.dims) if k != axes[0]]
        others = [d for k, d in enumerate(first.dims) if k != axes[0]]
        if a.rank != first.rank or rest != others or a.dtype != first.dtype:
            refuse(f"operand {i}, {show_shape(a)}, does not fit {show_shape(first)}")
        total += a.dims[axes[0]]
    dims = tuple(total if k == axes[0] else d for k, d in enumerate(first.dims))
    columns = zip(*(array(shapes, i).marks for i in range(len(shapes))), strict=True)
    marks = tuple(map(any, columns))
    return Shape(first.dtype, dims, None, marks if any(marks) else ())


def _set_dimension_size(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 2)
    a = array(shapes, 0)
    axis = dims_of(attrs, "dimensions", a.rank)[0]
    return Shape(a.dtype, a.dims, None, tuple(m or k == axis for k, m in enumerate(a.marks)))


def _scalar_s32(shapes: Shapes, attrs: Attrs) -> AnyShape:
    return Shape(s32)


def _slice(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 1)
    a, cuts = array(shapes, 0), attr(attrs, "slice")
    if len(cuts) != a.rank:
        refuse(f"{len(cuts)} ranges for {show_shape(a)}")
    dims = []
    for size, c in zip(a.dims, cuts, strict=True):
        if not 0 <= c.start <= c.limit <= size or c.stride < 1:
            refuse(f"[{c.start}:{c.limit}:{c.stride}] of a dimension of {size}")
        dims.append((c.limit - c.start + c.stride - 1) // c.stride)
    varies = [m and (n != 1 or d == 1) for m, n, d in zip(a.marks, dims, a.dims, strict=True)]
    return marked(a.dtype, dims, varies)


def _pad(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 2)
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
    return marked(a.dtype, dims, a.marks)


def _check_reshape(i: Instruction, operands: Shapes) -> None:
    require_count(operands, 1)
    old, new = array(operands, 0), i.array
    if old.size != new.size or old.dtype != new.dtype:
        refuse(f"its result is {show_shape(new)}, its operand {show_shape(old)}")


def _check_dynamic_reshape(i: Instruction, operands: Shapes) -> None:
    """Require an integer scalar for each dimension of the result."""
    old, new = array(operands, 0), i.array
    if old.dtype != new.dtype or len(operands) != 1 + new.rank:
        sizes = f"{len(operands) - 1} sizes"
        refuse(f"its result is {show_shape(new)}, its operand {show_shape(old)} with {sizes}")
    for n in range(new.rank):
        size = array(operands, 1 + n)
        if size.dims or not size.dtype.is_int:
            refuse(f"size {n} is {show_shape(size)}, not an integer scalar")


def _check_dimension_size(i: Instruction, operands: Shapes) -> None:
    a, resizes = array(operands, 0), i.opcode == "set-dimension-size"
    require_count(operands, 2 if resizes else 1)
    if len(dims_of(i.attrs, "dimensions", a.rank)) != 1:
        refuse("`dimensions` is one dimension")
    if resizes and plain(size := array(operands, 1)) != Shape(s32):
        refuse(f"the size is {show_shape(size)}, not s32[]")


def _check_broadcast(i: Instruction, operands: Shapes) -> None:
    require_count(operands, 1)
    old, new = array(operands, 0), i.array
    dims = dims_of(i.attrs, "dimensions", new.rank)
    if len(dims) != old.rank or old.dtype != new.dtype:
        refuse(f"`dimensions` has {len(dims)} numbers for {show_shape(old)} -> {show_shape(new)}")
    for size, d in zip(old.dims, dims, strict=True):
        if size != new.dims[d]:
            refuse(f"dimension {d} of {show_shape(new)} would be made of {size} elements")


def _check_iota(i: Instruction, operands: Shapes) -> None:
    require_count(operands, 0)
    if i.array.dtype == pred:
        refuse("it counts in numbers, and pred is none")
    if not 0 <= attr(i.attrs, "iota_dimension", int) < i.array.rank:
        refuse(f"iota_dimension={i.attrs['iota_dimension']} of {show_shape(i.shape)}")


def _check_bitcast(i: Instruction, operands: Shapes) -> None:
    require_count(operands, 1)
    old, new = array(operands, 0), i.array
    if old.size * old.dtype.bits != new.size * new.dtype.bits:
        refuse(f"{show_shape(old)} and {show_shape(new)} have different numbers of bits")


def _bitcast_problem(i: Instruction) -> tuple[str, str]:
    """Refuse bitcasts whose bytes have no statically known order."""
    shapes = [o.shape for o in (i, *i.operands)]
    arrays = [s for s in shapes if isinstance(s, Shape)]
    if len(arrays) != len(shapes) or any(any(s.dynamic) for s in arrays):
        return "where its bytes lie depends on sizes that are known only at run time", BEFORE
    wide = [[s.dims[d] for d in slowest_first(s) if s.dims[d] != 1] for s in arrays]
    if any("T(" in s.tiling for s in arrays) and wide[0] != wide[-1]:
        return "its layout has tiles, whose order in memory is another compiler's", BEFORE
    return "", ""


DEFINITIONS = (
    OpDef(
        "iota",
        attributes="iota_dimension",
        check=_check_iota,
        one_array=True,
        numpy=meaning_shaping.iota,
        in_place=free,
        pattern=Pattern.BROADCAST,
        narrow=NarrowPolicy.COUNTED,
        complex=ComplexPolicy.FORMULA,
    ),
    OpDef(
        "broadcast",
        attributes="dimensions",
        omitted_if_empty="dimensions",
        check=_check_broadcast,
        one_array=True,
        numpy=meaning_shaping.broadcast,
        lifted=first,
        in_place=free,
        pattern=Pattern.BROADCAST,
        role=Role.MOVES,
        view=True,
        rounding=Rounding.PLACES,
        keeps_nan=True,
        keeps_positive=True,
        complex=ComplexPolicy.SEPARATE,
    ),
    OpDef(
        "reshape",
        further="inferred_dimension",
        check=_check_reshape,
        one_array=True,
        numpy=meaning_shaping.reshape,
        lifted=first,
        fit=meaning_live.reshape,
        in_place=free,
        pattern=Pattern.INJECTIVE,
        role=Role.MOVES,
        view=True,
        alias=True,
        rounding=Rounding.PLACES,
        keeps_nan=True,
        keeps_positive=True,
        complex=ComplexPolicy.SEPARATE,
    ),
    OpDef(
        "dynamic-reshape",
        check=_check_dynamic_reshape,
        one_array=True,
        numpy=meaning_live.dynamic_reshape,
        resizes=True,
    ),
    OpDef(
        "bitcast",
        check=_check_bitcast,
        one_array=True,
        numpy=meaning_shaping.bitcast,
        lifted=meaning_pointwise.bitcast_convert,
        problem=_bitcast_problem,
        pattern=Pattern.ALIAS,
        role=Role.MOVES,
        view=True,
        alias=True,
        keeps_nan=True,
        complex=ComplexPolicy.FORMULA,
    ),
    OpDef(
        "transpose",
        attributes="dimensions",
        shape=_transpose,
        numpy=meaning_shaping.transpose,
        lifted=first,
        in_place=free,
        pattern=Pattern.INJECTIVE,
        role=Role.MOVES,
        view=True,
        rounding=Rounding.PLACES,
        keeps_nan=True,
        keeps_positive=True,
        permutes=True,
        complex=ComplexPolicy.SEPARATE,
    ),
    OpDef(
        "reverse",
        attributes="dimensions",
        shape=_reverse,
        numpy=meaning_shaping.reverse,
        in_place=free,
        pattern=Pattern.INJECTIVE,
        role=Role.MOVES,
        view=True,
        rounding=Rounding.PLACES,
        recompute=True,
        carries_nan=every_operand,
        complex=ComplexPolicy.SEPARATE,
    ),
    OpDef(
        "slice",
        attributes="slice",
        shape=_slice,
        numpy=meaning_shaping.slice_,
        fit=meaning_live.slice_,
        in_place=free,
        pattern=Pattern.INJECTIVE,
        role=Role.MOVES,
        view=True,
        rounding=Rounding.PLACES,
        drops_elements=True,
        takes_part=True,
        recompute=True,
        carries_nan=every_operand,
        complex=ComplexPolicy.SEPARATE,
    ),
    OpDef(
        "pad",
        attributes="padding",
        shape=_pad,
        numpy=meaning_shaping.pad,
        in_place=two,
        pattern=Pattern.INJECTIVE,
        rounding=Rounding.PLACES,
        drops_elements=True,
        gaps=True,
        carries_nan=every_operand,
        complex=ComplexPolicy.SEPARATE,
    ),
    OpDef(
        "concatenate",
        attributes="dimensions",
        shape=_concatenate,
        numpy=meaning_shaping.concatenate,
        fit=meaning_live.concatenate,
        in_place=per_operand,
        pattern=Pattern.INJECTIVE,
        role=Role.MATERIAL,
        recompute=False,
        gaps=True,
        carries_nan=every_operand,
        complex=ComplexPolicy.SEPARATE,
    ),
    OpDef(
        "get-dimension-size",
        attributes="dimensions",
        shape=_scalar_s32,
        check=_check_dimension_size,
        numpy=meaning_shaping.get_dimension_size,
        pattern=Pattern.ALIAS,
    ),
    OpDef(
        "set-dimension-size",
        attributes="dimensions",
        shape=_set_dimension_size,
        check=_check_dimension_size,
        numpy=meaning_shaping.set_dimension_size,
        fit=meaning_live.set_dimension_size,
        resizes=True,
        pattern=Pattern.ALIAS,
    ),
)
