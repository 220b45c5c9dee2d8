"""Vectors of narrow integers on their way to memory, which LLVM must not see being narrowed.

LLVM 22 has masked stores that narrow as they write, for AVX-512. Where it finds that the mask has
one lane it makes a scalar store of the wide element instead: too many bytes
(llvm-project issue 179489). It makes masked stores of its own, too, of a store to where a selection
has its other arm from, and it may find the mask out at any time, up to instruction selection. So
the narrowing is kept apart from the store, by an empty piece of inline assembly: an instruction
selector that sees no truncation has nothing to fold. No instruction comes of it.
See ``docs/decisions/masked-stores.md``.
"""

from __future__ import annotations

from .llvm_ir_build import Builder
from .llvm_ir_core import Value, element_type

_LEAST = 128  # bits of a vector register


def opaque(b: Builder, x: Value) -> Value:
    """``x``, of which LLVM does not know how it was made; as it is where that does no harm."""
    bits = {"i8": 8, "i16": 16, "i32": 32}.get(element_type(x.dtype), 0)
    known = x.literal is not None or x.each is not None
    needed = "avx512f" if bits == 32 else "avx512bw"
    if not bits or not x.lanes or known or needed not in b.processor.features:
        return x
    full = max(x.lanes, _LEAST // bits)
    whole = x if full == x.lanes else b.shuffle(x, [*range(x.lanes), *[-1] * (full - x.lanes)])
    text = f'call {whole.type} asm "", "=v,0"({whole}) nounwind willreturn memory(none)'
    kept = b.pure(text, x.dtype, full, whole.depth)
    return kept if full == x.lanes else b.shuffle(kept, list(range(x.lanes)))
