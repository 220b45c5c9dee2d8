"""Sort keys: unsigned integers that order elements as a comparator does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.dtypes import BY_NAME, DType, s32
from ...ir.dtypes import index as index_type
from ...ir.loop.build import const, op
from ...ir.loop.nodes import Expr, Stmt
from .emitter import Index
from .scalars import reinterpret, total_order


@dataclass(frozen=True, slots=True)
class KeyedSort:
    """A sort of rows along dimension ``dim`` by ascending keys of an unsigned type ``dtype``.

    ``key`` returns the key of the element at an index. ``put(to, key, was)`` stores one of the
    first ``wanted`` elements of a sorted row: ``to`` is its index in the result, ``was`` that in
    the operand. ``moves`` is true if ``put`` needs ``was``, so that places must move with the keys.
    """

    name: str
    extents: tuple[int, ...]
    dim: int
    dtype: DType
    key: Callable[[Index], Expr]
    put: Callable[[Index, Expr, Index], Stmt]
    moves: bool
    wanted: int

    @property
    def length(self) -> int:
        """The number of elements in a row."""
        return self.extents[self.dim]


def place_type(n: int) -> DType:
    """Return the type of places in rows of ``n`` elements: 32 bits where they suffice."""
    return s32 if n < 1 << 31 else index_type


def key_type(dtype: DType) -> DType | None:
    """Return the type of the keys of elements; None if they fill no whole bytes."""
    return BY_NAME[f"u{dtype.bits}"] if dtype.bits in (8, 16, 32, 64) else None


def key_of(x: Expr, dtype: DType, largest: bool) -> Expr:
    """Return an element's key: greatest for the largest element, or for the smallest.

    Floats are in total order.
    """
    key = total_order(x) if x.dtype.is_float else x
    if key.dtype != dtype:
        key = op("xor", reinterpret(key, dtype), _sign(dtype))
    return key if largest else op("not", key)


def value_key(x: Expr, dtype: DType, largest: bool) -> Expr:
    """Return the key of a float in an order in which zeros are equal and NaNs are largest."""
    key, sign = key_of(x, dtype, True), _sign(dtype)
    below = const((1 << (dtype.bits - 1)) - 1, dtype)  # the key of -0, one less than that of 0
    key = op("select", op("eq", key, below), sign, key)
    last = const((1 << dtype.bits) - 1, dtype)
    key = op("select", op("ne", x, x), last, key)
    return key if largest else op("not", key)


def element_of(key: Expr, dtype: DType, largest: bool) -> Expr:
    """Return the element of a type that has this key."""
    key = key if largest else op("not", key)
    if key.dtype == dtype:
        return key
    bits = reinterpret(op("xor", key, _sign(key.dtype)), dtype)
    return reinterpret(total_order(bits), dtype) if dtype.is_float else bits


def _sign(dtype: DType) -> Expr:
    return const(1 << (dtype.bits - 1), dtype)
