"""Emit the quantization of floats in vectors, ``cast(u8, rint(x) + z)``, in few instructions.

A cast saturates at the bounds of the code's type. So ``x`` is clamped to them first, after which
one instruction rounds and converts. Codes that are converted back to floats at once stay floats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.dtypes import f32, s32
from ...ir.loop.nodes import Cast, Const, Expr, Op
from .index import Indices
from .llvm.convert import int_range
from .llvm.core import IRValue, mangle

WIDEST = 16
"""Bits of a code: with them codes and zero points are exact in f32."""


@dataclass(frozen=True, slots=True)
class Rounded:
    """The float ``clamp(low, rint(value) + zero, high)`` with a whole zero point and bounds."""

    value: Expr
    zero: int = 0
    low: int = -(1 << WIDEST)
    high: int = 1 << WIDEST

    def within(self, low: int, high: int) -> Rounded | None:
        """Return this clamped further to two codes; None if nothing is left between them."""
        low, high = max(low, self.low), min(high, self.high)
        return replace(self, low=low, high=high) if low <= high else None


def rounded(e: Expr) -> Rounded | None:
    """Return an f32 expression as a rounded float; None if it is not one."""
    match e:
        case Op(name="round-nearest-even", args=(x,)) if x.dtype == f32:
            return Rounded(x)
        case Op(name="add", args=(x, Const() as zero) | (Const() as zero, x)):
            return _shifted(x, zero, 1)
        case Op(name="subtract", args=(x, Const() as zero)):
            return _shifted(x, zero, -1)
        case Op(name="maximum" | "minimum" as name, args=(x, Const() as end) | (Const() as end, x)):
            return _clamped(x, *((end, None) if name == "maximum" else (None, end)))
        case Op(name="clamp", args=(Const() as low, x, Const() as high)):
            return _clamped(x, low, high)
        case _:
            return None


def _shifted(x: Expr, zero: Const, sign: int) -> Rounded | None:
    by, found = _whole(zero), rounded(x)
    if by is None or found is None or found != Rounded(found.value, found.zero):
        return None
    return replace(found, zero=found.zero + sign * by)


def _clamped(x: Expr, low: Const | None, high: Const | None) -> Rounded | None:
    found = rounded(x)
    least = found.low if found is not None and low is None else _whole(low)
    most = found.high if found is not None and high is None else _whole(high)
    if found is None or least is None or most is None:
        return None
    return found.within(least, most)


def _whole(x: Const | None) -> int | None:
    """Return the value of a constant if it is a whole number of at most ``WIDEST`` bits."""
    if x is None or isinstance(x.value, complex) or not abs(x.value) < 1 << WIDEST:
        return None
    return int(x.value) if x.value == int(x.value) else None


def _codes(em: Indices, e: Expr) -> Rounded | None:
    """Return the rounded float that becomes codes, in a vector loop on a CPU; else None.

    0 must be a code: that is what NaN becomes.
    """
    match e:
        case Cast(value=x, dtype=to, bits=False) if to.is_int and 8 <= to.bits <= WIDEST:
            if em.lanes is None or em.device is not None or (found := rounded(x)) is None:
                return None
            found = found.within(*int_range(to))
            return found if found is not None and found.low <= 0 <= found.high else None
        case _:
            return None


def emit_codes(em: Indices, e: Cast) -> IRValue | None:
    """Emit ``cast(code, rounded)``; None if it is something else."""
    found = _codes(em, e)
    if found is None:
        return None
    x = _kept(em, found)
    if not x.lanes:
        return None
    over = f"{mangle(s32, x.lanes)}.{mangle(f32, x.lanes)}"
    whole = em.intrinsic("llvm.lrint", x, result=s32, over=over)
    if found.zero:
        whole = em.binary("add", whole, em.like(found.zero, whole))
    return em.cast("trunc", whole, e.dtype)


def emit_decoded(em: Indices, e: Expr) -> IRValue | None:
    """Emit ``cast(f32, codes)``, or that less a whole number; None if it is something else."""
    shift: int | None = 0
    match e:
        case Op(name="subtract", args=(Cast() as inner, Const() as by)):
            e, shift = inner, _whole(by)
        case _:
            pass
    match e:
        case Cast(value=codes, dtype=to, bits=False) if to == f32:
            found = _codes(em, codes)
        case _:
            return None
    if found is None or shift is None:
        return None
    x = em.intrinsic("llvm.rint", _kept(em, found))
    rest = found.zero - shift
    if not rest and found.low == found.zero:
        return x
    return em.binary("fadd", x, em.like(float(rest), x))  # 0 too: integers have no -0


def _kept(em: Indices, found: Rounded) -> IRValue:
    """Emit the value, clamped so that it rounds to a code; NaN is replaced by what becomes code 0.

    A comparison with NaN is false, so if 0 is the lowest code, clamping does that by itself.
    """
    x = em.value(found.value)
    low, high = (em.like(float(n - found.zero), x) for n in (found.low, found.high))
    if found.low:
        x = em.select(em.compare("uno", x, x), em.like(float(-found.zero), x), x)
    x = em.select(em.compare("ogt", x, low), x, low)
    return em.select(em.compare("olt", x, high), x, high)
