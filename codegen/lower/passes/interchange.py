"""Serial loops inside of vector loops go around them, where vectors take several registers.

``for l in vectorize(64): A; for t: B``  ->  ``for l in vectorize(64): A; for t: for l in
vectorize(64): B``. Code generation cuts a vector loop into pieces of one register: with the serial
loop inside, each piece would pass over all its iterations by itself, as a scan over the rows of a
matrix would over a line of each. Lanes depend on no other, so each still does the same in order.
Loops over terms of one result, as instructions add up in a lane, stay inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ....ir.loop.build import as_int
from ....ir.loop.copies import renamed
from ....ir.loop.nodes import For, Func, Kind, Seq, Stmt, Store
from ....ir.loop.visit import free_vars, map_stmt, seq, walk
from ....ir.target import Target
from .rebuild import with_body


def interchange(func: Func, target: Target) -> Func:
    """Return ``func`` with vectors of several registers inside of serial loops."""
    return with_body(func, _interchanged(func.body, target))


def _interchanged(s: Stmt, target: Target) -> Stmt:
    if isinstance(s, For) and s.kind is Kind.VECTOR and _gains(s, target):
        return _around(s, s.body)
    return map_stmt(s, lambda c: _interchanged(c, target))


def _gains(s: For, target: Target) -> bool:
    """True if the body has serial loops, and lanes and iterations store to places of their own."""
    stores = [x for x in walk(s.body) if isinstance(x, Store)]
    lanes = min((target.lanes(x.buffer.dtype) for x in stores), default=0)
    if not lanes or (as_int(s.extent) or 0) <= lanes:
        return False
    parts = list(_parts(s.body))
    known = all(isinstance(x, Store) or _is_serial(s, x) for x in parts)
    loops = [x for x in parts if isinstance(x, For)]
    return known and bool(loops) and all(map(_stores_apart, (s, *loops)))


def _stores_apart(s: For) -> bool:
    """True if each iteration of a loop stores to places of its own."""
    stores = (x for x in walk(s.body) if isinstance(x, Store))
    return all(any(s.var in free_vars(i) for i in x.index) for x in stores)


def _parts(s: Stmt) -> Iterator[Stmt]:
    """Yield the statements of sequences and serial loops, and these loops, the outer before."""
    match s:
        case Seq(stmts=stmts):
            for x in stmts:
                yield from _parts(x)
        case For():
            yield s
            yield from _parts(s.body)
        case _:
            yield s


def _is_serial(vector: For, s: Stmt) -> bool:
    return isinstance(s, For) and s.kind is Kind.SERIAL and vector.var not in free_vars(s.extent)


def _around(vector: For, s: Stmt) -> Stmt:
    match s:
        case Seq(stmts=stmts):
            return seq(*(_around(vector, x) for x in stmts))
        case For():
            return replace(s, body=_around(vector, s.body))
        case _:
            return renamed(replace(vector, body=s))
