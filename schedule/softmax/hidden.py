"""Maxima and sums over masked rows: what hidden parts add to them, without computing these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from ...ir.loop.build import add, cast, lt, minimum, mul, op, point, select, sub
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Load,
    Op,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.visit import free_vars, loads_in, map_expr, substitute, substitute_expr
from ..cursor import (
    Change,
    Path,
    block_of,
    blocks_under,
    common,
    extent_of,
    fresh_name,
    loop_of,
    loops_of,
    nest,
)
from ..errors import Reason
from ..stores import update_of
from .parts import factor

NOTHING = 104.0  # exp(-x) is 0 in f32 for every x from here on
Changes: TypeAlias = list[tuple[Path, Change]]


@dataclass(frozen=True, slots=True)
class MaskedParts:
    """A loop over parts of rows: ``count`` of them from ``first`` on show a key, the others hold
    ``fill`` only.

    A part has ``length`` elements. ``weights`` is the buffer of the exponentials, ``largest`` that
    of the parts' maxima.
    """

    path: Path
    first: Expr
    count: Expr
    length: int
    fill: Const
    weights: Buffer
    largest: Buffer

    @property
    def whole(self) -> int:
        """The number of all parts."""
        return extent_of(loop_of(self.path)) or 0

    @property
    def hidden(self) -> Expr:
        """The number of elements in hidden parts."""
        return mul(sub(self.whole, self.count), self.length)

    @property
    def reads(self) -> tuple[Region, ...]:
        """Return what the number of parts depends on in memory."""
        found = dict.fromkeys(loads_in(self.count))
        return tuple(map(_point, found))

    @property
    def infinite(self) -> bool:
        """True if hidden elements are -inf, so that they add nothing to any row."""
        return self.fill.value == float("-inf")


@dataclass(frozen=True, slots=True)
class _Total:
    """A block that puts partial results together, and the one that begins its reduction."""

    block: Block
    store: Store
    term: Expr
    start: Path


def shares(func: Func, parts: MaskedParts, loops: list[Path]) -> Changes | Reason:
    """Return changes by which the results of ``loops`` hold the share of hidden parts."""
    changes: Changes = []
    maxima: Buffer | None = None
    for path in (p for loop in loops for p in blocks_under(loop)):
        block, update = block_of(path), update_of(block_of(path))
        if update is None:
            maxima = _whole_maxima(block, parts) or maxima
            continue
        starts = [
            nest(func).blocks[n]
            for n in nest(func).writers[update.store.buffer]
            if n != block.name and not nest(func).block(n).reads
        ]
        if len(starts) != 1:
            return _no_online_softmax(block)
        total = _Total(block, update.store, update.term, starts[0])
        if update.op == "maximum" and _loads(total.term) == [parts.largest]:
            maxima = total.store.buffer
            found: Changes | Reason = [] if parts.infinite else [_at_least_fill(total, parts)]
        else:
            found = _sum(func, parts, total, maxima)
        if isinstance(found, Reason):
            return found
        changes += found
    return changes


def _loads(e: Expr) -> list[Buffer]:
    return [x.buffer for x in loads_in(e)]


def _no_online_softmax(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` is no maximum and no sum of an online softmax",
        (block,),
        hint="rescale the exponentials",
    )


def _whole_maxima(block: Block, parts: MaskedParts) -> Buffer | None:
    """Return the maxima of rows if the block computes the scales of parts from them."""
    value = block.body.value if isinstance(block.body, Store) else None
    match value.args[0] if isinstance(value, Op) and value.name == "exponential" else None:
        case Op(name="subtract", args=(Load() as a, Load() as b)) if a.buffer is parts.largest:
            return b.buffer
        case _:
            return None


def _at_least_fill(total: _Total, parts: MaskedParts) -> tuple[Path, Change]:
    def change(s: Stmt) -> Stmt:
        assert isinstance(s, Block) and isinstance(s.body, Store)
        some = lt(parts.count, parts.whole)
        return replace(
            s, reads=parts.reads, body=replace(s.body, value=select(some, parts.fill, s.body.value))
        )

    return total.start, change


def _sum(func: Func, parts: MaskedParts, total: _Total, maxima: Buffer | None) -> Changes | Reason:
    """Return the changes to a sum of partial sums times the scales of their parts."""
    match total.term:
        case Op(name="multiply", args=(Load() as partial, Load() as scale)):
            pass
        case _:
            return _no_online_softmax(total.block)
    scales = [nest(func).block(n) for n in nest(func).writers.get(scale.buffer, ())]
    if maxima is None or len(scales) != 1 or _whole_maxima(scales[0], parts) is not maxima:
        return _no_online_softmax(total.block)
    if parts.infinite:
        return []
    start = block_of(total.start)
    assert isinstance(start.body, Store)
    by = dict(zip(total.store.index, start.body.index, strict=True))
    rows = [e for e in scale.index if e not in _reduced(total.block)]
    source = _partial_sum(func, partial, parts)
    if source is None or any(e not in by for e in rows):
        return _no_online_softmax(total.block)
    most = Load(maxima, tuple(by[e] for e in rows))
    block, store, weight, term = source
    if term == weight:
        return [_count_of_hidden(total, parts, most)]
    names: dict[Var, Expr] = {}
    for own, e in zip(store.index, partial.index, strict=True):
        assert isinstance(own, Var)
        names[own] = by.get(e, Const(0))
    share = op("exponential", op("subtract", parts.fill, most))
    product = map_expr(term, lambda e: share if e is weight else e)
    (over,) = _reduced(block)
    return _product_of_hidden(func, parts, total, most, (product, names, over))


def _reduced(block: Block) -> set[Var]:
    return {a.var for a in block.axes if a.kind is AxisKind.REDUCE}


def _partial_sum(
    func: Func, partial: Load, parts: MaskedParts
) -> tuple[Block, Store, Load, Expr] | None:
    """Return block, store, exponential and term of a partial sum, seen through copies.

    The indices of the store are those of ``partial``, one by one.
    """
    buffer = partial.buffer
    for _ in range(4):
        for name in nest(func).writers.get(buffer, ()):
            block = nest(func).block(name)
            update = update_of(block)
            if update is not None:
                if (weight := factor(update.term, parts.weights)) is not None:
                    return block, update.store, weight, update.term
                loads = [*loads_in(update.term)]
            elif isinstance(block.body, Store) and isinstance(block.body.value, Load):
                loads = [block.body.value]
            else:
                continue
            buffer = loads[0].buffer
            break
    return None


def _count_of_hidden(total: _Total, parts: MaskedParts, most: Load) -> tuple[Path, Change]:
    """Begin a sum of exponentials with the share of the hidden ones, all of which are equal."""
    weight = op("exponential", op("subtract", parts.fill, most))
    share = op("multiply", cast(parts.hidden, weight.dtype), weight)

    def change(s: Stmt) -> Stmt:
        assert isinstance(s, Block) and isinstance(s.body, Store)
        value = select(lt(parts.count, parts.whole), share, s.body.value)
        return replace(s, reads=(_point(most), *parts.reads), body=replace(s.body, value=value))

    return total.start, change


def _product_of_hidden(
    func: Func,
    parts: MaskedParts,
    total: _Total,
    most: Load,
    product: tuple[Expr, dict[Var, Expr], Var],
) -> Changes | Reason:
    """Add the products with hidden exponentials, for rows in which those are not 0."""
    path, start = total.start, block_of(total.start)
    above = common(path, nest(func).blocks[total.block.name])
    values = {a.var: a.value for a in start.axes}
    ends = most.buffer.shape  # rows of a ragged tile that do not exist read the last one
    at = tuple(substitute_expr(e, values) for e in most.index)
    row = Load(most.buffer, tuple(minimum(e, n - 1) for e, n in zip(at, ends, strict=True)))
    if start.predicate is None:
        row = Load(most.buffer, at)
    loops = loops_of(path[above:])
    if not loops or free_vars(row) & {x.var for x in loops}:
        return _no_online_softmax(total.block)
    distance = op("subtract", row, parts.fill)
    count = select(op("lt", distance, Const(NOTHING, distance.dtype)), parts.hidden, Const(0))
    hidden = Var("hidden")
    body = _hidden_block(func, parts, start, hidden, product)
    for x in reversed(loops):
        new = Var(x.var.name)
        body = replace(x, var=new, body=substitute(body, {x.var: new}))
    more = For(hidden, count, body)
    return [(path[: above + 1], lambda s: Seq((s, more)))]


def _hidden_block(
    func: Func,
    parts: MaskedParts,
    start: Block,
    hidden: Var,
    product: tuple[Expr, dict[Var, Expr], Var],
) -> Stmt:
    """Return the block that adds one product to the element that ``start`` begins."""
    assert isinstance(start.body, Store)
    term, names, over = product
    fresh = {a.var: Var(a.var.name) for a in start.axes}
    key = Var("vhidden")
    before = mul(parts.first, parts.length)
    after = add(hidden, mul(parts.count, parts.length))
    place = after if parts.first == Const(0) else select(lt(hidden, before), hidden, after)
    reduce = BlockAxis(key, parts.whole * parts.length, AxisKind.REDUCE, place)
    value = substitute_expr(substitute_expr(term, {**names, over: key}), fresh)
    at = Load(start.body.buffer, tuple(substitute_expr(e, fresh) for e in start.body.index))
    reads = dict.fromkeys(loads_in(value))
    return Block(
        fresh_name(func, start.name.removesuffix("_init") + "_hidden"),
        (*(replace(a, var=fresh[a.var]) for a in start.axes), reduce),
        (_point(at), *map(_point, reads), *parts.reads),
        (_point(at),),
        Store(at.buffer, at.index, op("add", at, value)),
        predicate=None if start.predicate is None else substitute_expr(start.predicate, fresh),
    )


def _point(e: Load) -> Region:
    return point(e.buffer, e.index)
