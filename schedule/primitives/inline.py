"""Inlining: compute_inline, reverse_compute_inline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.loop.build import as_int
from ...ir.loop.nodes import (
    Block,
    Buffer,
    Const,
    Expr,
    Func,
    Load,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.visit import (
    ExprFn,
    loads_in,
    map_region,
    map_stmt,
    on_loads,
    substitute_expr,
)
from ..concurrent import check_loop_kinds
from ..cursor import BlockRef, Path, block_of, consumers, edit, find_block, nest, producers
from ..declare import primitive
from ..errors import Reason, obtain, require
from ..legality import (
    computes_once,
    not_an_output,
    not_opaque,
    reduces,
    self_contained,
    sole_writer,
)
from ..stores import single_store, with_body


@primitive
def compute_inline(func: Func, block: BlockRef) -> Func:
    """Inline a block into its consumers, which recompute its values; the block is removed.

    ``B[i] = f(i); C = g(B[e])``  ->  ``C = g(f(e))`` in every consumer.

    Refused:
        - a reduction, or a block that does more than store one value per point of its axes
        - an output of the function, and a block whose values nothing reads
        - a buffer that other blocks also write

    Example:
        sch = chain()
        sch.compute_inline("B")
    """
    asked = f"inline block `{block.name}` into its consumers"
    path = find_block(func, block, asked)
    node = block_of(path)
    users = consumers(func, node)
    require(
        func,
        asked,
        not_opaque((path, *users)),
        not_an_output(func, node),
        computes_once(node),
        sole_writer(func, node),
        _no_reduction(node),
        None
        if users
        else Reason(
            f"nothing reads what block `{node.name}` writes",
            (node,),
            hint="only a block whose values others read can be inlined",
        ),
        _whole_elements(node),
    )
    store = single_store(node)
    assert store is not None

    def change(s: Stmt) -> Stmt:
        assert isinstance(s, Block)

        def computed(e: Load) -> Expr:
            if e.buffer is not store.buffer:
                return e
            by = {v: i for v, i in zip(store.index, e.index, strict=True) if isinstance(v, Var)}
            return substitute_expr(store.value, by)

        return with_body(func, asked, s, _mapped(s.body, on_loads(computed)))

    new = edit(func, [(path, lambda _: None), *((u, change) for u in users)])
    return _without(func, new, asked, store.buffer, [block_of(u) for u in users])


@primitive
def reverse_compute_inline(func: Func, block: BlockRef) -> Func:
    """Inline a block into its producer, which then stores its result; the block is removed.

    ``B[i] = f(i); C[i] = g(B[i])``  ->  ``C[i] = g(f(i))`` in the producer.

    Refused:
        - a producer that is a reduction: its value is final only after the last update
        - a producer whose values other blocks also read, or that writes several buffers
        - a block that reads its producer at any but its own point

    Example:
        sch = chain()
        sch.reverse_compute_inline("C")
    """
    asked = f"inline block `{block.name}` into its producer"
    path = find_block(func, block, asked)
    node = block_of(path)
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(node),
        sole_writer(func, node),
        _no_reduction(node),
        _whole_elements(node, of_write=False),
    )
    feeder = obtain(func, asked, _only_producer(func, node))
    source = block_of(feeder)
    require(
        func,
        asked,
        not_opaque((feeder,)),
        computes_once(source),
        _no_reduction(source, "it is final only after its last update"),
        _whole_elements(source),
        not_an_output(func, source),
    )
    given, taken = single_store(source), single_store(node)
    assert given is not None and taken is not None
    extents = {a.var: a.extent for a in source.axes}
    by = obtain(func, asked, _axes_by_index(node, taken, given, extents))
    inlined = on_loads(lambda e: given.value if e.buffer is given.buffer else e)
    value = inlined(substitute_expr(taken.value, by))
    index = tuple(substitute_expr(e, by) for e in taken.index)
    writes = tuple(map_region(r, lambda e: substitute_expr(e, by)) for r in node.writes)
    merged = replace(source, writes=writes)
    merged = with_body(func, asked, merged, Store(taken.buffer, index, value))
    new = edit(func, [(path, lambda _: None), (feeder, lambda _: merged)])
    return _without(func, new, asked, given.buffer, [merged, *map(block_of, consumers(func, node))])


def _no_reduction(block: Block, why: str = "") -> Reason | None:
    if not reduces(block):
        return None
    tail = f": {why}" if why else ""
    return Reason(
        f"block `{block.name}` is a reduction{tail}",
        (block,),
        hint="compute_at or reverse_compute_at moves whole blocks",
    )


def _whole_elements(block: Block, of_write: bool = True) -> Reason | None:
    """Require that the body is one store; with ``of_write``, one indexed by the axes themselves."""
    store = single_store(block)
    if store is None:
        return Reason(
            f"block `{block.name}` does more than store one value",
            (block,),
            hint="compute_at or reverse_compute_at moves whole blocks",
        )
    at = [e for e in store.index if as_int(e) is None]
    plain = all(isinstance(e, Var) for e in at) and len({*at}) == len(at)
    free = {a.var for a in block.axes if a.extent != 1} - {e for e in at if isinstance(e, Var)}
    if of_write and (not plain or free):
        return Reason(
            f"block `{block.name}` does not write one element per point of its axes",
            (block,),
            hint="compute_at or reverse_compute_at moves whole blocks",
        )
    return None


def _mapped(s: Stmt, expr: ExprFn) -> Stmt:
    return map_stmt(s, lambda x: _mapped(x, expr), expr)


def _only_producer(func: Func, block: Block) -> Path | Reason:
    found = producers(func, block)
    inner = [p for p in found if not any(r.buffer in func.params for r in block_of(p).writes)]
    alone = [
        p
        for p in inner
        if len(consumers(func, block_of(p))) == 1
        and len(block_of(p).writes) == 1
        and sole_writer(func, block_of(p)) is None
    ]
    if alone:
        return alone[-1]
    return Reason(
        f"no producer of `{block.name}` writes for this block alone",
        (*map(block_of, found), block),
        hint="compute_inline the producer, or use reverse_compute_at, which keeps the block",
    )


def _axes_by_index(
    block: Block, taken: Store, given: Store, extents: Mapping[Var, int]
) -> dict[Var, Expr] | Reason:
    """Map the consumer's axes to the producer's, if each point reads its own element."""
    reads = {e.index for e in loads_in(taken.value) if e.buffer is given.buffer}
    wrong = Reason(
        f"block `{block.name}` does not read `{given.buffer}` at its own point only",
        (block,),
        hint="use reverse_compute_at, which keeps the block",
    )
    if len(reads) != 1:
        return wrong
    own = {a.var: a.extent for a in block.axes}
    by: dict[Var, Expr] = {}
    for e, w in zip(next(iter(reads)), given.index, strict=True):
        n = extents.get(w) if isinstance(w, Var) else 1
        if as_int(e) == 0 and n == 1:
            continue
        if not isinstance(e, Var) or e in by or own.get(e) != n:
            return wrong
        by[e] = w
    if any(v not in by and n != 1 for v, n in own.items()):
        return wrong
    return {**{v: Const(0) for v in own if v not in by}, **by}


def _without(func: Func, new: Func, asked: str, buffer: Buffer, blocks: list[Block]) -> Func:
    new = replace(new, allocs=tuple(b for b in new.allocs if b is not buffer))
    index = nest(new)
    paths: dict[str, Path] = {}
    for b in blocks:
        path = index.blocks[b.name]
        for p in (*producers(new, block_of(path)), path):
            paths[block_of(p).name] = p
    order = [p for n, p in index.blocks.items() if n in paths]
    require(func, asked, self_contained(new, order), check_loop_kinds(new, order))
    return new
