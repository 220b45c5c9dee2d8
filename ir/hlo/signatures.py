"""What shape rules and checks of operations are written with: operands, attributes, signatures.

Everything refuses with a ``VerifyError``, whose ``why`` says what does not fit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

from ..dtypes import DType, pred
from ..errors import VerifyError
from .nodes import AnyShape, Computation, Shape, TokenShape, TupleShape, WindowDim
from .shape_text import show_shape

Shapes: TypeAlias = Sequence[AnyShape]
Attrs: TypeAlias = Mapping[str, Any]
Likeness: TypeAlias = Callable[[DType, DType], bool]


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
    """Two arrays must have the same dimensions."""
    if a.dims != b.dims:
        refuse(f"{what}: {show_shape(a)} and {show_shape(b)} differ")


def plain(shape: Shape) -> Shape:
    """Without its layout."""
    bare = shape.layout is None and not shape.tiling
    return shape if bare else replace(shape, layout=None, tiling="")


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


def wider(a: DType, b: DType) -> DType:
    """The usual result type of a product; text may prefer another (``preferred_element_type``)."""
    if (a.kind == "complex") != (b.kind == "complex"):
        return a if a.kind == "complex" else b
    return a if a.bits >= b.bits else b


def alike(a: DType, b: DType) -> bool:
    """True if values of one type may be kept in the other."""
    return a.kind == b.kind


def both_real(a: DType, b: DType) -> bool:
    """True if both are complex, or neither is."""
    return (a.kind == "complex") == (b.kind == "complex")


def same_shape(a: AnyShape, b: AnyShape, types: Likeness = operator.eq) -> bool:
    """Equal up to layout and dynamic marks; of ``types``, which element types go together."""
    match a, b:
        case Shape(dims=x, dtype=t), Shape(dims=y, dtype=u):
            return x == y and types(t, u)
        case TupleShape(elements=x), TupleShape(elements=y):
            pairs = zip(x, y, strict=False)
            return len(x) == len(y) and all(same_shape(p, q, types) for p, q in pairs)
        case _:
            return isinstance(a, TokenShape) and isinstance(b, TokenShape)


def leaves(shape: AnyShape) -> tuple[AnyShape, ...]:
    """The parts of a result, one if it is not a tuple."""
    return shape.elements if isinstance(shape, TupleShape) else (shape,)


def arrays(shapes: Sequence[AnyShape]) -> list[Shape]:
    """Shapes all of which must be arrays."""
    return [array(shapes, n) for n in range(len(shapes))]


def signature(c: Computation, given: Shapes) -> None:
    """The parameters of a called computation take the values that it is called with."""
    if len(c.parameters) != len(given):
        refuse(f"`{c.name}` takes {len(c.parameters)} arguments and gets {len(given)}")
    for p, s in zip(c.parameters, given, strict=True):
        if not same_shape(p.shape, s):
            why = f"parameter `{p.name}` of `{c.name}` is {show_shape(p.shape)}"
            refuse(f"{why} and gets {show_shape(s)}")


def returns(c: Computation, shape: AnyShape) -> None:
    """A called computation returns a value of this shape."""
    if not same_shape(c.root.shape, shape):
        refuse(f"`{c.name}` returns {show_shape(c.root.shape)}, not {show_shape(shape)}")


def takes(c: Computation, given: Sequence[Shape]) -> None:
    """A computation of as many scalars."""
    if len(c.parameters) != len(given):
        refuse(f"`{c.name}` takes {len(c.parameters)} scalars and gets {len(given)}")
    for p, s in zip(c.parameters, given, strict=True):
        if not same_shape(p.shape, Shape(s.dtype), alike):
            why = f"parameter `{p.name}` of `{c.name}` is {show_shape(p.shape)}"
            refuse(f"{why}, not a scalar that takes {s.dtype}")


def decides(c: Computation) -> None:
    """A computation returns one truth value."""
    if not same_shape(c.root.shape, Shape(pred)):
        refuse(f"`{c.name}` returns {show_shape(c.root.shape)}, not pred[]")


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
