"""Merging consecutive loops into one: merge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

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
def merge(func: Func, first: LoopRef, second: LoopRef, *more: LoopRef) -> tuple[Func, LoopRef]:
    """Merge loops of the same extent into an earlier one, ``first``.

    ``for i: A; for j: B``  ->  ``for i: A; B``, with ``i`` for ``j``; ``more`` loops are merged
    after it, in the order given. The loops are in one sequence. Statements between them are
    independent of ``B``, and ``B`` needs only what the same iteration of ``A`` computes.

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
    others = (second, *more)
    names = ", ".join(f"`{named(func, r)}`" for r in others)
    asked = f"merge loop{'s' * bool(more)} {names} into loop `{named(func, first)}`"
    paths = [find_loop(func, r, asked) for r in (first, *others)]
    loop, *rest = map(loop_of, paths)
    places = _places(paths[0])
    require(func, asked, *(_siblings(paths[0], p, places) for p in paths[1:]))
    require(
        func,
        asked,
        plain_loops((loop, *rest)),
        constant_extent(loop),
        *map(constant_extent, rest),
        *(_same_extent(loop, x) for x in rest),
        *map(only_blocks, paths),
        fills([b for p in paths for b in blocks_under(p)]),
        _independent(paths, places),
    )
    moved = [substitute(x.body, {x.var: loop.var}) for x in rest]

    def join(s: Stmt) -> Stmt:
        assert isinstance(s, For)
        return replace(s, body=seq(s.body, *moved))

    new = edit(func, [*((p, lambda _: None) for p in paths[1:]), (paths[0], join)])
    at = nest(new).loops[loop.var]
    blocks, ends = blocks_under(at), [*accumulate(len(blocks_under(p)) for p in paths)]
    require(func, asked, *_exchanges(at, blocks, ends), check_loop_kinds(new, blocks))
    return new, first


def _exchanges(loop: Path, blocks: Sequence[Path], ends: Sequence[int]) -> Iterator[Reason | None]:
    """Yield what is wrong with the values that the blocks of a merged loop exchange.

    The blocks of each original loop end at one of ``ends``. A buffer that several of these loops
    write has to have elements for each iteration, up to the last loop that writes it.
    """
    written: dict[Buffer, list[int]] = {}
    for start, end in pairwise((0, *ends)):
        for buffer in _buffers(blocks[start:end]):
            written.setdefault(buffer, []).append(end)
    for buffer, found in written.items():
        if len(found) > 1:
            yield iterations_apart(loop, buffer, blocks[: found[-1]])
    yield in_step(blocks, blocks[ends[0] :])


def _places(path: Path) -> Mapping[int, int]:
    """Return the place of each statement, by its identity, in the sequence that a path's end is in.

    There are none if it is in no sequence.
    """
    parent = path[-2] if len(path) > 1 else None
    return {id(s): n for n, s in enumerate(parent.stmts)} if isinstance(parent, Seq) else {}


def _siblings(above: Path, below: Path, places: Mapping[int, int]) -> Reason | None:
    loop, other = loop_of(above), loop_of(below)
    at, after = places.get(id(loop)), places.get(id(other))
    if at is not None and after is not None and at < after:
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


def _independent(paths: Sequence[Path], places: Mapping[int, int]) -> Reason | None:
    """Require that each loop is independent of what is between the first loop and it, when those
    given before it are merged.
    """
    *above, parent, first = paths[0]
    assert isinstance(parent, Seq)
    merged = {id(first)}
    for path in paths[1:]:
        inside = parent.stmts[places[id(first)] : places[id(path[-1])]]
        left = [s for s in inside if id(s) not in merged]
        between = [p for s in left for p in blocks_under((*above, parent, s))]
        if (reason := _apart(path, between)) is not None:
            return reason
        merged.add(id(path[-1]))
    return None


def _apart(below: Path, between: Iterable[Path]) -> Reason | None:
    """Require that a loop and the blocks before it exchange no values."""
    other = loop_of(below)
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


def _buffers(paths: Iterable[Path], of_writes: bool = True) -> set[Buffer]:
    found: set[Buffer] = set()
    for p in paths:
        block = block_of(p)
        found.update(r.buffer for r in (block.writes if of_writes else block.reads))
    return found
