"""Building blocks of shape rules and checks: operands, attributes, signatures, windows.

Everything here refuses with a ``VerifyError`` whose ``why`` says what does not fit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Raise ``VerifyError``: operands or attributes do not fit the operation."""
    raise VerifyError("shapes do not fit", why)


def array(shapes: Shapes, i: int) -> Shape:
    """Return the shape of operand ``i``, which must be an array."""
    if i >= len(shapes):
        refuse(f"operand {i} is missing, there are {len(shapes)}")
    match shapes[i]:
        case Shape() as s:
            return s
        case other:
            refuse(f"operand {i} is not an array but {show_shape(other)}")


def require_count(shapes: Shapes, n: int) -> None:
    """Require exactly ``n`` operands."""
    if len(shapes) != n:
        refuse(f"it takes {n} operands and has {len(shapes)}")


def attr(attrs: Attrs, name: str, kind: type | tuple[type, ...] = tuple) -> Any:
    """Return an attribute that must be there and be of this Python type."""
    if name not in attrs:
        refuse(f"attribute `{name}` is missing")
    if not isinstance(attrs[name], kind):
        refuse(f"attribute `{name}` is not readable: {attrs[name]}")
    return attrs[name]


def dims_of(attrs: Attrs, name: str, rank: int, required: bool = True) -> tuple[int, ...]:
    """Return an attribute that lists distinct dimensions of an array of ``rank``; empty if it is
    missing and not ``required``."""
    dims: tuple[int, ...] = attr(attrs, name) if required or name in attrs else ()
    if any(not 0 <= d < rank for d in dims) or len(set(dims)) != len(dims):
        refuse(f"`{name}={{{','.join(map(str, dims))}}}` are not dimensions of rank {rank}")
    return dims


def sorted_dims(attrs: Attrs, name: str, rank: int, required: bool = True) -> tuple[int, ...]:
    """Return an attribute as ``dims_of``, which must list the dimensions in order."""
    dims = dims_of(attrs, name, rank, required)
    if list(dims) != sorted(dims):
        refuse(f"`{name}={{{','.join(map(str, dims))}}}` is not in order")
    return dims


def require_same_dims(a: Shape, b: Shape, what: str) -> None:
    """Require two arrays to have the same dimensions; ``what`` they are, for the error."""
    if a.dims != b.dims:
        refuse(f"{what}: {show_shape(a)} and {show_shape(b)} differ")


def plain(shape: Shape) -> Shape:
    """Return a shape without its layout."""
    bare = shape.layout is None and not shape.tiling
    return shape if bare else replace(shape, layout=None, tiling="")


def marked(dtype: DType, dims: Sequence[int], marks: Iterable[bool]) -> Shape:
    """Return the shape of an array of which these dimensions are bounded."""
    dynamic = tuple(marks)
    return Shape(dtype, tuple(dims), None, dynamic if True in dynamic else ())


def marks_of(arrays: Sequence[Shape]) -> tuple[bool, ...]:
    """Return which dimensions are bounded in any of several arrays of the same sizes."""
    return tuple(any(column) for column in zip(*(a.marks for a in arrays), strict=True))


def reducer_types(reducer: Computation, inputs: Sequence[Shape]) -> list[DType]:
    """Return the element types of the ``len(inputs)`` scalars that a reducer returns."""
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
    """Return the default result type of a product, which ``preferred_element_type`` overrides: the
    complex one, else the one of more bits."""
    if (a.kind == "complex") != (b.kind == "complex"):
        return a if a.kind == "complex" else b
    return a if a.bits >= b.bits else b


def floats_or_same(a: DType, b: DType) -> bool:
    """True if the types are equal, or both floats: these may differ in their precision."""
    return a == b or (a.is_float and b.is_float)


def takes(a: DType, b: DType) -> bool:
    """True if a scalar of type ``a`` may hold ``b``: a float any float, an integer no wider one."""
    return floats_or_same(a, b) or (a.is_int and a.kind == b.kind and a.bits >= b.bits)


