"""The one place that knows what children each loop-IR node has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from operator import is_
from typing import TypeAlias, TypeVar, assert_never

from .nodes import (
    Alloc,
    AllReduce,
    Block,
    BlockAxis,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Let,
    Load,
    Op,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
)

ExprFn: TypeAlias = Callable[[Expr], Expr]
StmtFn: TypeAlias = Callable[[Stmt], Stmt]
T = TypeVar("T")


def map_tuple(f: Callable[[T], T], items: tuple[T, ...]) -> tuple[T, ...]:
    """Return ``f`` on every item; the same tuple if every item came back as the same object."""
    if len(items) == 2:  # most operations have two operands: a third of the time
        a, b = items
        x, y = f(a), f(b)
        return items if x is a and y is b else (x, y)
    new = tuple(map(f, items))
    return items if all(map(is_, items, new)) else new


def map_expr(e: Expr, g: ExprFn) -> Expr:
    """Rebuild ``e`` with ``g`` on its child expressions."""
    match e:
        case Op(args=args):
            new = map_tuple(g, args)
            return e if new is args else Op(e.name, new, e.dtype)
        case Load(index=index):
            new = map_tuple(g, index)
            return e if new is index else Load(e.buffer, new)
        case Cast(value=value):
            v = g(value)
            return e if v is value else Cast(v, e.dtype, e.bits)
        case Var() | Const():
            return e
        case _:
            assert_never(e)


def map_region(r: Region, g: ExprFn) -> Region:
    """Rebuild a region with ``g`` on its bounds."""

    def bounds(x: Range) -> Range:
        start, extent = g(x.start), g(x.extent)
        return x if start is x.start and extent is x.extent else Range(start, extent)

    ranges = map_tuple(bounds, r.ranges)
    return r if ranges is r.ranges else Region(r.buffer, ranges)


def _same(e: Expr) -> Expr:
    return e


def map_stmt(s: Stmt, f: StmtFn, g: ExprFn = _same) -> Stmt:
    """Rebuild ``s`` with ``f`` on child statements and ``g`` on child expressions."""
    match s:
        case Store(index=index, value=value):
            ix, v = map_tuple(g, index), g(value)
            return s if ix is index and v is value else Store(s.buffer, ix, v)
        case Let(value=value, body=body):
            v, b = g(value), f(body)
            return s if v is value and b is body else Let(s.var, v, b)
        case If(cond=cond, then=then, orelse=orelse):
            c, t, o = g(cond), f(then), None if orelse is None else f(orelse)
            return s if c is cond and t is then and o is orelse else If(c, t, o)
        case Seq(stmts=stmts):
            new = map_tuple(f, stmts)
            return s if new is stmts else seq(*new)
        case For(extent=extent, body=body):
            x, b = g(extent), f(body)
            same = x is extent and b is body
            return s if same else For(s.var, x, b, s.kind, s.thread, s.notes)
        case Block():
            return _map_block(s, f, g)
        case Alloc(body=body):
            b = f(body)
            return s if b is body else Alloc(s.buffer, b)
        case Intrinsic(writes=writes, reads=reads):
            to, of = (map_tuple(lambda r: map_region(r, g), part) for part in (writes, reads))
            return s if to is writes and of is reads else replace(s, writes=to, reads=of)
        case AllReduce(combined=combined):
            values = map_tuple(g, combined)
            return s if values is combined else replace(s, combined=values)
        case _:
            assert_never(s)


def _map_block(s: Block, f: StmtFn, g: ExprFn) -> Block:
    axes = map_tuple(lambda a: a if (v := g(a.value)) is a.value else replace(a, value=v), s.axes)
    reads = map_tuple(lambda r: map_region(r, g), s.reads)
    writes = map_tuple(lambda r: map_region(r, g), s.writes)
    body = f(s.body)
    init = None if s.init is None else f(s.init)
    predicate = None if s.predicate is None else g(s.predicate)
    same = (
        axes is s.axes
        and reads is s.reads
        and writes is s.writes
        and body is s.body
        and init is s.init
        and predicate is s.predicate
    )
    if same:
        return s
    return replace(
        s, axes=axes, reads=reads, writes=writes, body=body, init=init, predicate=predicate
    )


def map_blocks(s: Stmt, f: Callable[[Block], Stmt]) -> Stmt:
    """Rebuild ``s`` with ``f`` on its outermost blocks."""
    return f(s) if isinstance(s, Block) else map_stmt(s, lambda x: map_blocks(x, f))


def seq(*stmts: Stmt) -> Stmt:
    """Return statements in order, flat; a single one as itself."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def lets(names: Sequence[tuple[Var, Expr]], body: Stmt) -> Stmt:
    """Return ``body`` with variables bound, the first one outermost."""
    for name, value in reversed(names):
        body = Let(name, value, body)
    return body


