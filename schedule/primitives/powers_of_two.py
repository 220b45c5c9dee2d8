"""Exponentials that are rounded to 16 bits afterwards, by a GPU's own power: powers_of_two."""

from __future__ import annotations

import math
from dataclasses import replace

from ...ir.dtypes import f32
from ...ir.loop.build import op
from ...ir.loop.nodes import Block, Buffer, Cast, Const, Expr, Func, Load, Op, Stmt
from ...ir.loop.visit import exprs_under, loads_in, map_expr, map_stmt
from ..cursor import BlockRef, block_of, consumers, edit, find_block
from ..declare import primitive
from ..errors import Reason, require
from ..legality import not_opaque
from ..stores import single_store, update_of

_LOG2E = math.log2(math.e)
_ROUNDED = 2  # bytes of a type beside which the error does not count


@primitive
def powers_of_two(func: Func, block: BlockRef) -> Func:
    """Compute exponentials, which are rounded to 16 bits afterwards, as powers of two.

    ``W[i] = exp(x)``  ->  ``W[i] = exp2(x * log2(e))``, three instructions of a GPU instead of
    eight. The product's rounding is an error of about ``|x| 2**-24`` of the result: as much as that
    of a difference ``x = a - b``, and in a sum of exponentials relative to their maximum less than
    a unit in the last place, because large ``|x|`` add little. On GPUs results below 2**-126 are 0.

    Refused:
        - a block without exponentials in f32
        - results that are not rounded to 16 bits by the block or by those that read them, which may
          add them up besides

    Example:
        sch = weighted()
        sch.narrow("W")
        sch.powers_of_two("W")
    """
    asked = f"compute the exponentials of block `{block.name}` as powers of two"
    path = find_block(func, block, asked)
    node = block_of(path)
    found = [x for x in exprs_under(node.body) if _is_exp(x)]
    readers = tuple(map(block_of, consumers(func, node)))
    require(
        func,
        asked,
        not_opaque((path,)),
        None if found else _no_exponential(node),
        None if _is_rounded(node, readers) else _not_rounded(node, readers),
    )

    def rewritten(s: Stmt) -> Stmt:
        assert isinstance(s, Block)
        return replace(s, body=map_stmt(s.body, _statement, _expr))

    return edit(func, [(path, rewritten)])


def _is_exp(e: Expr) -> bool:
    return isinstance(e, Op) and e.name == "exponential" and e.dtype == f32


def _statement(s: Stmt) -> Stmt:
    return map_stmt(s, _statement, _expr)


def _expr(e: Expr) -> Expr:
    e = map_expr(e, _expr)
    if not isinstance(e, Op) or not _is_exp(e):
        return e
    return op("exp2", op("multiply", e.args[0], Const(_LOG2E, f32)))


def _is_rounded(block: Block, readers: tuple[Block, ...]) -> bool:
    """True if a block stores 16 bits, or its readers do, which may add up its results besides."""
    if any(r.buffer.dtype.bytes <= _ROUNDED for r in block.writes):
        return True
    own = {r.buffer for r in block.writes}
    copies = [b for b in readers if _copies(b, own)]
    return bool(copies) and all(b in copies or _adds(b, own) for b in readers)


def _copies(block: Block, own: set[Buffer]) -> bool:
    """True if a block stores results, or other values where there is none, in 16 bits."""
    store = single_store(block)
    if store is None or not store.buffer.dtype.is_float or store.buffer.dtype.bytes > _ROUNDED:
        return False
    return _is_plain(store.value, own)


def _is_plain(e: Expr, own: set[Buffer]) -> bool:
    match e:
        case Cast(value=value, bits=False):
            return _is_plain(value, own)
        case Op(name="select", args=(cond, x, y)):
            read = {i.buffer for i in loads_in(cond)}
            return read.isdisjoint(own) and _is_plain(x, own) and _is_plain(y, own)
        case _:
            return isinstance(e, Const | Load)


def _adds(block: Block, own: set[Buffer]) -> bool:
    update = update_of(block)
    if update is None or update.op != "add":
        return False
    return isinstance(update.term, Load) and update.term.buffer in own


def _no_exponential(block: Block) -> Reason:
    why = f"block `{block.name}` has no exponentials in f32"
    return Reason(why, (block,), hint="name the block that computes them")


def _not_rounded(block: Block, readers: tuple[Block, ...]) -> Reason:
    return Reason(
        f"what block `{block.name}` computes is not rounded to 16 bits",
        (block, *readers),
        hint="narrow stores a factor of a product in fewer bits",
    )
