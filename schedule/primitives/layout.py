"""How an intermediate buffer is laid out: transform_layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from ...ir.loop.build import add, as_int, floordiv, floormod, sub
from ...ir.loop.nodes import Block, Buffer, Const, Expr, Func, Load, Range, Region, Stmt, Store
from ...ir.loop.visit import map_expr, map_stmt, map_tuple
from ..cursor import BlockRef, block_of, find_block, nest
from ..declare import primitive
from ..errors import Reason, require
from ..legality import not_opaque
from ..threads import still_shared

Pack: TypeAlias = tuple[tuple[int, int], ...]
MAX_RANK = 16


@primitive
def transform_layout(
    func: Func,
    block: BlockRef,
    index: int,
    order: tuple[int, ...] | None = None,
    pack: Pack = (),
) -> Func:
    """Lay the intermediate buffer of a block's write ``index`` out in another way, everywhere.

    ``pack`` lists pairs (dimension, c): the dimension of extent n becomes one of ceil(n / c), and
    one of extent c is appended at the end. Then the dimensions are put in the given ``order`` (by
    number; None leaves them). ``[K, N]`` with pack ``[(1, 16)]`` and order ``[1, 0, 2]`` becomes
    ``[N/16, K, 16]``.

    Refused:
        - a parameter of the function: ``cache_read`` or ``cache_write`` makes a buffer to lay out
        - an order that does not name each dimension once, and a dimension packed twice
        - a buffer that is aligned or swizzled already: do this first

    Example:
        sch = product()
        sch.transform_layout("C", 0, [1, 0, 2], [(1, 4)])
    """
    asked = f"transform the layout of write {index} of block `{block.name}`"
    path = find_block(func, block, asked)
    node = block_of(path)
    ok = 0 <= index < len(node.writes)
    require(
        func,
        asked,
        None
        if ok
        else Reason(
            f"block `{node.name}` writes {len(node.writes)} regions",
            (node,),
            hint="count the writes from 0",
        ),
    )
    buffer = node.writes[index].buffer
    names = {*nest(func).writers.get(buffer, ()), *nest(func).readers.get(buffer, ())}
    require(
        func,
        asked,
        Reason(f"`{buffer}` is a parameter of the function", (node,), hint="use cache_write first")
        if buffer in func.params
        else None,
        not_opaque([nest(func).blocks[n] for n in sorted(names)]),
        _unbanked(node, buffer),
        _a_layout(buffer, order, pack),
    )
    steps = tuple(pack)
    perm = tuple(range(len(buffer.shape) + len(steps))) if order is None else tuple(order)
    shape = list(buffer.shape)
    for d, c in steps:
        shape[d] = -(-shape[d] // c)
        shape.append(c)
    new = replace(buffer, shape=tuple(shape[d] for d in perm))
    body = _relaid(func.body, buffer, new, steps, perm)
    allocs = tuple(new if b is buffer else b for b in func.allocs)
    result = replace(func, body=body, allocs=allocs)
    require(func, asked, *(still_shared(nest(result).blocks[n]) for n in sorted(names)))
    return result


def _unbanked(block: Block, buffer: Buffer) -> Reason | None:
    if buffer.align is None and not buffer.swizzle:
        return None
    why = f"`{buffer}` is aligned or swizzled as it is laid out now"
    return Reason(why, (block,), hint="do this first")


def _a_layout(buffer: Buffer, order: Sequence[int] | None, pack: Pack) -> Reason | None:
    rank = len(buffer.shape)
    if len(pack) + rank > MAX_RANK:
        return Reason(f"more than {MAX_RANK} dimensions", hint="pack fewer dimensions")
    for d, c in pack:
        if not 0 <= d < rank or c < 1 or c > max(buffer.shape[d], 1):
            return Reason(
                f"dimension {d} of `{buffer}` cannot be packed by {c}",
                hint="name a dimension from 0 on, and a size of at most its extent",
            )
    if len({d for d, _ in pack}) != len(pack):
        return Reason("a dimension is packed twice", hint="pack it once, by the product of the two")
    if order is not None and sorted(order) != list(range(rank + len(pack))):
        return Reason(
            f"the order does not name each of the {rank + len(pack)} dimensions once",
            hint=f"give a permutation of 0 to {rank + len(pack) - 1}",
        )
    return None


def _relaid(s: Stmt, old: Buffer, new: Buffer, pack: Pack, perm: Sequence[int]) -> Stmt:
    def element(ix: Sequence[Expr]) -> tuple[Expr, ...]:
        at = list(ix)
        for d, c in pack:
            at.append(floormod(at[d], c))
            at[d] = floordiv(at[d], c)
        return tuple(at[d] for d in perm)

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        return Load(new, element(e.index)) if isinstance(e, Load) and e.buffer is old else e

    def region(r: Region) -> Region:
        return Region(new, _box(r.ranges, pack, perm)) if r.buffer is old else r

    def stmt(x: Stmt) -> Stmt:
        x = map_stmt(x, stmt, expr)
        match x:
            case Store(buffer=b, index=ix) if b is old:
                return replace(x, buffer=new, index=element(ix))
            case Block(reads=reads, writes=writes):
                r, w = map_tuple(region, reads), map_tuple(region, writes)
                return x if r is reads and w is writes else replace(x, reads=r, writes=w)
            case _:
                return x

    return stmt(s)


def _box(ranges: Sequence[Range], pack: Pack, perm: Sequence[int]) -> tuple[Range, ...]:
    at = list(ranges)
    for d, c in pack:
        x = at[d]
        if as_int(x.extent) == 1:
            at.append(Range(floormod(x.start, c), Const(1)))
            at[d] = Range(floordiv(x.start, c), Const(1))
        else:
            last = floordiv(sub(add(x.start, x.extent), 1), c)
            at.append(Range(Const(0), Const(c)))
            first = floordiv(x.start, c)
            at[d] = Range(first, add(sub(last, first), 1))
    return tuple(at[d] for d in perm)
