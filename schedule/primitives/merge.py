"""Merging two adjacent loops: merge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...ir.loop.names import called
from ...ir.loop.nodes import Buffer, For, Func, Seq, Stmt
from ...ir.loop.visit import seq, substitute
from ..concurrent import check_loop_kinds, iterations_apart
from ..cursor import (
    LoopRef,
    Path,
    block_of,
    blocks_under,
    edit,
    extent_of,
    find_loop,
    loop_of,
    named,
    nest,
)
from ..declare import primitive
from ..errors import Reason, require
from ..legality import constant_extent, fills, in_step, only_blocks, plain_loops


@primitive
def merge(func: Func, first: LoopRef, second: LoopRef) -> tuple[Func, LoopRef]:
    """Merge two consecutive loops of the same extent into one, which is ``first``.

    ``for i: A; for j: B``  ->  ``for i: A; B``, with ``i`` for ``j``. The loops are in one
    sequence. Statements between them are independent of ``B``, and ``B`` needs only what the same
    iteration of ``A`` computes.

    Refused:
        - loops of different extents, or not in one sequence
        - a second loop that reads what later iterations of the first one write
        - two loops that write the same elements of a buffer in different iterations
        - the second loop and a block between that write the same buffer
        - an opaque block that may leave some of what the others read unwritten

    Example:
        sch = chain()
        (i,), (j,) = sch.get_loops("B"), sch.get_loops("C")
        sch.merge(i, j)
    """
    asked = f"merge loop `{named(func, second)}` into loop `{named(func, first)}`"
    above, below = find_loop(func, first, asked), find_loop(func, second, asked)
    loop, other = loop_of(above), loop_of(below)
    require(func, asked, _siblings(above, below))
    require(
        func,
        asked,
        plain_loops((loop, other)),
        constant_extent(loop),
        constant_extent(other),
        _same_extent(loop, other),
        only_blocks(above),
        only_blocks(below),
        fills((*blocks_under(above), *blocks_under(below))),
        _independent(above, below),
    )
    both = _buffers(blocks_under(above)) & _buffers(blocks_under(below))
    moved = substitute(other.body, {other.var: loop.var})

    def join(s: Stmt) -> Stmt:
        assert isinstance(s, For)
        return replace(s, body=seq(s.body, moved))

    new = edit(func, [(below, lambda _: None), (above, join)])
    at = nest(new).loops[loop.var]
    paths = blocks_under(at)
    require(func, asked, *(iterations_apart(at, b) for b in both))
    joined = paths[-len(blocks_under(below)) :]
    require(func, asked, in_step(paths, joined), check_loop_kinds(new, paths))
    return new, first


def _siblings(above: Path, below: Path) -> Reason | None:
    loop, other = loop_of(above), loop_of(below)
    parent = above[-2] if len(above) > 1 else None
    if isinstance(parent, Seq) and len(below) == len(above) and below[-2] is parent:
        order = [id(s) for s in parent.stmts]
        if order.index(id(loop)) < order.index(id(other)):
            return None
    return Reason(
        f"loop `{called(other)}` does not follow `{called(loop)}` in the same body",
        (loop, other),
        hint="give the earlier one first; compute_at moves a block into a nest",
    )


def _same_extent(loop: For, other: For) -> Reason | None:
    if extent_of(loop) == extent_of(other):
        return None
    return Reason(
        f"they run {extent_of(loop)} and {extent_of(other)} times",
        (loop, other),
        hint="split the longer one, or use compute_at",
    )


def _independent(above: Path, below: Path) -> Reason | None:
    """Require that the second loop is independent of what is between."""
    loop, other = loop_of(above), loop_of(below)
    parent = above[-2]
    assert isinstance(parent, Seq)
    order = [id(s) for s in parent.stmts]
    inside = parent.stmts[order.index(id(loop)) + 1 : order.index(id(other))]
    between = [p for s in inside for p in blocks_under((*above[:-1], s))]
    mine = _buffers(blocks_under(below))
    reads = _buffers(blocks_under(below), of_writes=False)
    for path in between:
        if mine & _buffers((path,)):
            return Reason(
                f"block `{block_of(path).name}` writes what loop `{called(other)}` writes",
                (block_of(path), other),
                hint="merge it first",
            )
        if mine & _buffers((path,), False) or reads & _buffers((path,), True):
            return Reason(
                f"block `{block_of(path).name}` between the loops exchanges values with "
                f"`{called(other)}`",
                (block_of(path), other),
                hint="merge it first",
            )
    return None


def _buffers(paths: Iterable[Path] | Sequence[Path], of_writes: bool = True) -> set[Buffer]:
    found: set[Buffer] = set()
    for p in paths:
        block = block_of(p)
        found.update(r.buffer for r in (block.writes if of_writes else block.reads))
    return found
