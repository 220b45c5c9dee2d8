"""Mark loops to be unrolled: those over register tiles, and no more than a kernel can bear."""

from __future__ import annotations

from dataclasses import replace

from ....ir.loop.build import as_int
from ....ir.loop.nodes import Expr, For, Func, Intrinsic, Kind, Scope, Stmt, Store, Var
from ....ir.loop.visit import exprs, free_vars, loads_in, map_stmt, walk
from ....ir.target import Target
from .rebuild import with_body
from .weight import LIMIT, weight

LARGEST = 64  # iterations of a serial loop that is written out for its register tile


def choose_unrolling(func: Func, target: Target) -> Func:
    """Serial loops that index registers become unrolled; unrolled ones that are too long, loops."""

    return with_body(func, _marked(func.body, target, 1))


def _marked(s: Stmt, target: Target, copies: int) -> Stmt:
    """Mark the loops of what unrolled loops around it write out so many times."""
    if isinstance(s, For):
        s = _chosen(s, target, copies)
        count = as_int(s.extent) if s.kind is Kind.UNROLLED else None
        copies *= count or 1
    return map_stmt(s, lambda c: _marked(c, target, copies))


def _chosen(s: For, target: Target, copies: int) -> For:
    count = as_int(s.extent)
    if s.kind is Kind.UNROLLED and weight(s, target) > LIMIT:
        return replace(s, kind=Kind.SERIAL)
    if s.kind is not Kind.SERIAL or count is None or count > LARGEST:
        return s
    unrolled = replace(s, kind=Kind.UNROLLED)
    fits = copies * weight(unrolled, target) <= LIMIT
    return unrolled if fits and _indexes_registers(s) else s


def _indexes_registers(s: For) -> bool:
    return any(s.var in names for x in walk(s.body) for names in _register_indices(x))


def _register_indices(s: Stmt) -> list[frozenset[Var]]:
    """Return the variables in each index of a register buffer that is directly in ``s``."""
    found: list[tuple[Expr, ...]] = []
    if isinstance(s, Store) and s.buffer.scope is Scope.REGISTER:
        found.append(s.index)
    if isinstance(s, Intrinsic):
        for r in (*s.writes, *s.reads):
            if r.buffer.scope is Scope.REGISTER:
                found.append(tuple(x.start for x in r.ranges))
    for e in exprs(s):
        found += [x.index for x in loads_in(e) if x.buffer.scope is Scope.REGISTER]
    return [frozenset().union(*map(free_vars, at)) for at in found]
