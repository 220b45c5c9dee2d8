"""Changing the layout of an intermediate buffer: transform_layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from ...ir.loop.build import add, as_int, floordiv, floormod, sub
from ...ir.loop.nodes import Block, Buffer, Const, Expr, Func, Load, Range, Region, Stmt, Store
from ...ir.loop.visit import map_stmt, map_tuple, on_loads
from ..cursor import BlockRef, block_of, find_block, nest
from ..declare import primitive
from ..errors import Reason, require
from ..legality import has_region, not_a_parameter, not_opaque
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
    """Change the layout of the intermediate buffer of a block's write, in all accesses to it.

    ``index`` counts the block's writes. ``pack`` lists pairs (dimension, c): the extent n becomes
    ceil(n / c), and a dimension of extent c is appended. Then the dimensions are permuted into the
    given ``order`` (None keeps it). ``[K, N]`` with pack ``[(1, 16)]`` and order ``[1, 0, 2]``
    becomes ``[N/16, K, 16]``.

    Refused:
        - a parameter of the function: ``cache_read`` or ``cache_write`` makes an intermediate one
        - an order that does not name each dimension once, and a dimension packed twice
        - a buffer that is aligned or swizzled already: transform its layout first

    Example:
        sch = product()
        sch.transform_layout("C", 0, [1, 0, 2], [(1, 4)])
    """
    asked = f"transform the layout of write {index} of block `{block.name}`"
    path = find_block(func, block, asked)
    node = block_of(path)
    require(func, asked, has_region(node.writes, index, node, "writes"))
    buffer = node.writes[index].buffer
    names = {*nest(func).writers.get(buffer, ()), *nest(func).readers.get(buffer, ())}
    require(
        func,
        asked,
        not_a_parameter(func, buffer, node),
        not_opaque([nest(func).blocks[n] for n in sorted(names)]),
        _not_banked(node, buffer),
        _valid_layout(buffer, order, pack),
    )
    perm = tuple(range(len(buffer.shape) + len(pack))) if order is None else tuple(order)
    shape = list(buffer.shape)
    for d, c in pack:
        shape[d] = -(-shape[d] // c)
        shape.append(c)
    new = replace(buffer, shape=tuple(shape[d] for d in perm))
    body = _with_layout(func.body, buffer, new, pack, perm)
    allocs = tuple(new if b is buffer else b for b in func.allocs)
    result = replace(func, body=body, allocs=allocs)
    require(func, asked, *(still_shared(nest(result).blocks[n]) for n in sorted(names)))
    return result


def _not_banked(block: Block, buffer: Buffer) -> Reason | None:
    if buffer.align is None and not buffer.swizzle:
        return None
    why = f"`{buffer}` is aligned or swizzled for its present layout"
    return Reason(why, (block,), hint="transform the layout first")


def _valid_layout(buffer: Buffer, order: Sequence[int] | None, pack: Pack) -> Reason | None:
    rank = len(buffer.shape)
    if len(pack) + rank > MAX_RANK:
        return Reason(f"more than {MAX_RANK} dimensions", hint="pack fewer dimensions")
    for d, c in pack:
        if not 0 <= d < rank or c < 1 or c > max(buffer.shape[d], 1):
            return Reason(
                f"dimension {d} of `{buffer}` cannot be packed by {c}",
                hint="give a dimension, counted from 0, and a factor of at most its extent",
            )
    if len({d for d, _ in pack}) != len(pack):
        return Reason("a dimension is packed twice", hint="pack it once, by the product of both")
    if order is not None and sorted(order) != list(range(rank + len(pack))):
        return Reason(
            f"the order does not name each of the {rank + len(pack)} dimensions once",
            hint=f"give a permutation of 0 to {rank + len(pack) - 1}",
        )
    return None


def _with_layout(s: Stmt, old: Buffer, new: Buffer, pack: Pack, perm: Sequence[int]) -> Stmt:
    def element(ix: Sequence[Expr]) -> tuple[Expr, ...]:
        at = list(ix)
        for d, c in pack:
            at.append(floormod(at[d], c))
            at[d] = floordiv(at[d], c)
        return tuple(at[d] for d in perm)

    expr = on_loads(lambda e: Load(new, element(e.index)) if e.buffer is old else e)

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
