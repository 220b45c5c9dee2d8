"""Keep what is computed of a register tile a loop, where it is much code.

``unroll i: out[i] = f(tile[i])``  ->  ``unroll i: kept[i] = tile[i]; for i: out[i] = f(kept[i])``

A sigmoid or an error function is some thirty instructions. Written out for every row of a tile it
leaves no lines to copy the loops before it by (``partition``), and they keep their guards; its
constants and parts of results take the registers of the tile's sums. Through memory, which is in
the first cache, the tile costs a store and a load for each vector.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.dtypes import index
from ....ir.loop.build import as_int
from ....ir.loop.copies import renamed
from ....ir.loop.nodes import (
    Alloc,
    AllReduce,
    Buffer,
    For,
    Func,
    If,
    Intrinsic,
    Kind,
    Let,
    Load,
    Scope,
    Seq,
    Stmt,
    Store,
)
from ....ir.loop.visit import exprs, loads_in, map_stmt, on_loads, seq, walk
from ....ir.target import Target
from .rebuild import with_body
from .weight import weight

HEAVY = 250  # lines of such a loop, written out
LEAST = 4  # iterations


def roll_epilogues(func: Func, target: Target) -> Func:
    """Return the function with long loops over results of register tiles kept as loops."""

    def stmt(s: Stmt) -> Stmt:
        tile = _tile(s, target) if isinstance(s, For) else None
        if tile is None or not isinstance(s, For):
            return map_stmt(s, stmt)
        return _through_memory(s, tile)

    return with_body(func, stmt(func.body))


def _tile(s: For, target: Target) -> Buffer | None:
    """Return the one register tile that a long unrolled loop reads, if it writes to memory only."""
    count = as_int(s.extent)
    if s.kind is not Kind.UNROLLED or count is None or count < LEAST or weight(s, target) <= HEAVY:
        return None
    tiles: set[Buffer] = set()
    for x in walk(s):
        if isinstance(x, Intrinsic | AllReduce | Alloc):
            return None
        if isinstance(x, Store) and x.buffer.scope is Scope.REGISTER:
            return None
        if isinstance(x, For) and x.kind not in (Kind.UNROLLED, Kind.VECTOR):
            return None
        tiles.update(load.buffer for load in _loads(x))
    return tiles.pop() if len(tiles) == 1 else None


def _loads(s: Stmt) -> list[Load]:
    """Return the loads of register buffers directly in a statement."""
    every = (x for e in exprs(s) for x in loads_in(e))
    return [x for x in every if x.buffer.scope is Scope.REGISTER]


def _through_memory(s: For, tile: Buffer) -> Stmt:
    kept = Buffer(f"{tile.name}_kept", tile.shape, tile.dtype)

    from_memory = on_loads(lambda e: Load(kept, e.index) if e.buffer is tile else e)

    def rewritten(x: Stmt) -> Stmt:
        return map_stmt(x, rewritten, from_memory)

    after = replace(s, body=rewritten(s.body), kind=Kind.SERIAL)
    return Alloc(kept, seq(renamed(_copy(s, kept)), after))


def _copy(s: Stmt, kept: Buffer) -> Stmt:
    """Return ``s`` with nothing but copies of the elements of the tile that it reads."""
    own = [Store(kept, x.index, x) for x in dict.fromkeys(_loads(s))]
    match s:
        case For(body=body):
            return replace(s, body=_copy(body, kept))
        case If(then=then, orelse=orelse):
            other = None if orelse is None else _copy(orelse, kept)
            return seq(*own, replace(s, then=_copy(then, kept), orelse=other))
        case Let(var=var, body=body) if var.dtype == index:
            return replace(s, body=_copy(body, kept))
        case Let(body=body):
            return seq(*own, _copy(body, kept))
        case Seq(stmts=parts):
            return seq(*(_copy(part, kept) for part in parts))
        case _:
            return seq(*own)
