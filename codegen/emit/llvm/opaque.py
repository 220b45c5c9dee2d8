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

from collections.abc import Iterator

from ....ir.loop.nodes import Buffer, Cast, Expr, For, Kind, Let, Load, Op, Stmt, Store, Var
from ....ir.loop.visit import exprs, walk, walk_expr
from .builder import IRBuilder
from .core import Value, element_type

_LEAST = 128  # bits of a vector register


def opaque(b: IRBuilder, x: Value) -> Value:
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


def numbered(body: Stmt) -> frozenset[Buffer]:
    """The buffers that are read, and to which a value made with a lane's number may be stored.

    Lanes of a mask differ, and are known, only where they come of the lanes' own numbers. What is
    made of loads and constants alone has none of them, unless it was stored before.
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
        found.update(x for x, value in made if any(_origin(e) in found for e in _parts(value)))
    every = (x for s in walk(body) for e in exprs(s) for x in walk_expr(e))
    return frozenset({x.buffer for x in every if isinstance(x, Load)} & found)


def _origin(e: Expr) -> Buffer | Var | None:
    """The name or the memory that an expression without operands has its value from."""
    match e:
        case Var():
            return e
        case Load(buffer=buffer):
            return buffer
        case _:
            return None


def _parts(e: Expr) -> Iterator[Expr]:
    """The expression and what it is made of, but for where loads read."""
    yield e
    match e:
        case Op(args=args):
            for a in args:
                yield from _parts(a)
        case Cast(value=value):
            yield from _parts(value)
