"""Sums that leave out products with zeros of padding: skip_zeros."""

from __future__ import annotations

from ...ir.loop.build import both, select, zero_of
from ...ir.loop.nodes import Block, Cast, Const, Expr, Func, Load, Op, Stmt, Store
from ...ir.loop.visit import map_expr
from ..cursor import BlockRef, block_of, edit, find_block
from ..declare import primitive
from ..errors import Reason, obtain, require
from ..legality import not_opaque, reduces
from ..stores import single_store, with_body


@primitive
def skip_zeros(func: Func, block: BlockRef) -> Func:
    """Leave out the products of a sum that have a zero of padding as a factor.

    ``C = C + select(p, a, 0) * b``  ->  ``C = C + select(p, a * b, 0)``. Where this decides ``p``
    by loops, lowering makes it their bounds. The other factor is taken to be finite: zero times
    infinity would be NaN.

    Refused:
        - a block that is not a sum of products, or none of whose factors is zero by a condition

    Example:
        sch = padded_sums()
        sch.compute_inline("P")
        sch.skip_zeros("S")
    """
    asked = f"skip the zeros in the sum of block `{block.name}`"
    path = find_block(func, block, asked)
    node = block_of(path)
    require(func, asked, not_opaque((path,)))
    skipping = obtain(func, asked, _skipping(node) or _nothing_to_skip(node))

    def change(s: Stmt) -> Stmt:
        assert isinstance(s, Block)
        return with_body(func, asked, s, skipping)

    return edit(func, [(path, change)])


def _nothing_to_skip(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` does not add products with a factor `select(condition, x, 0)`",
        (block,),
        hint="compute_inline the block that pads its operand before",
    )


def _skipping(block: Block) -> Store | None:
    """Return the update of a sum with the selections of zero around the product, not in it."""
    store = single_store(block) if reduces(block) else None
    if store is None:
        return None
    own = Load(store.buffer, store.index)
    match store.value:
        case Op(name="add", args=(a, b)) if own in (a, b):
            term = b if a == own else a
            condition, product = _selected(term)
            if condition is None:
                return None
            kept = select(condition, product, zero_of(term.dtype))
            value = map_expr(store.value, lambda e: kept if e is term else e)
            return Store(store.buffer, store.index, value)
        case _:
            return None


def _selected(e: Expr) -> tuple[Expr | None, Expr]:
    """Return where a product is not zero by a selection, and its value there."""
    match e:
        case Op(name="multiply", args=(a, b)):
            (p, x), (q, y) = _selected(a), _selected(b)
            return both(p, q), map_expr(e, lambda t: x if t is a else y if t is b else t)
        case Cast(value=value, bits=False):
            p, x = _selected(value)
            return p, map_expr(e, lambda t: x if t is value else t)
        case Op(name="select", args=(p, a, Const(value=zero))) if not zero:
            q, x = _selected(a)
            return both(p, q), x
        case _:
            return None, e