def both_or_neither_complex(a: DType, b: DType) -> bool:
    """True if both types are complex, or neither is."""
    return (a.kind == "complex") == (b.kind == "complex")


def same_shape(a: AnyShape, b: AnyShape, types: Likeness = operator.eq) -> bool:
    """True if two shapes are equal up to layout and bounded marks, element types by ``types``."""
    match a, b:
        case Shape(dims=x, dtype=t), Shape(dims=y, dtype=u):
            return x == y and types(t, u)
        case TupleShape(elements=x), TupleShape(elements=y):
            pairs = zip(x, y, strict=False)
            return len(x) == len(y) and all(same_shape(p, q, types) for p, q in pairs)
        case _:
            return isinstance(a, TokenShape) and isinstance(b, TokenShape)


def leaves(shape: AnyShape) -> tuple[AnyShape, ...]:
    """Return the elements of a tuple shape, or the shape itself as the only one."""
    return shape.elements if isinstance(shape, TupleShape) else (shape,)


def arrays(shapes: Sequence[AnyShape]) -> list[Shape]:
    """Return the shapes, all of which must be arrays."""
    return [array(shapes, n) for n in range(len(shapes))]


def require_parameters(c: Computation, given: Shapes) -> None:
    """Require a called computation's parameters to have the shapes of its arguments."""
    if len(c.parameters) != len(given):
        refuse(f"`{c.name}` takes {len(c.parameters)} arguments and gets {len(given)}")
    for p, s in zip(c.parameters, given, strict=True):
        if not same_shape(p.shape, s):
            why = f"parameter `{p.name}` of `{c.name}` is {show_shape(p.shape)}"
            refuse(f"{why} and gets {show_shape(s)}")


def require_result(c: Computation, shape: AnyShape) -> None:
    """Require a called computation to return a value of this shape."""
    if not same_shape(c.root.shape, shape):
        refuse(f"`{c.name}` returns {show_shape(c.root.shape)}, not {show_shape(shape)}")


def require_scalar_parameters(
    c: Computation, given: Sequence[Shape], types: Likeness = floats_or_same
) -> None:
    """Require one scalar parameter for each of the arrays ``given``, of types that are alike by
    ``types``, the parameter's first."""
    if len(c.parameters) != len(given):
        refuse(f"`{c.name}` takes {len(c.parameters)} scalars and gets {len(given)}")
    for p, s in zip(c.parameters, given, strict=True):
        if not same_shape(p.shape, Shape(s.dtype), types):
            why = f"parameter `{p.name}` of `{c.name}` is {show_shape(p.shape)}"
            refuse(f"{why}, not a scalar that takes {s.dtype}")


def require_predicate(c: Computation) -> None:
    """Require a computation to return one ``pred`` scalar."""
    if not same_shape(c.root.shape, Shape(pred)):
        refuse(f"`{c.name}` returns {show_shape(c.root.shape)}, not pred[]")


def dilated(size: int, dilation: int) -> int:
    """Return the extent of ``size`` elements at distance ``dilation``."""
    return (size - 1) * dilation + 1 if size > 0 else 0


def window_positions(size: int, w: WindowDim) -> int:
    """Return the number of positions of a window in a dimension of ``size``.

    That is ``(padded - window) // stride + 1``, or 0 if the window does not fit. The dimension is
    dilated by ``lhs_dilate`` and padded, the window is dilated by ``rhs_dilate``.
    """
    if w.size < 1 or w.stride < 1 or w.lhs_dilate < 1 or w.rhs_dilate < 1:
        refuse("a window has a size, a stride or a dilation below 1")
    padded = dilated(size, w.lhs_dilate) + w.pad_low + w.pad_high
    extent = dilated(w.size, w.rhs_dilate)
    return max(0, (padded - extent) // w.stride + 1) if padded >= extent else 0