def children(s: Stmt) -> tuple[Stmt, ...]:
    """Child statements in program order (a block's init before its body)."""
    match s:
        case Store() | Intrinsic() | AllReduce():
            return ()
        case Let(body=body) | For(body=body) | Alloc(body=body):
            return (body,)
        case If(then=then, orelse=orelse):
            return (then,) if orelse is None else (then, orelse)
        case Seq(stmts=stmts):
            return stmts
        case Block(init=init, body=body):
            return (body,) if init is None else (init, body)
        case _:
            assert_never(s)


def walk(s: Stmt) -> Iterator[Stmt]:
    """Yield every statement under ``s``, itself first, in program order."""
    waiting = [s]
    while waiting:
        s = waiting.pop()
        yield s
        waiting.extend(children(s)[::-1])


def exprs(s: Stmt) -> tuple[Expr, ...]:
    """Return the expressions directly in ``s`` (a block's regions included)."""
    match s:
        case Store(index=index, value=value):
            return (*index, value)
        case Let(value=value):
            return (value,)
        case If(cond=cond):
            return (cond,)
        case For(extent=extent):
            return (extent,)
        case Block(axes=axes, reads=reads, writes=writes, predicate=predicate):
            guard = () if predicate is None else (predicate,)
            return (*(a.value for a in axes), *_bounds((*reads, *writes)), *guard)
        case Intrinsic(writes=writes, reads=reads):
            return _bounds((*writes, *reads))
        case AllReduce(combined=combined):
            return combined
        case Seq() | Alloc():
            return ()
        case _:
            assert_never(s)


def _bounds(regions: tuple[Region, ...]) -> tuple[Expr, ...]:
    return tuple(b for r in regions for x in r.ranges for b in (x.start, x.extent))


def walk_expr(e: Expr) -> Iterator[Expr]:
    """Yield every expression under ``e``, itself first."""
    waiting = [e]
    while waiting:
        e = waiting.pop()
        yield e
        match e:
            case Op(args=args) | Load(index=args):
                waiting.extend(args[::-1])
            case Cast(value=value):
                waiting.append(value)
            case _:
                pass


def loads_in(e: Expr) -> Iterator[Load]:
    """Yield every load in ``e``, those of its indices included, as in ``walk_expr``."""
    waiting = [e]
    while waiting:
        e = waiting.pop()
        match e:
            case Op(args=args):
                waiting.extend(args[::-1])
            case Load(index=index):
                yield e
                waiting.extend(index[::-1])
            case Cast(value=value):
                waiting.append(value)
            case _:
                pass


def exprs_under(s: Stmt) -> Iterator[Expr]:
    """Yield every expression in ``s`` and in the statements under it."""
    return (x for inner in walk(s) for e in exprs(inner) for x in walk_expr(e))


def loads_under(s: Stmt) -> Iterator[Load]:
    """Yield every load in ``s`` and in the statements under it."""
    return (x for x in exprs_under(s) if isinstance(x, Load))


def own_reads(s: Stmt) -> tuple[Buffer, ...]:
    """Return the buffers that ``s`` reads itself, not in statements under it; one may occur
    twice.
    """
    loads = (x.buffer for e in exprs(s) for x in loads_in(e))
    match s:
        case Intrinsic(reads=reads):
            return (*loads, *(r.buffer for r in reads))
        case AllReduce(values=values):
            return (*loads, *values)
        case _:
            return tuple(loads)


def own_writes(s: Stmt) -> tuple[Buffer, ...]:
    """Return the buffers that ``s`` writes itself, not in statements under it; one may occur
    twice.
    """
    match s:
        case Store(buffer=buffer):
            return (buffer,)
        case Intrinsic(writes=writes):
            return tuple(r.buffer for r in writes)
        case AllReduce(values=values):
            return values
        case _:
            return ()


def buffers_read(s: Stmt) -> frozenset[Buffer]:
    """Return the buffers that ``s`` and the statements under it read."""
    return frozenset(b for x in walk(s) for b in own_reads(x))


def buffers_written(s: Stmt) -> frozenset[Buffer]:
    """Return the buffers that ``s`` and the statements under it write."""
    return frozenset(b for x in walk(s) for b in own_writes(x))


def substitute_expr(e: Expr, by: Mapping[Var, Expr]) -> Expr:
    """Return ``e`` with variables replaced."""
    return substitution(by)(e)


