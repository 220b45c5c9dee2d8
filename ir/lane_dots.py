"""Instructions that add several products of narrow numbers to each 32-bit lane, by processor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .dtypes import DType, bf16, f32, s8, s32, u8
from .target import Target


@dataclass(frozen=True, slots=True)
class LaneDot:
    """One instruction: LLVM's intrinsic, its lanes, and the products that each lane adds up.

    All lanes share ``depth`` elements of type ``shared``; those of type ``own`` are each lane's.
    The sum is in ``sums``. ``element`` is LLVM's type of both operands' elements; narrower ones are
    extended, and ``i32`` stands for the bytes of a lane. One that is not ``adding`` returns the
    products' sum alone. ``features`` are required.
    One that is ``own_first`` takes the lanes' own elements before the shared ones.
    """

    intrinsic: str
    lanes: int
    depth: int
    shared: DType
    own: DType
    sums: DType
    element: str
    features: frozenset[str]
    adding: bool = True
    own_first: bool = False


def _bytes(name: str, lanes: int, shared: DType, own: DType, *features: str) -> LaneDot:
    return LaneDot(name, lanes, 4, shared, own, s32, "i8", frozenset(features))


def _mixed(name: str, lanes: int, *features: str) -> Iterator[LaneDot]:
    """An instruction that multiplies bytes without sign by such with one, either of them shared."""
    yield _bytes(name, lanes, u8, s8, *features)
    yield replace(_bytes(name, lanes, s8, u8, *features), own_first=True)


def _words_of_bytes(name: str, lanes: int, *features: str) -> Iterator[LaneDot]:
    """The same as LLVM 20 takes it for x86; LLVM 22 takes bytes and converts this form."""
    for dot in _mixed(name, lanes, *features):
        yield replace(dot, element="i32")


def _words(name: str, lanes: int, feature: str) -> Iterator[LaneDot]:
    """Products of bytes as products of 16-bit integers, half as many in an instruction."""
    for shared, own in (s8, s8), (u8, s8), (s8, u8):
        yield LaneDot(name, lanes, 2, shared, own, s32, "i16", frozenset({feature}), adding=False)


def _floats(name: str, lanes: int, *features: str) -> LaneDot:
    return LaneDot(name, lanes, 2, bf16, bf16, f32, "bfloat", frozenset(features))


LANE_DOTS = (
    *_words_of_bytes("llvm.x86.avx512.vpdpbusd.512", 16, "avx512vnni", "avx512f"),
    *_words_of_bytes("llvm.x86.avx512.vpdpbusd.256", 8, "avx512vnni", "avx512vl"),
    *_words_of_bytes("llvm.x86.avx512.vpdpbusd.128", 4, "avx512vnni", "avx512vl"),
    *_words_of_bytes("llvm.x86.avx512.vpdpbusd.256", 8, "avxvnni"),
    _bytes("llvm.aarch64.neon.sdot.v4i32.v16i8", 4, s8, s8, "dotprod"),
    _bytes("llvm.aarch64.neon.udot.v4i32.v16i8", 4, u8, u8, "dotprod"),
    *_mixed("llvm.aarch64.neon.usdot.v4i32.v16i8", 4, "i8mm"),
    _floats("llvm.x86.avx512bf16.dpbf16ps.512", 16, "avx512bf16"),
    _floats("llvm.x86.avx512bf16.dpbf16ps.256", 8, "avx512bf16", "avx512vl"),
    _floats("llvm.x86.avx512bf16.dpbf16ps.128", 4, "avx512bf16", "avx512vl"),
    _floats("llvm.aarch64.neon.bfdot.v4f32.v8bf16", 4, "bf16"),
    *_words("llvm.x86.avx512.pmaddw.d.512", 16, "avx512bw"),
    *_words("llvm.x86.avx2.pmadd.wd", 8, "avx2"),
)
"""The best come first, then narrower ones, for columns that are left over. Integers are exact: they
wrap as 32-bit sums do.

Products of bf16 take denormals as 0, and round more often than a fused multiply-add or to odd:
Intel, Architecture Instruction Set Extensions, VDPBF16PS; Arm, Architecture Reference Manual for
A-profile, BFDOT.
"""


def lane_dot(
    target: Target, shared: DType, own: DType, lanes: int = 0, depth: int = 0
) -> LaneDot | None:
    """Return the best instruction for these types, of as many lanes and products if those are
    given; None if there is none.
    """
    fitting = (d for d in LANE_DOTS if lanes in (0, d.lanes) and depth in (0, d.depth))
    usable = (d for d in fitting if d.features <= target.features)
    return next((d for d in usable if (d.shared, d.own) == (shared, own)), None)


def takes_unsigned(target: Target) -> bool:
    """True if products of bytes should have an unsigned operand on this processor."""
    mixed, signed = lane_dot(target, u8, s8), lane_dot(target, s8, s8)
    return mixed is not None and (signed is None or signed.depth < mixed.depth)
