"""Constant folding of integer arithmetic whose lanes are all literals: lane numbers, tail masks.

The guards in a vector loop are comparisons of such numbers. Folded here, a mask that is true in
every lane is no mask, and code whose mask is false in every lane is dropped. Undefined operations
(a division by 0, a shift by the width or more) are not folded: they may be in an inactive lane.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ....ir.dtypes import DType, pred
from .core import IRValue

Lanes = tuple[int, ...]
_NATURAL = frozenset({"udiv", "urem", "lshr", "zext"})
"""Operations on the bits as a number without a sign."""
_TOTAL: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
    }
)
"""Operations that are defined for all operands, by LLVM's names."""
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = MappingProxyType(
    {
        "eq": operator.eq,
        "ne": operator.ne,
        "lt": operator.lt,
        "le": operator.le,
        "gt": operator.gt,
        "ge": operator.ge,
    }
)
"""Comparisons by the last two letters of LLVM's predicates."""


def lane_literals(x: IRValue) -> Lanes | None:
    """Return the number in every lane (one for a scalar), or None where not all are known."""
    if x.each is not None:
        return x.each
    if not isinstance(x.literal, int) or not (x.dtype.is_int or x.dtype == pred):
        return None
    return (int(x.literal),) * max(1, x.lanes)


def fold_binary(name: str, a: IRValue, b: IRValue) -> Lanes | None:
    """Return the lanes of LLVM's ``name`` (without flags), or None where they are not known."""
    if (a.literal is None and a.each is None) or (b.literal is None and b.each is None):
        return None
    xs, ys = _numbers(a, name in _NATURAL), _numbers(b, name in _NATURAL)
    if xs is None or ys is None:
        return None
    results = [_apply(name, x, y, _bits(a.dtype)) for x, y in zip(xs, ys, strict=True)]
    known = tuple(wrap(r, a.dtype) for r in results if r is not None)
    return known if len(known) == len(results) else None


def fold_compare(name: str, a: IRValue, b: IRValue) -> Lanes | None:
    """Return the lanes of ``icmp name`` as 0 and 1, or None where they are not known."""
    xs, ys = _numbers(a, name[0] == "u"), _numbers(b, name[0] == "u")
    if xs is None or ys is None:
        return None
    return tuple(int(_COMPARISONS[name[-2:]](x, y)) for x, y in zip(xs, ys, strict=True))


def fold_select(c: IRValue, a: IRValue, b: IRValue) -> Lanes | None:
    """Return the lanes of ``a`` where ``c``, else of ``b``, or None where they are not known."""
    on, xs, ys = lane_literals(c), lane_literals(a), lane_literals(b)
    if on is None or xs is None or ys is None:
        return None
    return tuple(x if first else y for first, x, y in zip(on, xs, ys, strict=True))


def fold_cast(name: str, x: IRValue, to: DType) -> Lanes | None:
    """Return the lanes of an integer cast, or None where they are not known."""
    kind = name.partition(" ")[0]  # "zext nneg" is a zext
    xs = _numbers(x, kind in _NATURAL) if kind in ("trunc", "sext", "zext") else None
    return tuple(wrap(v, to) for v in xs) if xs is not None and to.is_int else None


def wrap(value: int, dtype: DType) -> int:
    """Wrap an integer to the range of an integer type; of ``pred``'s, 0 or 1."""
    value &= (1 << _bits(dtype)) - 1
    return _integer(value, dtype.bits) if dtype.kind == "signed" else value


def _apply(name: str, x: int, y: int, bits: int) -> int | None:
    if name in _TOTAL:
        return _TOTAL[name](x, y)
    match name:
        case "shl" if 0 <= y < bits:
            return x << y
        case "lshr" | "ashr" if 0 <= y < bits:
            return x >> y
        case "sdiv" | "udiv" if y:
            return _quotient(x, y)
        case "srem" | "urem" if y:
            return x - y * _quotient(x, y)
        case _:
            return None


def _quotient(x: int, y: int) -> int:
    size = abs(x) // abs(y)
    return size if (x < 0) == (y < 0) else -size


def _bits(dtype: DType) -> int:
    return 1 if dtype == pred else dtype.bits


def _integer(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def _numbers(x: IRValue, natural: bool) -> Lanes | None:
    """Return the lanes as unsigned or signed numbers, whatever the type's signedness."""
    found, bits = lane_literals(x), _bits(x.dtype)
    if found is None:
        return None
    plain = (v & ((1 << bits) - 1) for v in found)
    return tuple(plain) if natural else tuple(_integer(v, bits) for v in plain)
