"""Element-wise operations: arithmetic, comparison, conversion, real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from ...dtypes import c64, c128, f32, f64, pred
from ...elementwise import TABLE, ElementwiseOp
from ..meaning import live as meaning_live
from ..meaning import pointwise as meaning_pointwise
from ..meaning.values import CallEvaluator, Value
from ..nodes import Computation, Instruction, Shape
from ..shape_text import show_shape
from ..signatures import (
    Attrs,
    Shapes,
    array,
    attr,
    marks_of,
    plain,
    refuse,
    require_count,
    require_same_dims,
)
from .definition import (
    ComplexPolicy,
    NarrowPolicy,
    OpDef,
    Pattern,
    Role,
    Rounding,
    Work,
    each,
    free,
    no_operands,
    size_of,
)

SCALARS = {"clamp": (0, 2), "select": (0,)}
"""Operands that may be scalars beside arrays, by operation."""

COMPARISONS = {
    "float": ("FLOAT", "TOTALORDER"),
    "complex": ("FLOAT",),
    "signed": ("SIGNED",),
    "unsigned": ("UNSIGNED",),
    "pred": ("UNSIGNED",),
}
"""Values of the ``type`` of a comparison for each kind of elements."""


def elementwise_shape(op: ElementwiseOp, shapes: Shapes, attrs: Attrs) -> Shape:
    """Infer the result of operands of one shape and type; some may be ``SCALARS``.

    ``VerifyError`` if operands differ or the operation does not take their element type.
    """
    opcode = op.name
    require_count(shapes, op.arity)
    arrays = [array(shapes, i) for i in range(op.arity)]
    like = arrays[1] if opcode == "clamp" else arrays[-1]
    values = arrays
    if opcode == "select":
        values = arrays[1:]
        if arrays[0].dtype != pred:
            refuse(f"the first operand of select is {arrays[0].dtype}, it must be pred")
        like = arrays[1]
    for n, a in enumerate(arrays):
        if a.dims != like.dims and (a.dims or n not in SCALARS.get(opcode, ())):
            refuse(f"operands of {opcode} differ: {', '.join(map(show_shape, arrays))}")
    types = {a.dtype for a in values}
    if len(types) != 1:
        refuse(f"operands of {opcode} have the types {', '.join(sorted(map(str, types)))}")
    dtype = values[0].dtype
    if dtype.kind[0] not in op.kinds:
        refuse(f"{opcode} does not take {dtype}")
    marks = marks_of([a for a in arrays if a.dynamic])
    return Shape(op.result_dtype(*(a.dtype for a in values)), like.dims, None, marks)


def _compare(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 2)
    a, b = array(shapes, 0), array(shapes, 1)
    require_same_dims(a, b, "compared arrays")
    if a.dtype != b.dtype:
        refuse(f"it compares {a.dtype} with {b.dtype}")
    if attr(attrs, "direction", str) not in ("EQ", "NE", "LT", "LE", "GT", "GE"):
        refuse(f"`direction={attrs['direction']}` is not one of EQ, NE, LT, LE, GT, GE")
    if (order := attrs.get("type")) is not None and order not in COMPARISONS[a.dtype.kind]:
        refuse(f"{a.dtype} is compared as {' or '.join(COMPARISONS[a.dtype.kind])}, not as {order}")
    if a.dtype.kind == "complex" and attrs["direction"] not in ("EQ", "NE"):
        refuse(f"{a.dtype} has no order, direction={attrs['direction']} asks for one")
    return Shape(pred, a.dims, None, marks_of([x for x in (a, b) if x.dynamic]))


def _complex(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 2)
    a, b = array(shapes, 0), array(shapes, 1)
    require_same_dims(a, b, "real and imaginary part")
    if a.dtype != b.dtype or a.dtype not in (f32, f64):
        refuse(f"its parts are {a.dtype} and {b.dtype}; both are f32 or both f64")
    dtype = c64 if a.dtype == f32 else c128
    return Shape(dtype, a.dims, None, marks_of([x for x in (a, b) if x.dynamic]))


def _part(shapes: Shapes, attrs: Attrs) -> Shape:
    """Infer the shape of ``real`` and ``imag``."""
    require_count(shapes, 1)
    a = array(shapes, 0)
    if a.dtype.kind not in ("float", "complex"):
        refuse(f"{a.dtype} has no real and imaginary part")
    return Shape({c64: f32, c128: f64}.get(a.dtype, a.dtype), a.dims, None, a.dynamic)


def _reduce_precision(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 1)
    exponent, mantissa = attr(attrs, "exponent_bits", int), attr(attrs, "mantissa_bits", int)
    if not (1 <= exponent <= 64 and 0 <= mantissa <= 64) or not array(shapes, 0).dtype.is_float:
        refuse(f"exponent_bits={exponent}, mantissa_bits={mantissa} of {show_shape(shapes[0])}")
    return plain(array(shapes, 0))


def _check_convert(i: Instruction, operands: Shapes) -> None:
    require_count(operands, 1)
    if array(operands, 0).dims != i.array.dims:
        refuse(f"its result is {show_shape(i.shape)}, its operand {show_shape(operands[0])}")


def _check_stochastic_convert(i: Instruction, operands: Shapes) -> None:
    require_count(operands, 2)
    x, bits = array(operands, 0), array(operands, 1)
    if x.dims != bits.dims or x.dims != i.array.dims:
        refuse(
            f"its result is {show_shape(i.shape)}, its operands {show_shape(x)}, {show_shape(bits)}"
        )
    if not x.dtype.is_float or bits.dtype.kind != "unsigned" or bits.dtype.bits != x.dtype.bits:
        refuse(f"its random bits are {bits.dtype}, for {x.dtype} they must be as wide and unsigned")


def _check_bitcast_convert(i: Instruction, operands: Shapes) -> None:
    require_count(operands, 1)
    old, new = array(operands, 0), i.array
    if old.size * old.dtype.bits != new.size * new.dtype.bits:
        refuse(f"{show_shape(old)} and {show_shape(new)} have different numbers of bits")
    wide, narrow = (old, new) if old.dtype.bits > new.dtype.bits else (new, old)
    if old.dtype.bits == new.dtype.bits:
        fits = old.dims == new.dims
    else:
        fits = narrow.dims[:-1] == wide.dims and prod(narrow.dims[-1:]) > 0
    if not fits:
        refuse(f"its result is {show_shape(new)}, its operand {show_shape(old)}")


def _check_stochastic_type(i: Instruction) -> tuple[str, str]:
    if i.array.dtype.kind == "signed":
        return "", ""
    return f"what it rounds to is defined for signed integers, not for {i.array.dtype}", ""


def _numpy(op: ElementwiseOp, i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    return np.asarray(op.numpy(*args))


def _work(op: ElementwiseOp, i: Instruction, of: Callable[[Computation], Work]) -> Work:
    counted = Work(0.0, 1.0, op.flops) if op.transcendental else Work(1.0, 0.0, op.flops)
    return counted.times(size_of(i))


def _cost(op: ElementwiseOp, i: Instruction) -> float:
    return op.flops


def _chosen(i: Instruction) -> range:
    return range(1, len(i.operands))


def elementwise(op: ElementwiseOp) -> OpDef:
    """Return the definition of an operation of the element-wise table."""
    handler = partial(_numpy, op)
    return OpDef(
        op.name,
        shape=partial(elementwise_shape, op),
        numpy=handler,
        lifted=handler,
        fit=meaning_live.all_operands,
        flops=op.flops,
        work=partial(_work, op),
        in_place=partial(_cost, op),
        pattern=Pattern.ELEMENTWISE,
        arithmetic=True,
        role=Role.POINTWISE,
        rounding=Rounding(op.rounding),
        narrow=NarrowPolicy.STORED if op.name == "select" else NarrowPolicy.COMPUTED,
        complex=ComplexPolicy.FORMULA if "c" in op.kinds else ComplexPolicy.WHOLE,
        keeps_nan=op.keeps_nan,
        carries_nan=_chosen if op.name == "select" else no_operands,
        needs_positive=op.needs_positive,
        keeps_positive=op.keeps_positive,
    )


DEFINITIONS = (
    *(elementwise(op) for op in TABLE.values() if not op.index_only),
    OpDef(
        "compare",
        attributes="direction type?",
        shape=_compare,
        numpy=meaning_pointwise.compare,
        lifted=meaning_pointwise.compare,
        fit=meaning_live.all_operands,
        flops=1.0,
        work=each(1.0),
        pattern=Pattern.ELEMENTWISE,
        role=Role.POINTWISE,
        narrow=NarrowPolicy.COMPARED,
        complex=ComplexPolicy.FORMULA,
    ),
    OpDef(
        "convert",
        check=_check_convert,
        one_array=True,
        numpy=meaning_pointwise.conversion,
        lifted=meaning_pointwise.conversion,
        fit=meaning_live.all_operands,
        pattern=Pattern.ELEMENTWISE,
        role=Role.POINTWISE,
        view=True,
        keeps_nan=True,
        keeps_positive=True,
        complex=ComplexPolicy.FORMULA,
    ),
    OpDef(
        "bitcast-convert",
        check=_check_bitcast_convert,
        one_array=True,
        numpy=meaning_pointwise.bitcast_convert,
        lifted=meaning_pointwise.bitcast_convert,
        pattern=Pattern.ELEMENTWISE,
        reshaping_pattern=Pattern.INJECTIVE,
        complex=ComplexPolicy.FORMULA,
    ),
    OpDef(
        "reduce-precision",
        attributes="exponent_bits mantissa_bits",
        shape=_reduce_precision,
        numpy=meaning_pointwise.reduce_precision,
        lifted=meaning_pointwise.reduce_precision,
        flops=1.0,
        work=each(1.0),
        pattern=Pattern.ELEMENTWISE,
        role=Role.POINTWISE,
        narrow=NarrowPolicy.COMPUTED,
    ),
    OpDef(
        "stochastic-convert",
        check=_check_stochastic_convert,
        one_array=True,
        numpy=meaning_pointwise.stochastic_convert,
        lifted=meaning_pointwise.stochastic_convert,
        problem=_check_stochastic_type,
        work=each(1.0),
    ),
    OpDef(
        "complex",
        shape=_complex,
        numpy=meaning_pointwise.complex_,
        lifted=meaning_pointwise.complex_,
        fit=meaning_live.all_operands,
        in_place=free,
        pattern=Pattern.ELEMENTWISE,
        role=Role.PARTS,
    ),
    *(
        OpDef(
            name,
            shape=_part,
            numpy=handler,
            lifted=handler,
            in_place=free,
            pattern=Pattern.INJECTIVE,
            role=Role.PARTS,
            recompute=True,
        )
        for name, handler in (("real", meaning_pointwise.real), ("imag", meaning_pointwise.imag))
    ),
)