def substitute(s: Stmt, by: Mapping[Var, Expr]) -> Stmt:
    """Return ``s`` with variables replaced.

    Variables are introduced once, so nothing is captured.
    """
    expr = substitution(by)

    def stmt(x: Stmt) -> Stmt:
        return map_stmt(x, stmt, expr)

    return stmt(s)


def substitution(by: Mapping[Var, Expr]) -> ExprFn:
    """Return the function that replaces variables in an expression."""

    def expr(e: Expr) -> Expr:
        return by.get(e, e) if isinstance(e, Var) else map_expr(e, expr)

    return expr


def on_loads(f: Callable[[Load], Expr]) -> ExprFn:
    """Return a function that rebuilds an expression with ``f`` on its loads, innermost first."""

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        return f(e) if isinstance(e, Load) else e

    return expr


def replace_buffers(s: Stmt, by: Mapping[Buffer, Buffer]) -> Stmt:
    """Return ``s`` with buffers replaced wherever they occur; indices stay."""
    expr = on_loads(lambda e: replace(e, buffer=by[e.buffer]) if e.buffer in by else e)

    def region(r: Region) -> Region:
        return replace(r, buffer=by[r.buffer]) if r.buffer in by else r

    def stmt(x: Stmt) -> Stmt:
        x = map_stmt(x, stmt, expr)
        match x:
            case Store(buffer=b) | Alloc(buffer=b) if b in by:
                return replace(x, buffer=by[b])
            case AllReduce(values=values):
                new = map_tuple(lambda b: by.get(b, b), values)
                return x if new is values else replace(x, values=new)
            case Block(reads=reads, writes=writes) | Intrinsic(reads=reads, writes=writes):
                r, w = map_tuple(region, reads), map_tuple(region, writes)
                return x if r is reads and w is writes else replace(x, reads=r, writes=w)
            case _:
                return x

    return stmt(s)


def free_vars(e: Expr) -> frozenset[Var]:
    """Variables that occur in ``e``."""
    found: list[Var] = []
    waiting = [e]
    while waiting:
        match waiting.pop():
            case Var() as v:
                found.append(v)
            case Op(args=args) | Load(index=args):
                waiting.extend(args)
            case Cast(value=value):
                waiting.append(value)
            case _:
                pass
    return frozenset(found)


def equal(a: Func | Stmt | Expr, b: Func | Stmt | Expr) -> bool:
    """True if ``a`` and ``b`` are the same program up to renaming variables and buffers.

    NaN literals are equal to each other, and 0.0 differs from -0.0.
    """
    there: dict[Var | Buffer, object] = {}
    back: dict[object, Var | Buffer] = {}

    def forget(x: AllReduce, y: AllReduce) -> None:
        """Their names are known nowhere else, but a copy may have the same ones."""
        for v in (*x.left, *x.right):
            if v in there:
                del back[there.pop(v)]
        for v in (*y.left, *y.right):
            if v in back:
                del there[back.pop(v)]

    def same(x: object, y: object) -> bool:
        if isinstance(x, Mapping):  # notes
            return isinstance(y, Mapping) and dict(x) == dict(y)
        if type(x) is not type(y):
            return False
        match x, y:
            case (Var(dtype=s), Var(dtype=t)):
                return s == t and there.setdefault(x, y) is y and back.setdefault(y, x) is x
            case (Buffer(), Buffer()):
                return (
                    _form(x) == _form(y)
                    and there.setdefault(x, y) is y
                    and back.setdefault(y, x) is x
                )
            case (Const(value=v, dtype=s), Const(value=w, dtype=t)):
                signs = str(v).startswith("-") == str(w).startswith("-")
                return s == t and ((v == w and signs) or (v != v and w != w))
            case (tuple(), tuple()):
                return len(x) == len(y) and all(map(same, x, y))
            case (AllReduce(), AllReduce()):
                forget(x, y)
                return all(same(getattr(x, n), getattr(y, n)) for n in _FIELDS[AllReduce])
            case _:
                names = _FIELDS.get(type(x), ())
                return all(same(getattr(x, n), getattr(y, n)) for n in names) if names else x == y

    return same(a, b)


def _form(b: Buffer) -> tuple[object, ...]:
    return b.shape, b.dtype, b.scope, b.align, b.swizzle


_FIELDS: dict[type, tuple[str, ...]] = {
    node: tuple(f.name for f in fields(node))
    for node in (
        *(Op, Cast, Load, Range, Region, BlockAxis),
        *(Store, Let, If, Seq, For, Block, Alloc, Intrinsic, AllReduce, Func),
    )
}
