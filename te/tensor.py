"""Tensors and the scalar values that are written with their elements.

A ``Value`` wraps a loop-IR expression and knows the tensors it reads. Python's operators build new
values: ``+ - * /`` as HLO's element-wise operations, ``//`` and ``%`` rounding down, ``< <= > >=``,
``& | ^ ~``. A Python number next to a value takes the value's element type; values of different
types do not mix (``te.cast``). Comparing with ``==`` is refused, because Python would take the
answer for a truth value: write ``te.equal``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NoReturn, TypeAlias

from ..ir.dtypes import BY_NAME, DType
from ..ir.dtypes import index as index_type
from ..ir.elementwise import TABLE
from ..ir.errors import ArgumentError
from ..ir.loop import build
from ..ir.loop.nodes import Buffer, Const, Expr, Load, Op, Var

Number: TypeAlias = int | float | bool | complex
Scalar: TypeAlias = "Value | Number"
DTypeLike: TypeAlias = DType | str

_FOLDING: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": build.add,
    "subtract": build.sub,
    "multiply": build.mul,
    "floordiv": build.floordiv,
    "floormod": build.floormod,
    "minimum": build.minimum,
    "maximum": build.maximum,
}
_LETTER = {"pred": "p", "signed": "s", "unsigned": "u", "float": "f", "complex": "c"}


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A scalar expression over axes and elements of ``tensors``."""

    expr: Expr
    tensors: frozenset[Tensor] = frozenset()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.expr.dtype

    def __add__(self, other: Scalar) -> Value:
        return operation("add", self, other)

    def __radd__(self, other: Scalar) -> Value:
        return operation("add", other, self)

    def __sub__(self, other: Scalar) -> Value:
        return operation("subtract", self, other)

    def __rsub__(self, other: Scalar) -> Value:
        return operation("subtract", other, self)

    def __mul__(self, other: Scalar) -> Value:
        return operation("multiply", self, other)

    def __rmul__(self, other: Scalar) -> Value:
        return operation("multiply", other, self)

    def __truediv__(self, other: Scalar) -> Value:
        return _divide(self, other)

    def __rtruediv__(self, other: Scalar) -> Value:
        return _divide(other, self)

    def __floordiv__(self, other: Scalar) -> Value:
        return operation("floordiv", self, other)

    def __rfloordiv__(self, other: Scalar) -> Value:
        return operation("floordiv", other, self)

    def __mod__(self, other: Scalar) -> Value:
        return operation("floormod", self, other)

    def __rmod__(self, other: Scalar) -> Value:
        return operation("floormod", other, self)

    def __neg__(self) -> Value:
        return operation("negate", self)

    def __abs__(self) -> Value:
        return operation("abs", self)

    def __invert__(self) -> Value:
        return operation("not", self)

    def __and__(self, other: Scalar) -> Value:
        return operation("and", self, other)

    def __rand__(self, other: Scalar) -> Value:
        return operation("and", other, self)

    def __or__(self, other: Scalar) -> Value:
        return operation("or", self, other)

    def __ror__(self, other: Scalar) -> Value:
        return operation("or", other, self)

    def __xor__(self, other: Scalar) -> Value:
        return operation("xor", self, other)

    def __rxor__(self, other: Scalar) -> Value:
        return operation("xor", other, self)

    def __lt__(self, other: Scalar) -> Value:
        return operation("lt", self, other)

    def __le__(self, other: Scalar) -> Value:
        return operation("le", self, other)

    def __gt__(self, other: Scalar) -> Value:
        return operation("gt", self, other)

    def __ge__(self, other: Scalar) -> Value:
        return operation("ge", self, other)

    def __eq__(self, other: object) -> bool:
        raise TypeError("`==` on te values has no truth value; write te.equal(a, b)")

    def __ne__(self, other: object) -> bool:
        raise TypeError("`!=` on te values has no truth value; write te.not_equal(a, b)")

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> NoReturn:
        hint = "write te.select(cond, a, b), and & | ~ for and, or, not"
        raise TypeError(f"a te value has no truth value while the program is built; {hint}")


@dataclass(frozen=True, slots=True, eq=False)
class ReduceAxis(Value):
    """An axis to reduce over; in index expressions it is the position along the axis."""

    extent: int = 0

    @property
    def var(self) -> Var:
        """Return the variable of the axis."""
        assert isinstance(self.expr, Var)
        return self.expr


