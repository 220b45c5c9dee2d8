"""Keep what a loop updates in a register while the loop runs.

``for k: C[i] = C[i] + x``  ->  ``r[0] = C[i]; for k: r[0] = r[0] + x; C[i] = r[0]``. Where the
update is in a vector loop of its own, one partial result per lane is kept, and they are put
together in the end: ``r[l] = 0; for k: for l in vectorize: r[l] = r[l] + x;
for l in vectorize: C[i] = C[i] + r[l]``. The sums of an ``IN_TILES`` loop stay in memory, where
tile registers load them from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ....ir.elementwise import TABLE, identity
from ....ir.loop.affine import bounds
from ....ir.loop.build import as_int, op
from ....ir.loop.moves import moved
from ....ir.loop.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Kind,
    Let,
    Load,
    Op,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.notes import IN_TILES
from ....ir.loop.visit import (
    free_vars,
    loads_in,
    loads_under,
    map_stmt,
    seq,
    walk,
    walk_expr,
)
from .rebuild import with_body

WIDEST = 256  # partial results kept for one element


@dataclass(frozen=True, slots=True)
class Update:
    """``store`` runs in every iteration; ``lanes`` is the vector loop inside that holds it."""

    store: Store
    lanes: For | None


def promote(func: Func) -> Func:
    """Return the function with the elements that its loops update held in registers."""
    return with_body(func, _promoted(func.body, None))


def _promoted(s: Stmt, lanes: For | None) -> Stmt:
    if isinstance(s, For):
        if IN_TILES.of(s):
            return s
        if s.kind in (Kind.SERIAL, Kind.UNROLLED) and bounds(s.extent, {})[0] >= 2:
            for update in _updates(s.body, None):
                if _is_private(s, update):
                    return _held(s, update, lanes)
        if s.kind is Kind.VECTOR:
            lanes = s
    return map_stmt(s, lambda c: _promoted(c, lanes))


def _updates(s: Stmt, lanes: For | None) -> Iterator[Update]:
    """Yield the stores that run whenever ``s`` does and update the element that they write."""
    match s:
        case Store(buffer=b, index=at, value=value):
            if b.scope is Scope.GLOBAL and Load(b, at) in walk_expr(value):
                yield Update(s, lanes)
        case Seq(stmts=stmts):
            for x in stmts:
                yield from _updates(x, lanes)
        case For(extent=extent, body=body) if bounds(extent, {})[0] >= 1:
            if s.kind in (Kind.SERIAL, Kind.UNROLLED):
                yield from _updates(body, lanes)
            elif s.kind is Kind.VECTOR and lanes is None:
                yield from _updates(body, s)
        case Let(body=body) | Alloc(body=body):
            yield from _updates(body, lanes)
        case If() | _:
            return


def _is_private(s: For, update: Update) -> bool:
    """True if the loop touches the updated buffer at that one element only."""
    store = update.store
    inside = {s.var} | {x.var for x in walk(s.body) if isinstance(x, For | Let)}
    if any(free_vars(i) & inside for i in store.index):
        return False
    if any(any(loads_in(i)) for i in store.index):
        return False
    if update.lanes is not None and _operand(store) is None:
        return False
    count = 0
    for x in walk(s.body):
        if isinstance(x, Store) and x.buffer is store.buffer:
            count += 1
            if x.index != store.index:
                return False
    reads = (x for x in loads_under(s.body) if x.buffer is store.buffer)
    return count == 1 and all(x.index == store.index for x in reads)


def _operand(s: Store) -> tuple[str, Expr] | None:
    """Return ``op`` and ``x`` of ``b[i] = b[i] op x`` for an ``op`` whose order is free."""
    match s.value:
        case Op(name=name, args=(a, b)) if TABLE[name].associative and TABLE[name].commutative:
            own = Load(s.buffer, s.index)
            for first, other in ((a, b), (b, a)):
                if first == own and own not in walk_expr(other):
                    return name, other
    return None


def _held(s: For, update: Update, outer: For | None) -> Stmt:
    store, inner = update.store, update.lanes
    if inner is None:
        return _held_element(s, store, outer)
    width, found = as_int(inner.extent), _operand(store)
    assert width is not None and found is not None
    if outer is not None or width > WIDEST:
        return s
    name, operand = found
    dtype = store.buffer.dtype
    r = Buffer(f"{store.buffer.name}_lanes", (width,), dtype, Scope.REGISTER)
    partial = Store(r, (inner.var,), op(name, Load(r, (inner.var,)), operand))
    first, last = Var(inner.var.name), Var(inner.var.name)
    neutral = identity(name, dtype)
    zero = Const(float(neutral) if dtype.is_float else neutral, dtype)
    total = op(name, Load(store.buffer, store.index), Load(r, (last,)))
    return Alloc(
        r,
        seq(
            For(first, inner.extent, Store(r, (first,), zero), Kind.VECTOR),
            _replaced(s, store, partial),
            For(last, inner.extent, replace(store, value=total), Kind.VECTOR),
        ),
    )


def _replaced(s: Stmt, old: Store, new: Store) -> Stmt:
    return new if s is old else map_stmt(s, lambda c: _replaced(c, old, new))


def _held_element(s: For, store: Store, lanes: For | None) -> Stmt:
    b, at = store.buffer, store.index
    varies = lanes is not None and any(lanes.var in free_vars(i) for i in at)
    if lanes is not None and not varies:
        return s  # one element for all lanes: the vector loop's own business
    width = as_int(lanes.extent) if lanes is not None else 1
    if width is None or width > WIDEST:
        return s
    r = Buffer(f"{b.name}_kept", (width,), b.dtype, Scope.REGISTER)
    place: tuple[Expr, ...] = (lanes.var if lanes is not None else Const(0),)
    body = moved(s, {b: (r, lambda _: place)})
    return Alloc(r, seq(Store(r, place, Load(b, at)), body, Store(b, at, Load(r, place))))
