"""The remainder of a float's division, exact as C's ``fmod``, as a function in LLVM text.

NVPTX has no exact one. The numbers are integers times powers of two; the dividend is reduced by as
many bits at a time as fit into 64.
"""

from __future__ import annotations

from ....ir.dtypes import DType, f32
from .builder import IRBuilder, by_lane
from .core import IRValue, element_type
from .template import render


def remainder_text(name: str, dtype: DType) -> str:
    """Return the definition of the function for one float type."""
    bits, m = dtype.bits, 23 if dtype == f32 else 52
    size = (1 << (bits - 1)) - 1
    fraction = (1 << m) - 1
    names = {
        "name": name,
        "t": element_type(dtype),
        "n": bits,
        "m": m,
        "size": size,
        "fraction": fraction,
        "one": 1 << m,
        "infinite": size - fraction,
        "top": -(1 << (bits - 1)),
        "bits": 64 - (m + 1),
        "widen": "zext" if bits < 64 else "bitcast",
    }
    return render(__package__, "remainder.ll", names=names)


def remainder(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """Return the remainder of ``x / y`` truncated to an integer, with the sign of ``x``."""
    dtype = x.dtype
    name, t = f"nw_remainder_{dtype}", element_type(dtype)
    b.declarations[name] = remainder_text(name, dtype)

    def one(a: IRValue, c: IRValue) -> IRValue:
        return b.pure(f"call {t} @{name}({a}, {c})", dtype, 0, max(a.depth, c.depth))

    return by_lane(b, b.match_lanes(x, y), one)
