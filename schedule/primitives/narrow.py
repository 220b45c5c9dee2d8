"""Storing the factor of a product in the type of the other factor: narrow."""

from __future__ import annotations

from dataclasses import replace

from ...ir.dtypes import DType
from ...ir.loop.nodes import Block, Buffer, Cast, Func, Load, Stmt, Store
from ...ir.loop.visit import map_stmt, on_loads
from ..cursor import BlockRef, block_of, consumers, edit, find_block
from ..declare import primitive
from ..errors import Reason, require
from ..legality import has_region, not_a_parameter, not_opaque, sole_writer
from ..stores import single_store
from .products.matmul import product_of


@primitive
def narrow(func: Func, block: BlockRef) -> Func:
    """Store a factor of a product in the narrower type of the other factor.

    ``W[i] = w; C += W[k] * cast(f32, V[k])``  ->  ``W[i] = cast(bf16, w); C += cast(f32, W[k]) *
    cast(f32, V[k])``. The factor is rounded, which the values of the other one were as well: the
    errors of the sums keep their size. A graph asks for that rounding where its products have two
    factors of one type.

    Refused:
        - a block whose result is read by anything but products with a factor of a narrower type
        - parameters of the function, and buffers of several writers

    Example:
        sch = weighted()
        sch.narrow("W")
    """
    asked = f"store what block `{block.name}` computes in a narrower type"
    path = find_block(func, block, asked)
    node = block_of(path)
    require(
        func,
        asked,
        not_opaque((path,)),
        has_region(node.writes, 0, node, "writes"),
        not_a_parameter(func, node.writes[0].buffer, node),
        sole_writer(func, node),
    )
    old, store = node.writes[0].buffer, single_store(node)
    dtypes = {_other(block_of(p), old) for p in consumers(func, node)}
    fits = store is not None and node.init is None and len(dtypes) == 1 and None not in dtypes
    require(func, asked, None if fits else _no_factor(node))
    (dtype,) = dtypes
    assert dtype is not None
    new = replace(old, dtype=dtype)

    def rewritten(s: Stmt) -> Stmt:
        assert isinstance(s, Block)
        reads, writes = (
            tuple(replace(r, buffer=new) if r.buffer is old else r for r in part)
            for part in (s.reads, s.writes)
        )
        return replace(s, reads=reads, writes=writes, body=_on(s.body, old, new))

    paths = (path, *consumers(func, node))
    made = edit(func, [(p, rewritten) for p in paths])
    return replace(made, allocs=tuple(new if b is old else b for b in made.allocs))


def _other(block: Block, buffer: Buffer) -> DType | None:
    """Return the type of the other factor of a product, if it is narrower than the buffer's."""
    found = product_of(block)
    if found is None:
        return None
    sides = [e for e in (found.a, found.b) if isinstance(e, Load)]
    mine = [e for e in sides if e.buffer is buffer]
    others = [e.dtype for e in sides if e.buffer is not buffer]
    if len(mine) != 1 or len(others) != 1 or not others[0].is_float:
        return None
    return others[0] if others[0].bytes < buffer.dtype.bytes else None


def _no_factor(block: Block) -> Reason:
    return Reason(
        f"what block `{block.name}` computes is no factor beside one of a narrower type",
        (block,),
        hint="to_matmul copies the factors of a product",
    )


def _on(s: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """Return a statement on the narrower buffer."""
    expr = on_loads(lambda e: Cast(Load(new, e.index), old.dtype) if e.buffer is old else e)
    if isinstance(s, Store) and s.buffer is old:
        return Store(new, s.index, Cast(expr(s.value), new.dtype))
    return map_stmt(s, lambda c: _on(c, old, new), expr)
