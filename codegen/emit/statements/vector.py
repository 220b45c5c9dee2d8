"""Vector loops: iterations become lanes, in pieces of the machine's vector width.

A partial last piece is narrower where its size is a power of two, else masked. A statement ``acc[i]
= acc[i] op x`` whose element is the same in every lane is a reduction: pieces are accumulated lane
by lane, then the lanes pairwise.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial

from ....ir.dtypes import DType, index, s32
from ....ir.elementwise import identity
from ....ir.loop.build import as_int
from ....ir.loop.nodes import (
    Alloc,
    Cast,
    Expr,
    For,
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
from ....ir.loop.visit import (
    buffers_read,
    buffers_written,
    children,
    exprs,
    free_vars,
    loads_in,
    walk,
    walk_expr,
)
from ..access import store_element
from ..expr import VECTOR_BYTES, Emitter
from ..index import NarrowIndex
from ..llvm.core import IRValue
from ..llvm.lockstep import lockstep
from ..ops import apply, combines
from .interrupt_polls import close_loop

SMALLEST = 128  # bits of the smallest vector register; narrower vectors leave lanes unused
UNROLLED = 64  # iterations up to which a GPU's vector loop without lanes is straight-line code
ABREAST = 8  # vectors whose instructions are interleaved
PIECES = 16  # pieces of one vector loop up to which they are straight-line code, not a loop

EmitStmt = Callable[[Emitter, Stmt], None]


def vector_loop(em: Emitter, s: For, count: int, emit: EmitStmt) -> None:
    """Emit a vector loop of ``count`` iterations."""
    lanes, sums = _plan(em, s)
    if not lanes and em.device is not None and count <= UNROLLED:
        for k in range(count):
            em.env[s.var] = em.const(k, index)
            emit(em, s.body)
        return
    if not lanes:
        counter, name = em.function.open_loop(em.stores(s.body), True)
        em.env[s.var] = counter
        emit(em, s.body)
        close_loop(em, s, name, "0", str(count), 1, index.bits)
        return
    full, rest = divmod(count, lanes)
    joined = sums if full > 1 else []
    for x in joined:
        _open_sum(em, x, lanes)
    if full > PIECES:
        counter, name = em.function.open_loop(em.stores(s.body), True)
        end = narrow_counter(em, counter, name, em.const(full * lanes, index))
        _piece(em, s, counter, lanes, lanes, emit)
        close_loop(em, s, name, "0", end.text, lanes, end.dtype.bits)
    else:
        whole = partial(_whole, em, s, lanes, emit)
        plain = not any(isinstance(x, Alloc | For | If) for x in walk(s.body))
        _abreast(em, full, whole, int(plain))
    for x in joined:
        _close_sum(em, x, lanes)
    if rest:
        _piece(em, s, em.const(full * lanes, index), _round_up(rest), rest, emit)


def unrolled_loop(em: Emitter, s: For, count: int, emit: EmitStmt) -> None:
    """Emit the iterations of a loop as straight-line code, in lockstep if they are independent."""

    def one(k: int) -> None:
        em.env[s.var] = em.const(k, index)
        emit(em, s.body)

    apart = em.device is None and em.lanes is None
    apart = apart and not buffers_written(s.body) & buffers_read(s.body)
    _abreast(em, count, one, _vectors(em, s.body) if apart else 0)


def _vectors(em: Emitter, s: Stmt) -> int:
    """Return the number of vectors that a statement processes; 0 if it is not straight-line."""
    match s:
        case For(kind=Kind.VECTOR | Kind.UNROLLED as kind, extent=extent, body=body):
            inner, count = _vectors(em, body), as_int(extent)
            if kind is Kind.VECTOR and count is not None:
                count = -(-count // max(1, _plan(em, s)[0]))
            return inner * (count or 0)
        case Let(body=body):
            return _vectors(em, body)
        case Seq(stmts=parts):
            inside = [_vectors(em, x) for x in parts]
            return max(inside) if all(inside) else 0
        case Store():
            return 1
        case _:
            return 0


def _abreast(em: Emitter, count: int, emit: Callable[[int], None], vectors: int) -> None:
    """Emit pieces 0 to ``count - 1``, of ``vectors`` vectors each, as straight-line code.

    As many as ``ABREAST`` vectors are in lockstep. With 0 vectors none are: the pieces may depend
    on each other.
    """
    lines = em.function.here.lines
    together = max(1, ABREAST // vectors) if vectors else 1
    for first in range(0, count, together):
        marks = []
        for k in range(first, min(first + together, count)):
            marks.append(len(lines))
            emit(k)
        if len(marks) > 1:
            ends = [*marks[1:], len(lines)]
            lines[marks[0] :] = lockstep([lines[a:b] for a, b in zip(marks, ends, strict=True)])


def _plan(em: Emitter, s: For) -> tuple[int, list[Store]]:
    """Return the lanes of one piece (0 if not vectorizable) and the reductions to carry across
    pieces.

    Cached, since surrounding unrolled loops emit the same loop again and again.
    """
    known = em.plans.get(id(s))
    if known is None:
        lanes, differing = _lanes(em, s) if vectorizable(s) else 0, _differing(s)
        sums = [x for x in _top(s.body) if reduction(x, differing) is not None]
        known = em.plans[id(s)] = s, lanes, sums
    return known[1:]


def narrow_counter(em: Emitter, counter: IRValue, loop: str, end: IRValue) -> IRValue:
    """Return the end that an open loop counts to, in 32 bits with its counter where they
    suffice.
    """
    small = em.narrow(end)
    if small is None:
        return end
    own = IRValue(f"%j.{loop}", s32, 0, counter.depth)
    em.small[counter.text] = NarrowIndex(own, 0, max(0, small.high - 1))
    return small.value


def _lanes(em: Emitter, s: For) -> int:
    """Return the lanes of a full piece; on a GPU, which has no vector arithmetic, by
    access size.
    """
    if em.device is None:
        return min(em.target.lanes(widest(s.body)), 64)
    touched = buffers_written(s.body) | buffers_read(s.body)
    moved = [b for b in touched if b.scope is not Scope.REGISTER]
    return VECTOR_BYTES // min((b.dtype.bytes for b in moved or touched), default=4)


def _round_up(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _whole(em: Emitter, s: For, lanes: int, emit: EmitStmt, k: int) -> None:
    _piece(em, s, em.const(k * lanes, index), lanes, lanes, emit)


def _piece(em: Emitter, s: For, base: IRValue, lanes: int, active: int, emit: EmitStmt) -> None:
    """Emit ``active`` iterations from ``base`` on, as ``lanes`` lanes."""
    if lanes == 1:
        em.env[s.var] = base
        emit(em, s.body)
        return
    with em.over(em.lanes_from(s.var, base, lanes, active)):
        emit(em, s.body)


def widest(s: Stmt) -> DType:
    """Return the widest element type that the statement moves or computes."""
    found: list[DType] = []

    def look(e: Expr) -> None:
        if isinstance(e, Load):
            found.append(e.buffer.dtype)
            return
        if isinstance(e, Cast) or (isinstance(e, Op) and e.dtype != index):
            found.append(e.dtype)
        for x in _operands(e):
            look(x)

    for x in walk(s):
        if isinstance(x, Store):
            found.append(x.buffer.dtype)
            look(x.value)
        elif isinstance(x, Let):
            look(x.value)
    return max(found, key=lambda d: d.bytes)


def _operands(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Op(args=args):
            return args
        case Cast(value=value):
            return (value,)
        case _:
            return ()


def _top(s: Stmt) -> list[Store]:
    """Return the stores that run exactly once in each iteration."""
    match s:
        case Store():
            return [s]
        case Seq(stmts=stmts):
            return [x for y in stmts for x in _top(y)]
        case Let(body=body):
            return _top(body)
        case _:
            return []


def reduction(s: Store, differing: Set[Var]) -> tuple[str, Expr] | None:
    """Return the operation and operand of ``acc[i] = acc[i] op x`` where ``i`` is the same in all
    lanes: free of the variables that differ between them.
    """
    if any(_mentions(e, differing) for e in s.index):
        return None
    match s.value:
        case Op(name=name, args=(a, b), dtype=dtype) if combines(name, dtype):
            for own, other in ((a, b), (b, a)):
                same = isinstance(own, Load) and own.buffer is s.buffer and own.index == s.index
                again = any(x.buffer is s.buffer for x in loads_in(other))
                if same and not again:
                    return name, other
    return None


def vectorizable(s: For) -> bool:
    """True if iterations can be lanes.

    Stores to one element by several lanes must be uniform or reductions, and loop bounds must not
    vary between lanes.
    """
    differing = _differing(s)

    def differs(e: Expr) -> bool:
        return _mentions(e, differing)

    def ok(x: Stmt) -> bool:
        match x:
            case Store(index=at, value=value):
                clear = any(map(differs, at)) or not differs(value)
                if not clear and reduction(x, differing) is None:
                    return False
            case For(kind=kind, extent=extent):
                if kind is Kind.THREAD or differs(extent):
                    return False
            case Let() | If() | Seq() | Alloc():
                pass
            case _:
                return False
        return all(map(ok, children(x)))

    return ok(s.body) and not _carried(s, differing)


def _differing(s: For) -> Set[Var]:
    """Return the variables that may differ between the lanes of a vector loop."""
    found = {s.var}
    for x in walk(s.body):
        if isinstance(x, Let) and _mentions(x.value, found):
            found.add(x.var)
    return found


def _carried(s: For, differing: Set[Var]) -> bool:
    """True if a uniform element is both written and read other than by its own reduction."""
    stores = [x for x in walk(s.body) if isinstance(x, Store)]
    uniform = {x.buffer for x in stores if not any(_mentions(e, differing) for e in x.index)}
    if not uniform:
        return False
    for x in walk(s.body):
        found = reduction(x, differing) if isinstance(x, Store) else None
        for e in exprs(x) if found is None else (found[1],):
            if any(y.buffer in uniform for y in loads_in(e)):
                return True
    return False


def _mentions(e: Expr, names: Set[Var]) -> bool:
    return any(isinstance(x, Var) and x in names for x in walk_expr(e))


# Reductions across lanes.


def _open_sum(em: Emitter, s: Store, lanes: int) -> None:
    """Allocate a vector of partial results, promoted to a register later."""
    assert isinstance(s.value, Op)
    start = em.const(identity(s.value.name, s.buffer.dtype), s.buffer.dtype, lanes)
    slot = em.function.alloca(start.type, 64)
    em.function.write(f"store {start}, ptr {slot.text}, align 64")
    em.slots[id(s)] = slot


def _close_sum(em: Emitter, s: Store, lanes: int) -> None:
    assert isinstance(s.value, Op)
    slot = em.slots.pop(id(s))
    dtype = s.buffer.dtype
    kind = em.const(0, dtype, lanes).type
    partial = em.function.result(f"load {kind}, ptr {slot.text}, align 64", dtype, lanes)
    _into_element(em, s, s.value.name, partial)


def _into_element(em: Emitter, s: Store, name: str, partial: IRValue) -> None:
    old = em.value(Load(s.buffer, s.index))
    total = apply(em, name, (old, across(em, name, partial)))
    # Where no lane may be on, the store keeps its mask: ``old`` is not the element then.
    lanes = None if em.lanes is not None and em.lanes.certain else em.lanes
    with em.over(lanes):
        store_element(em, s.buffer, s.index[0], total)


def across(em: Emitter, name: str, x: IRValue) -> IRValue:
    """Reduce all lanes of ``x``, halving the vector in each step, down to the smallest register."""
    count = x.lanes
    least = min(count, SMALLEST // x.dtype.bits)
    while count > 1:
        half = count // 2
        rest = [-1] * max(0, least - half)
        low = x if rest else em.shuffle(x, list(range(half)))
        high = em.shuffle(x, [*range(half, count), *rest])
        x, count = apply(em, name, (low, high)), half
    return em.lane(x, 0)


def reduce_element(em: Emitter, s: Store) -> bool:
    """Emit ``s`` as a reduction over the lanes and return True, or return False if it is
    not one.
    """
    lanes = em.lanes
    if lanes is None:
        return False
    if id(s) not in em.reductions:
        em.reductions[id(s)] = s, reduction(s, {lanes.var})
    found = em.reductions[id(s)][1]
    if found is None or any(em.env[v].lanes for e in s.index for v in free_vars(e)):
        return False
    name, operand = found
    x = em.value(operand)
    if not x.lanes:
        x = em.broadcast(x, lanes.count)
    if lanes.mask is not None:
        x = em.select(lanes.mask, x, em.like(identity(name, x.dtype), x))
    slot = em.slots.get(id(s))
    if slot is None:
        _into_element(em, s, name, x)
        return True
    kind = x.type
    old = em.function.result(f"load {kind}, ptr {slot.text}, align 64", x.dtype, x.lanes)
    new = apply(em, name, (old, x))
    em.function.write(f"store {new}, ptr {slot.text}, align 64")
    return True
