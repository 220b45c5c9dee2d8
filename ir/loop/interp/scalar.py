"""Meaning of scalar operations for the interpreter: closures over an environment of values.

Values are NumPy scalars of the element type, but indices are Python ints: they do not overflow.
Where NumPy scalars already mean what ``ir.elementwise`` says, an operation is the operator itself;
all others go through the table.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...conversion import convert
from ...dtypes import DType, index, to_numpy
from ...elementwise import TABLE

Env: TypeAlias = list[Any]
Value: TypeAlias = Any  # a NumPy scalar, or a Python int or bool
Closure: TypeAlias = Callable[[Env], Value]

_DIRECT: dict[str, Callable[[Value, Value], Value]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_INDEX: dict[str, Callable[[Value, Value], Value]] = {
    **_DIRECT,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "minimum": min,
    "maximum": max,
}


def boxed(value: Value, dtype: DType) -> Value:
    """Return ``value`` as a NumPy scalar of ``dtype``; integers out of range wrap."""
    if isinstance(value, np.generic):
        return value
    if dtype.is_int and not isinstance(value, float):
        low = 0 if dtype.kind == "unsigned" else -(1 << (dtype.bits - 1))
        value = (int(value) - low) % (1 << dtype.bits) + low
    return to_numpy(dtype).type(value)


def constant(value: Value, dtype: DType) -> Value:
    """Return a literal as a value."""
    return int(value) if dtype == index else boxed(value, dtype)


def operation(name: str, dtypes: tuple[DType, ...], args: tuple[Closure, ...]) -> Closure:
    """Return a closure that applies an operation of the table to the values of ``args``."""
    match name, args:
        case "select", (c, a, b):
            return lambda env: a(env) if c(env) else b(env)
        case "and", (a, b) if dtypes[0].kind == "pred":
            return lambda env: a(env) and b(env)
        case "or", (a, b) if dtypes[0].kind == "pred":
            return lambda env: a(env) or b(env)
        case "not", (a,) if dtypes[0].kind == "pred":
            return lambda env: not a(env)
        case "add", (a, b) if _native(dtypes[0]):
            return lambda env: a(env) + b(env)
        case "multiply", (a, b) if _native(dtypes[0]):
            return lambda env: a(env) * b(env)
        case _, (a, b) if dtypes[0] == index and name in _INDEX:
            f = _INDEX[name]
            return lambda env: f(a(env), b(env))
        case _, (a, b) if _native(dtypes[0]) and name in _DIRECT:
            f = _DIRECT[name]
            return lambda env: f(a(env), b(env))
        case (("maximum" | "minimum"), (a, b)) if _native(dtypes[0]):
            return _extreme(operator.ge if name == "maximum" else operator.le, a, b)
        case _:
            return _from_table(name, dtypes, args)


def with_literal(name: str, a: Closure, c: int) -> Closure:
    """Return a closure that applies an operation on indices to the value of ``a`` and a literal."""
    if name not in _INDEX:
        return operation(name, (index, index), (a, lambda env: c))
    f = _INDEX[name]
    return lambda env: f(a(env), c)


def _native(dtype: DType) -> bool:
    """True if NumPy scalars of this type compute as the table says."""
    return dtype.kind in ("float", "signed", "unsigned") and dtype.bits >= 32


def _extreme(better: Callable[[Value, Value], Value], a: Closure, b: Closure) -> Closure:
    def run(env: Env) -> Value:
        x, y = a(env), b(env)
        if x == y == 0:  # -0 is below +0
            return x + y if better is operator.ge else -(-x - y)
        return x if x != x or better(x, y) else y

    return run


def _from_table(name: str, dtypes: tuple[DType, ...], args: tuple[Closure, ...]) -> Closure:
    f = TABLE[name].numpy

    def run(env: Env) -> Value:
        values = (boxed(a(env), d) for a, d in zip(args, dtypes, strict=True))
        return f(*values)[()]

    return run


def conversion(source: DType, target: DType, value: Closure) -> Closure:
    """HLO ``convert``: floats to integers truncate and saturate, NaN becomes 0."""
    to = to_numpy(target)
    if source.is_int and target == index and source.name != "u64":
        return lambda env: int(value(env))
    if source.is_float and source.bits <= 16 and target.name in ("f32", "f64"):
        return _widened(to.type, value)
    exact = source.is_float or (source.kind != "complex" and source.bits < 64)
    narrowed = source.name == "f32" and target.is_float and target.bits <= 16
    if narrowed or (exact and target.name in ("f32", "f64")):
        cast = to.type  # to a narrow float it rounds once, to nearest even, as the array's does
        return lambda env: cast(value(env))
    return lambda env: convert(boxed(value(env), source), to)[()]


def _widened(cast: type[np.generic], value: Closure) -> Closure:
    """Return a narrow float as a wide one: by way of Python's, but for the bits of a NaN."""

    def run(env: Env) -> Value:
        narrow = value(env)
        plain = float(narrow)
        return cast(plain if plain == plain else narrow)

    return run


def reinterpretation(source: DType, target: DType, value: Closure) -> Closure:
    """HLO ``bitcast-convert`` between types of one width."""
    to = to_numpy(target)
    return lambda env: boxed(value(env), source).view(to)
