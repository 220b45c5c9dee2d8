"""Instructions that add four products of bytes to each 32-bit lane, by processor feature."""

from __future__ import annotations

from dataclasses import dataclass

from .dtypes import DType, s8, u8
from .target import Target

DEPTH = 4
"""Products that one lane adds up."""


@dataclass(frozen=True, slots=True)
class Quad:
    """One instruction: LLVM's intrinsic, its lanes, and the types of its two operands.

    All lanes share the four ``shared`` bytes; ``own`` are each lane's. ``features`` are required.
    """

    intrinsic: str
    lanes: int
    shared: DType
    own: DType
    features: frozenset[str]


QUADS = (
    Quad("llvm.x86.avx512.vpdpbusd.512", 16, u8, s8, frozenset({"avx512vnni", "avx512f"})),
    Quad("llvm.x86.avx512.vpdpbusd.256", 8, u8, s8, frozenset({"avxvnni"})),
    Quad("llvm.aarch64.neon.usdot.v4i32.v16i8", 4, u8, s8, frozenset({"i8mm"})),
)


def quad_of(target: Target, shared: DType, own: DType, lanes: int = 0) -> Quad | None:
    """Return the instruction for these types, of as many lanes if that is given; None if there is
    none.
    """
    fitting = (q for q in QUADS if lanes in (0, q.lanes) and q.features <= target.features)
    return next((q for q in fitting if (q.shared, q.own) == (shared, own)), None)


def takes_unsigned(target: Target) -> bool:
    """True if products of bytes should have an unsigned operand on this processor."""
    return quad_of(target, u8, s8) is not None and quad_of(target, s8, s8) is None


def quad_lanes(target: Target, shared: DType, own: DType) -> int:
    """Return the lanes of the widest instruction for these types; 0 without one."""
    found = quad_of(target, shared, own)
    return 0 if found is None else found.lanes
