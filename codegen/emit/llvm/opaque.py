"""Values whose origin is hidden from LLVM, which would make wrong or impossible code of it.

The narrowing of integer vectors is hidden on their way to memory, and single f32 before they
become f16.

LLVM 22 has masked stores that narrow as they write, for AVX-512. Where it finds that the mask has
one lane it makes a scalar store of the wide element instead: too many bytes (llvm-project issue
179489). It also forms masked stores of its own, from a store of a select whose other arm is loaded
from the same place, and it may discover the mask at any time, up to instruction selection. So the
narrowing is separated from the store by an empty piece of inline assembly, which emits no
instruction: an instruction selector that sees no truncation has nothing to fold. See
``docs/decisions/masked-stores.md``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....ir.loop.nodes import Buffer, Cast, Expr, For, Kind, Let, Load, Op, Stmt, Store, Var
from ....ir.loop.visit import loads_under, walk
from .builder import IRBuilder
from .core import IRValue, element_type

_LEAST = 128  # bits of a vector register


def opaque(b: IRBuilder, x: IRValue) -> IRValue:
    """Return ``x`` with its origin hidden from LLVM; unchanged where that is not needed."""
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


def opaque_number(b: IRBuilder, x: IRValue) -> IRValue:
    """Return a single f32 with its origin hidden from LLVM, before it is rounded to f16.

    Where its sign is copied from what was f64, LLVM 22 copies it after the rounding, and rounds
    the f64, too: by ``__truncdfhf2``, which no C library has.
    """
    processor = b.processor
    direct = processor.machine != "x86_64" or "avx512fp16" in processor.features
    if direct or x.lanes or x.literal is not None:
        return x
    text = f'call {x.type} asm "", "=v,0"({x}) nounwind willreturn memory(none)'
    return b.pure(text, x.dtype, 0, x.depth)


def lane_dependent_buffers(body: Stmt) -> frozenset[Buffer]:
    """Return the buffers that are read and may store a value computed from a lane's number.

    Lanes of a mask differ, and are known, only where they derive from the lane numbers. A value
    made of loads and constants alone does not, unless a lane number was stored before.
    """
    made: list[tuple[Buffer | Var, Expr]] = []
    found: set[Buffer | Var] = set()
    for s in walk(body):
        match s:
            case Store(buffer=buffer, value=value):
                made.append((buffer, value))
            case Let(var=var, value=value):
                made.append((var, value))
            case For(var=var, kind=Kind.VECTOR):
                found.add(var)
    known = 0
    while len(found) > known:
        known = len(found)
        found.update(
            x for x, value in made if any(_origin(e) in found for e in _subexpressions(value))
        )
    return frozenset({x.buffer for x in loads_under(body)} & found)


def _origin(e: Expr) -> Buffer | Var | None:
    """Return the variable or buffer that a leaf expression takes its value from."""
    match e:
        case Var():
            return e
        case Load(buffer=buffer):
            return buffer
        case _:
            return None


def _subexpressions(e: Expr) -> Iterator[Expr]:
    """Yield the expression and its operands, but not the indices of loads."""
    yield e
    match e:
        case Op(args=args):
            for a in args:
                yield from _subexpressions(a)
        case Cast(value=value):
            yield from _subexpressions(value)
