"""Shape inference of the plain operations, and what every inference rule is written with.

A rule takes the operands' shapes and the attributes, and returns the result's shape without a
layout, or refuses with a ``VerifyError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

from ..dtypes import BY_NAME, DType, pred, s32
from ..elementwise import TABLE
from ..errors import VerifyError
from .nodes import AnyShape, Computation, Shape, TokenShape, TupleShape
from .shape_text import show_shape

Shapes: TypeAlias = Sequence[AnyShape]
Attrs: TypeAlias = Mapping[str, Any]
Rule: TypeAlias = Callable[[Shapes, Attrs], AnyShape]


def refuse(why: str) -> NoReturn:
    """The operands or attributes do not fit the operation."""
    raise VerifyError("shapes do not fit", why)


def array(shapes: Shapes, i: int) -> Shape:
    """Operand ``i``, which must be an array."""
    if i >= len(shapes):
        refuse(f"operand {i} is missing, there are {len(shapes)}")
    match shapes[i]:
        case Shape() as s:
            return s
        case other:
            refuse(f"operand {i} is not an array but {show_shape(other)}")


def count(shapes: Shapes, n: int) -> None:
    """There must be ``n`` operands."""
    if len(shapes) != n:
        refuse(f"it takes {n} operands and has {len(shapes)}")


def attr(attrs: Attrs, name: str, kind: type | tuple[type, ...] = tuple) -> Any:
    """A required attribute of a given Python type."""
    if name not in attrs:
        refuse(f"attribute `{name}` is missing")
    if not isinstance(attrs[name], kind):
        refuse(f"attribute `{name}` is not readable: {attrs[name]}")
    return attrs[name]


def dims_of(attrs: Attrs, name: str, rank: int, required: bool = True) -> tuple[int, ...]:
    """A list of different dimensions of an array of ``rank``."""
    dims: tuple[int, ...] = attr(attrs, name) if required or name in attrs else ()
    if any(not 0 <= d < rank for d in dims) or len(set(dims)) != len(dims):
        refuse(f"`{name}={{{','.join(map(str, dims))}}}` are not dimensions of rank {rank}")
    return dims


def same_dims(a: Shape, b: Shape, what: str) -> None:
    if a.dims != b.dims:
        refuse(f"{what}: {show_shape(a)} and {show_shape(b)} differ")


def plain(shape: Shape) -> Shape:
    """Without its layout."""
    bare = shape.layout is None and not shape.tiling
    return shape if bare else replace(shape, layout=None, tiling="")


def elementwise(opcode: str, shapes: Shapes) -> Shape:
    op = TABLE[opcode]
    count(shapes, op.arity)
    arrays = [array(shapes, i) for i in range(op.arity)]
    like = max(arrays, key=lambda s: (s.rank, s.size)) if opcode in _SCALARS else arrays[-1]
    values = arrays
    if opcode == "select":
        values = arrays[1:]
        if arrays[0].dtype != pred:
            refuse(f"the first operand of select is {arrays[0].dtype}, it must be pred")
        like = arrays[1]
    for a in arrays:
        if a.dims != like.dims and not (opcode in _SCALARS and not a.dims):
            refuse(f"operands of {opcode} differ: {', '.join(map(show_shape, arrays))}")
    types = {a.dtype for a in values}
    if len(types) != 1:
        refuse(f"operands of {opcode} have the types {', '.join(sorted(map(str, types)))}")
    dtype = values[0].dtype
    if dtype.kind[0] not in op.kinds:
        refuse(f"{opcode} does not take {dtype}")
    marks = next((a.dynamic for a in arrays if a.dynamic), ())
    return Shape(op.result_dtype(*(a.dtype for a in values)), like.dims, None, marks)


_SCALARS = frozenset({"clamp", "select"})


def compare(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 2)
    a, b = array(shapes, 0), array(shapes, 1)
    same_dims(a, b, "compared arrays")
    if a.dtype != b.dtype:
        refuse(f"it compares {a.dtype} with {b.dtype}")
    if attr(attrs, "direction", str) not in ("EQ", "NE", "LT", "LE", "GT", "GE"):
        refuse(f"`direction={attrs['direction']}` is none of EQ, NE, LT, LE, GT, GE")
    if a.dtype.kind == "complex" and attrs["direction"] not in ("EQ", "NE"):
        refuse(f"{a.dtype} has no order, direction={attrs['direction']} asks for one")
    return Shape(pred, a.dims, None, a.dynamic)


def transpose(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 1)
    a = array(shapes, 0)
    order = dims_of(attrs, "dimensions", a.rank)
    if len(order) != a.rank:
        refuse(f"`dimensions` must order all {a.rank} dimensions")
    marks = tuple(a.dynamic[d] for d in order) if a.dynamic else ()
    return Shape(a.dtype, tuple(a.dims[d] for d in order), None, marks)


def reverse(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 1)
    dims_of(attrs, "dimensions", array(shapes, 0).rank)
    return plain(array(shapes, 0))


def concatenate(shapes: Shapes, attrs: Attrs) -> Shape:
    first = array(shapes, 0)
    axes = dims_of(attrs, "dimensions", first.rank)
    if len(axes) != 1:
        refuse("`dimensions` of concatenate is one dimension")
    total = 0
    for i in range(len(shapes)):
        a = array(shapes, i)
        rest = [d for k, d in enumerate(a.dims) if k != axes[0]]
        if rest != [d for k, d in enumerate(first.dims) if k != axes[0]] or a.dtype != first.dtype:
            refuse(f"operand {i}, {show_shape(a)}, does not fit {show_shape(first)}")
        total += a.dims[axes[0]]
    dims = tuple(total if k == axes[0] else d for k, d in enumerate(first.dims))
    return Shape(first.dtype, dims)


def reduce(shapes: Shapes, attrs: Attrs) -> AnyShape:
    inputs, inits = _halves(shapes)
    dims = dims_of(attrs, "dimensions", inputs[0].rank)
    for a, init in zip(inputs, inits, strict=True):
        same_dims(a, inputs[0], "reduced arrays")
        if init.dims or init.dtype.kind != a.dtype.kind:
            refuse(f"the initial value {show_shape(init)} does not fit {show_shape(a)}")
    kept = [k for k in range(inputs[0].rank) if k not in dims]
    types = reducer_types(attr(attrs, "to_apply", Computation), inputs)
    out = [
        Shape(
            t,
            tuple(a.dims[k] for k in kept),
            None,
            tuple(a.dynamic[k] for k in kept) if a.dynamic else (),
        )
        for a, t in zip(inputs, types, strict=True)
    ]
    return out[0] if len(out) == 1 else TupleShape(tuple(out))


def _halves(shapes: Shapes) -> tuple[list[Shape], list[Shape]]:
    n = len(shapes) // 2
    if n == 0 or len(shapes) != 2 * n:
        refuse(f"it takes inputs and as many initial values, not {len(shapes)} operands")
    arrays = [array(shapes, i) for i in range(2 * n)]
    return arrays[:n], arrays[n:]


def reducer_types(reducer: Computation, inputs: Sequence[Shape]) -> list[DType]:
    """Element types that a reducer of ``len(inputs)`` values returns."""
    if len(reducer.parameters) != 2 * len(inputs):
        why = f"`{reducer.name}` has {len(reducer.parameters)} parameters"
        refuse(f"{why} and should have {2 * len(inputs)}")
    match reducer.root.shape:
        case Shape(dtype=dtype, dims=()) if len(inputs) == 1:
            return [dtype]
        case TupleShape(elements=elements) if len(elements) == len(inputs):
            return [array(elements, i).dtype for i in range(len(elements))]
        case other:
            refuse(f"`{reducer.name}` returns {show_shape(other)}, not {len(inputs)} scalars")


def dot(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 2)
    a, b = array(shapes, 0), array(shapes, 1)
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
    dims = [a.dims[d] for d in lhs_batch]
    dims += [a.dims[d] for d in range(a.rank) if d not in lhs_batch + lhs_sum]
    dims += [b.dims[d] for d in range(b.rank) if d not in rhs_batch + rhs_sum]
    return Shape(wider(a.dtype, b.dtype), tuple(dims))


def wider(a: DType, b: DType) -> DType:
    """The usual result type of a product; text may prefer another (``preferred_element_type``)."""
    if (a.kind == "complex") != (b.kind == "complex"):
        return a if a.kind == "complex" else b
    return a if a.bits >= b.bits else b


def sort(shapes: Shapes, attrs: Attrs) -> AnyShape:
    first = array(shapes, 0)
    if len(dims_of(attrs, "dimensions", first.rank)) != 1:
        refuse("`dimensions` of sort is one dimension")
    arrays = [array(shapes, i) for i in range(len(shapes))]
    for a in arrays:
        same_dims(a, first, "sorted arrays")
    comparator = attr(attrs, "to_apply", Computation)
    if len(comparator.parameters) != 2 * len(arrays):
        refuse(f"`{comparator.name}` must have {2 * len(arrays)} parameters")
    return plain(first) if len(arrays) == 1 else TupleShape(tuple(map(plain, arrays)))


def topk(shapes: Shapes, attrs: Attrs) -> AnyShape:
    count(shapes, 1)
    a, k = array(shapes, 0), attr(attrs, "k", int)
    if not a.dims or not 0 <= k <= a.dims[-1]:
        refuse(f"k={k} of {show_shape(a)}")
    if a.dtype.kind == "complex":
        refuse(f"{a.dtype} has no order")
    dims = (*a.dims[:-1], k)
    return TupleShape((Shape(a.dtype, dims), Shape(s32, dims)))


def get_tuple_element(shapes: Shapes, attrs: Attrs) -> AnyShape:
    count(shapes, 1)
    index: int = attr(attrs, "index", int)
    match shapes[0]:
        case TupleShape(elements=elements) if 0 <= index < len(elements):
            return elements[index]
        case other:
            refuse(f"index={index} of {show_shape(other)}")


def _result_of(*names: str) -> Rule:
    def rule(shapes: Shapes, attrs: Attrs) -> AnyShape:
        for name in names:
            match attrs.get(name):
                case Computation() as c:
                    return c.root.shape
                case (Computation() as c, *_):
                    return c.root.shape
                case _:
                    pass
        refuse(f"attribute `{names[0]}` is missing")

    return rule


def _first(shapes: Shapes, attrs: Attrs) -> AnyShape:
    return plain(array(shapes, 0)) if isinstance(shapes[0], Shape) else shapes[0]


def _tuple(shapes: Shapes, attrs: Attrs) -> AnyShape:
    return TupleShape(tuple(shapes))


def _scalar_s32(shapes: Shapes, attrs: Attrs) -> AnyShape:
    return Shape(s32)


def _token(shapes: Shapes, attrs: Attrs) -> AnyShape:
    return TokenShape()


def all_reduce(shapes: Shapes, attrs: Attrs) -> AnyShape:
    return shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))


def set_dimension_size(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 2)
    a = array(shapes, 0)
    axis = dims_of(attrs, "dimensions", a.rank)[0]
    old = a.dynamic or (False,) * a.rank
    return Shape(a.dtype, a.dims, None, tuple(m or k == axis for k, m in enumerate(old)))


def map_(shapes: Shapes, attrs: Attrs) -> Shape:
    first = array(shapes, 0)
    body = attr(attrs, "to_apply", Computation)
    for i in range(len(shapes)):
        same_dims(array(shapes, i), first, "mapped arrays")
    return Shape(array([body.root.shape], 0).dtype, first.dims)


def complex_(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 2)
    a = array(shapes, 0)
    same_dims(a, array(shapes, 1), "real and imaginary part")
    return Shape(BY_NAME["c64" if a.dtype.bits == 32 else "c128"], a.dims)


def part(shapes: Shapes, attrs: Attrs) -> Shape:
    """``real`` and ``imag``."""
    count(shapes, 1)
    a = array(shapes, 0)
    if a.dtype.kind != "complex":
        return plain(a)
    return Shape(BY_NAME["f32" if a.dtype.bits == 64 else "f64"], a.dims)


def reduce_precision(shapes: Shapes, attrs: Attrs) -> Shape:
    count(shapes, 1)
    exponent, mantissa = attr(attrs, "exponent_bits", int), attr(attrs, "mantissa_bits", int)
    if not (1 <= exponent <= 64 and 0 <= mantissa <= 64) or not array(shapes, 0).dtype.is_float:
        refuse(f"exponent_bits={exponent}, mantissa_bits={mantissa} of {show_shape(shapes[0])}")
    return plain(array(shapes, 0))


def batch_norm(shapes: Shapes, attrs: Attrs) -> AnyShape:
    """``batch-norm-training`` and ``-grad``: a result like the operand, two per feature."""
    a = array(shapes, 0)
    feature = attr(attrs, "feature_index", int)
    if not 0 <= feature < a.rank:
        refuse(f"feature_index={feature} of {show_shape(a)}")
    one = Shape(a.dtype, (a.dims[feature],))
    return TupleShape((plain(a), one, one))


RULES: dict[str, Rule] = {
    "compare": compare, "transpose": transpose, "reverse": reverse, "concatenate": concatenate,
    "reduce": reduce, "dot": dot, "sort": sort, "topk": topk, "map": map_, "tuple": _tuple,
    "get-tuple-element": get_tuple_element, "call": _result_of("to_apply", "calls"),
    "fusion": _result_of("calls"), "while": _first,
    "conditional": _result_of("branch_computations", "true_computation"),
    "copy": _first, "opt-barrier": _first, "reduce-precision": reduce_precision,
    "add-dependency": _first, "domain": _first, "batch-norm-inference": _first,
    "after-all": _token, "get-dimension-size": _scalar_s32, "all-reduce": all_reduce,
    "set-dimension-size": set_dimension_size, "complex": complex_, "real": part, "imag": part,
    "batch-norm-training": batch_norm, "batch-norm-grad": batch_norm,
}  # fmt: skip
