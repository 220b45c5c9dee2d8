"""The remainder of a float's division, exact as C's ``fmod``, as a function in LLVM's text.

NVPTX has none that is exact. The numbers are integers times powers of two; so many bits of the
dividend as fit into 64 are brought down at a time.
"""

from __future__ import annotations

from ....ir.dtypes import DType, f32
from .builder import IRBuilder, by_lane
from .core import Value, element_type
from .template import render


def remainder_text(name: str, dtype: DType) -> str:
    """Return the function of a float's type."""
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


def remainder(b: IRBuilder, x: Value, y: Value) -> Value:
    """Return what is left of ``x`` after whole multiples of ``y``, with the sign of ``x``."""
    dtype = x.dtype
    name, t = f"nw_remainder_{dtype}", element_type(dtype)
    b.declarations[name] = remainder_text(name, dtype)

    def one(a: Value, c: Value) -> Value:
        return b.pure(f"call {t} @{name}({a}, {c})", dtype, 0, max(a.depth, c.depth))

    return by_lane(b, b.even(x, y), one)