@dataclass(frozen=True, slots=True, eq=False)
class ComputeOp:
    """The rule for the elements of one or more tensors of one shape.

    ``values`` are the elements at ``axes``; with ``reduce_axes`` they are the terms, and
    ``combine`` takes the old values and the terms to the new values, ``identity`` first.
    """

    axes: tuple[Var, ...]
    values: tuple[Value, ...]
    buffers: tuple[Buffer, ...]
    reduce_axes: tuple[ReduceAxis, ...] = ()
    identity: tuple[Const, ...] = ()
    combine: Callable[[tuple[Value, ...], tuple[Value, ...]], tuple[Value, ...]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An array: an input where ``computation`` is None, else computed. ``T[i, j]`` reads it."""

    buffer: Buffer
    computation: ComputeOp | None = None

    @property
    def name(self) -> str:
        """The name of its buffer."""
        return self.buffer.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dimensions."""
        return self.buffer.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.buffer.dtype

    def __getitem__(self, index: Scalar | tuple[Scalar, ...]) -> Value:
        """Return the element at ``index``: an integer or integer value for each dimension.

        ``ArgumentError`` for another rank, another type, or a constant index out of bounds.
        """
        at = index if isinstance(index, tuple) else (index,)
        if len(at) != len(self.shape):
            raise ArgumentError(
                f"`{self.name}` has {len(self.shape)} dimensions and is indexed with {len(at)}",
                hint=f"its shape is {list(self.shape)}",
            )
        places, tensors = [], {self}
        for n, (i, extent) in enumerate(zip(at, self.shape, strict=True)):
            places.append(_place(self, n, i, extent))
            if isinstance(i, Value):
                tensors |= i.tensors
        return Value(Load(self.buffer, tuple(places)), frozenset(tensors))

    def __iter__(self) -> NoReturn:
        raise TypeError(f"tensor `{self.name}` cannot be iterated; index it")


def placeholder(shape: tuple[int, ...], dtype: DTypeLike = "f32", name: str = "A") -> Tensor:
    """Return an input of a shape. ``ArgumentError`` for a negative extent or an unknown type."""
    return Tensor(Buffer(name, extents(shape, name), as_dtype(dtype)))


def reduce_axis(extent: int, name: str = "k") -> ReduceAxis:
    """Return an axis of ``extent`` points for ``te.sum`` and the other reductions."""
    (checked,) = extents((extent,), name)
    return ReduceAxis(Var(name), extent=checked)


def as_dtype(dtype: DTypeLike) -> DType:
    """Return an element type from its HLO name; ``ArgumentError`` for an unknown one."""
    if isinstance(dtype, DType):
        return dtype
    if not isinstance(dtype, str) or dtype not in BY_NAME:
        known = ", ".join(BY_NAME)
        raise ArgumentError(f"unknown element type {dtype!r}", hint=f"known: {known}")
    return BY_NAME[dtype]


def extents(shape: Sequence[int], name: str) -> tuple[int, ...]:
    """Return a shape that was checked: a tuple of integers, none of them negative."""
    if not isinstance(name, str):
        raise ArgumentError(f"the name {name!r:.60}", "a name is text")
    if not isinstance(shape, Iterable):
        raise ArgumentError(
            f"`{name}` cannot have the shape {shape!r:.60}", "a shape is a tuple of integers >= 0"
        )
    for n in shape:
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 0:
            raise ArgumentError(
                f"`{name}` cannot have the extent {n!r}", "extents are integers >= 0"
            )
    return tuple(map(int, shape))


def constant(value: Number, dtype: DType) -> Const:
    """Return a literal of ``dtype``; ``ArgumentError`` where the type cannot hold such a number."""
    fits = {
        "pred": isinstance(value, bool),
        "float": isinstance(value, int | float),
        "complex": True,
    }.get(dtype.kind, isinstance(value, int) and not isinstance(value, bool))
    if not fits:
        raise ArgumentError(f"{value!r} is not a literal of type {dtype}", hint="use te.cast")
    if dtype.is_float and not isinstance(value, complex):
        return Const(float(value), dtype)
    return Const(value, dtype)


def operation(name: str, *args: Scalar) -> Value:
    """Return an operation of ``ir.elementwise.TABLE``; numbers take the type beside them."""
    return build_value(name, coerce(name, args))


def coerce(asked: str, args: tuple[Scalar, ...]) -> tuple[Value, ...]:
    """Return arguments as values of one element type; ``ArgumentError`` if theirs differ."""
    values = [a for a in args if isinstance(a, Value)]
    if not values:
        raise ArgumentError(f"`{asked}` of plain numbers", hint="write te.const(value, dtype)")
    dtype = values[0].dtype
    for v in values:
        if v.dtype != dtype:
            why = f"one operand is {dtype}, another {v.dtype}"
            raise ArgumentError(f"cannot {asked}", why, hint="convert one with te.cast(x, dtype)")
    return tuple(a if isinstance(a, Value) else _number(asked, a, dtype) for a in args)


def _number(asked: str, a: Any, dtype: DType) -> Value:
    if isinstance(a, Tensor):
        raise ArgumentError(f"cannot {asked} the tensor `{a.name}`", hint="index it: T[i, j]")
    if not isinstance(a, int | float | bool | complex):
        raise ArgumentError(f"cannot {asked} a {type(a).__name__}", hint="te values and numbers")
    return Value(constant(a, dtype))


def build_value(name: str, args: tuple[Value, ...]) -> Value:
    """Return an operation on values of the right types; ``ArgumentError`` where it has none."""
    entry, dtype = TABLE[name], args[-1].dtype
    if _LETTER[dtype.kind] not in entry.kinds:
        raise ArgumentError(f"`{name}` is not defined for {dtype}")
    exprs = tuple(a.expr for a in args)
    if dtype == index_type and name in _FOLDING:
        expr = _FOLDING[name](exprs[0], exprs[1])
    else:
        expr = Op(name, exprs, entry.result_dtype(*(a.dtype for a in args)))
    return Value(expr, joined(args))


def joined(values: tuple[Value, ...]) -> frozenset[Tensor]:
    """Return the tensors that any of the values reads."""
    first = values[0].tensors if values else frozenset()
    return first if len(values) == 1 else first.union(*(v.tensors for v in values[1:]))


def _divide(a: Scalar, b: Scalar) -> Value:
    x, y = coerce("divide", (a, b))
    if x.dtype.is_int:
        raise ArgumentError("`/` of integers", hint="write // (rounds down), or te.cast first")
    return build_value("divide", (x, y))


def _place(tensor: Tensor, n: int, i: Any, extent: int) -> Expr:
    if isinstance(i, Value) and i.dtype.is_int:
        return build.cast(i.expr, index_type)
    if isinstance(i, int) and not isinstance(i, bool):
        if 0 <= i < extent:
            return Const(i)
        why = f"dimension {n} has {extent} elements"
        raise ArgumentError(f"index {i} is outside `{tensor.name}`", why)
    found = i.dtype if isinstance(i, Value) else type(i).__name__
    raise ArgumentError(f"`{tensor.name}` is indexed with {found}", "an index is an integer")
