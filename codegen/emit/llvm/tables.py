"""Tables of f32 that a register holds, looked up by a permutation of its lanes (AVX2, AVX-512)."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.dtypes import f32
from .builder import IRBuilder
from .core import IRValue, literal_text

_PERMUTATIONS = {
    16: ("avx512f", "llvm.x86.avx512.permvar.sf.512"),
    8: ("avx2", "llvm.x86.avx2.permps"),
}
"""By number of entries: the feature that has the instruction, and its name in LLVM."""


def table_entries(b: IRBuilder) -> int:
    """Return how many f32 a table may have on this machine; 0 if it has no such instruction.

    That depends on the machine alone, so that vectors and single numbers give the same results.
    """
    if b.target.machine != "x86_64":
        return 0
    fitting = (
        n
        for n, (feature, _) in _PERMUTATIONS.items()
        if feature in b.processor.features and 32 * n <= b.target.vector_bits
    )
    return max(fitting, default=0)


def look_up(b: IRBuilder, table: Sequence[float], index: IRValue) -> IRValue:
    """Return the entries of ``table`` at the low bits of ``index``, 32-bit integers.

    The table has ``table_entries`` numbers.
    """
    entries = len(table)
    lanes = index.lanes
    if isinstance(index.literal, int):
        return b.const(table[index.literal % entries], f32, lanes)
    if not lanes:
        text = f"insertelement <{entries} x i32> poison, {index}, i64 0"
        wide = b.pure(text, index.dtype, entries, index.depth)
        return b.lane(_permuted(b, table, wide), 0)
    if lanes == entries:
        return _permuted(b, table, index)
    if lanes < entries:
        wide = b.shuffle(index, [*range(lanes), *[-1] * (entries - lanes)])
        return b.shuffle(_permuted(b, table, wide), list(range(lanes)))
    half = -(-lanes // 2)
    low, high = (
        look_up(b, table, b.shuffle(index, [k if k < lanes else -1 for k in part]))
        for part in (range(half), range(half, 2 * half))
    )
    text = f"shufflevector {low}, {high}, <{lanes} x i32> <"
    text += ", ".join(f"i32 {k}" for k in range(lanes)) + ">"
    return b.pure(text, f32, lanes, index.depth)


def _permuted(b: IRBuilder, table: Sequence[float], index: IRValue) -> IRValue:
    """Return the entries of a table at an index of as many lanes."""
    _, name = _PERMUTATIONS[len(table)]
    numbers = ", ".join(f"float {literal_text(x, f32)}" for x in table)
    held = IRValue(f"<{numbers}>", f32, len(table))
    b.declare(name, held.type, [held.type, index.type])
    return b.pure(f"call {held.type} @{name}({held}, {index})", f32, len(table), index.depth)
