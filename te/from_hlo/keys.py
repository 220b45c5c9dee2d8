"""Unsigned integers that order elements as a comparator does: what is selected and sorted by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.dtypes import BY_NAME, DType
from ...ir.loop.build import const, op
from ...ir.loop.nodes import Expr, Stmt
from .scalars import reinterpret, total_order

Index: TypeAlias = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class KeyedSort:
    """A sort of rows along dimension ``dim`` by ascending keys of an unsigned type ``dtype``.

    ``key`` gives the key of an element, by its index. ``put`` writes one of the first ``wanted``
    elements of a row: it takes where the element goes to, its key, and where it was. That is known
    only if the element ``moves`` along with its key.
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


def key_type(dtype: DType) -> DType | None:
    """Return the type of the keys of elements; None if they fill no whole bytes."""
    return BY_NAME[f"u{dtype.bits}"] if dtype.bits in (8, 16, 32, 64) else None


def key_of(x: Expr, dtype: DType, largest: bool) -> Expr:
    """Return an element's key, greatest for the largest or the smallest; floats in total order."""
    key = total_order(x) if x.dtype.is_float else x
    if key.dtype != dtype:
        key = op("xor", reinterpret(key, dtype), _sign(dtype))
    return key if largest else op("not", key)


def value_key(x: Expr, dtype: DType, largest: bool) -> Expr:
    """Return the key of a float where zeros are equal, and every NaN is the largest."""
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
