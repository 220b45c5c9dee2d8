"""Staging through another buffer or memory: cache_read, cache_write, set_scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Const,
    Func,
    Load,
    Op,
    Range,
    Region,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.visit import map_stmt, on_loads, replace_buffers, seq
from ..concurrent import check_loop_kinds
from ..cursor import (
    BlockRef,
    Path,
    block_of,
    common,
    edit,
    find_block,
    fresh_name,
    is_before,
    loops_of,
    nest,
    with_buffer,
)
from ..declare import primitive
from ..domains import regenerate
from ..errors import Reason, obtain, require
from ..footprint import Interval, hull, reads_box, whole, writes_box
from ..launches import check_launches
from ..legality import (
    computes_once,
    has_region,
    not_a_parameter,
    not_opaque,
    self_contained,
    sole_writer,
)


@primitive
def cache_read(
    func: Func,
    block: BlockRef,
    index: int,
    scope: Scope = Scope.GLOBAL,
    also: tuple[BlockRef, ...] = (),
    alone: bool = False,
) -> tuple[Func, BlockRef]:
    """Copy what a block reads into a new buffer, and return the block of the copy.

    ``C reads A``  ->  ``A_cache = A; C reads A_cache``. ``index`` counts the block's reads. The
    copy is as far out as possible: before everything for an input, else in the innermost loop
    shared with the block that writes the buffer. The blocks ``also``, which follow, read it too.
    All reads of the buffer are from the copy, or this one ``alone``, where the block reads the
    buffer at other elements as well (``A[i, k] * A[k, j]``).

    Refused:
        - an index beyond the block's reads
        - a buffer that the block also writes: use ``cache_write``
        - a copy that would read elements that are not written
        - ``alone`` with other blocks, or of a read that is not a single element

    Example:
        sch = product()
        sch.cache_read("C", 1, "shared")
    """
    asked = f"cache read {index} of block `{block.name}`"
    path = find_block(func, block, asked)
    node = block_of(path)
    require(func, asked, not_opaque((path,)), has_region(node.reads, index, node, "reads"))
    buffer = node.reads[index].buffer
    users = [path, *(find_block(func, r, asked) for r in also)]
    writers = [nest(func).blocks[n] for n in nest(func).writers.get(buffer, ())]
    require(func, asked, *(_only_reads(p, path, buffer) for p in users), not_opaque(users))
    depth = _shared(path, writers)
    only = node.reads[index] if alone else None
    require(func, asked, _one_read(path, users, only))
    boxes = [reads_box(p, depth, buffer, only=only) for p in users]
    need = hull([box for box in boxes if box is not None], buffer)
    require(func, asked, *(_together(p, path, depth) for p in users))
    require(func, asked, *(_fills(w, depth, buffer, need) for w in writers))
    name = fresh_name(func, f"{buffer.name}_cache")
    cache = Buffer(name, buffer.shape, buffer.dtype, scope)
    copy = _copy(name, node.reads[index], buffer, cache, need)
    new = edit(
        func,
        [
            *((p, lambda s: _read_from(s, buffer, cache, only)) for p in users),
            (path[: depth + 1], lambda s: seq(copy, s)),
        ],
    )
    new = replace(new, allocs=(*func.allocs, cache))
    names = [block_of(w).name for w in writers]
    readers = [block_of(p).name for p in users]
    return _checked(func, new, asked, (*names, name, *readers)), BlockRef(name)


def _one_read(path: Path, users: Sequence[Path], only: Region | None) -> Reason | None:
    """Require that a read which is copied alone is one element of a block of its own."""
    if only is None or (len(users) == 1 and all(r.extent == Const(1) for r in only.ranges)):
        return None
    block = block_of(path)
    why = f"block `{block.name}` reads `{only.buffer}` with others, or several elements of it"
    return Reason(why, (block,), hint="copy all reads of the buffer")


def _read_from(s: Stmt, buffer: Buffer, cache: Buffer, only: Region | None) -> Stmt:
    """Return a block that reads the copy of a buffer: everywhere, or in one of its reads only."""
    if only is None or not isinstance(s, Block):
        return replace_buffers(s, {buffer: cache})
    at = tuple(r.start for r in only.ranges)
    expr = on_loads(lambda e: Load(cache, at) if e.buffer is buffer and e.index == at else e)

    def stmt(x: Stmt) -> Stmt:
        return map_stmt(x, stmt, expr)

    reads = tuple(replace(r, buffer=cache) if r is only else r for r in s.reads)
    init = None if s.init is None else stmt(s.init)
    return replace(s, reads=reads, body=stmt(s.body), init=init)


def _only_reads(path: Path, first: Path, buffer: Buffer) -> Reason | None:
    block = block_of(path)
    if any(r.buffer is buffer for r in block.writes):
        return Reason(
            f"block `{block.name}` also writes `{buffer}`", (block,), hint="use cache_write"
        )
    if path is not first and all(r.buffer is not buffer for r in block.reads):
        return Reason(
            f"block `{block.name}` does not read `{buffer}`",
            (block,),
            hint="name only blocks that read it too",
        )
    return None


def _together(path: Path, first: Path, depth: int) -> Reason | None:
    """Require that a block that shares another's copy follows it, under the same statements."""
    block = block_of(path)
    if path is first or (common(path, first) >= depth and is_before(first, path)):
        return None
    return Reason(
        f"block `{block.name}` does not follow `{block_of(first).name}` where the copy would be",
        (block_of(first), block),
        hint="give the first of the blocks, and those that follow it under the same loops",
    )


@primitive
def cache_write(
    func: Func, block: BlockRef, index: int, scope: Scope = Scope.GLOBAL
) -> tuple[Func, BlockRef]:
    """Let a block write a new buffer, which is then copied, and return the block of the copy.

    ``C = ...``  ->  ``C_cache = ...; C = C_cache``. ``index`` counts the block's writes. The block
    keeps its name and writes the new buffer; the copy follows it, in the innermost loop shared
    with the buffer's readers.

    Refused:
        - an index beyond the block's writes
        - a buffer that other blocks also write
        - a copy of elements that the block does not write

    Example:
        sch = chain()
        sch.cache_write("C", 0, "register")
    """
    asked = f"cache write {index} of block `{block.name}`"
    path = find_block(func, block, asked)
    node = block_of(path)
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(node),
        sole_writer(func, node),
        has_region(node.writes, index, node, "writes"),
    )
    buffer = node.writes[index].buffer
    names = [n for n in nest(func).readers.get(buffer, ()) if n != node.name]
    users = [nest(func).blocks[n] for n in names]
    depth = _shared(path, users)
    box = obtain(func, asked, _written(func, path, depth, node.writes[index], users))
    require(func, asked, _fills(path, depth, buffer, box))
    name = fresh_name(func, f"{buffer.name}_store")
    cache = Buffer(f"{buffer.name}_cache", buffer.shape, buffer.dtype, scope)
    copy = _copy(name, node.writes[index], cache, buffer, box)
    new = edit(
        func,
        [
            (path, lambda s: replace_buffers(s, {buffer: cache})),
            (path[: depth + 1], lambda s: seq(s, copy)),
        ],
    )
    new = replace(new, allocs=(*func.allocs, cache))
    return _checked(func, new, asked, (node.name, name, *names)), BlockRef(name)


def _shared(path: Path, others: Sequence[Path]) -> int:
    """Return the depth of a copy between ``path`` and all the ``others``."""
    if others:
        return max(common(path, p) for p in others)
    return 1 if isinstance(path[0], Seq) else 0


def _fills(writer: Path, depth: int, buffer: Buffer, need: Sequence[Interval]) -> Reason | None:
    """Require that the writer fills all of what is copied, so that no padding is read."""
    block = block_of(writer)
    for region in block.writes:
        if region.buffer is not buffer:
            continue
        box = writes_box(writer, depth, region)
        if box is None:
            padded = any(isinstance(r.start, Op) for r in region.ranges)
        else:
            padded = not all(x.contains(y) for x, y in zip(box, need, strict=True))
        if padded:
            return Reason(
                f"block `{block.name}` does not fill all of `{buffer}` that would be copied",
                (block,),
                hint="do this before the splits and moves that skip elements",
            )
    return None


def _written(
    func: Func, path: Path, depth: int, region: Region, users: Sequence[Path]
) -> tuple[Interval, ...] | Reason:
    """Return the box to copy in one iteration of the loops above the copy.

    It is the whole buffer if that is written at once.
    """
    buffer = region.buffer
    everything = tuple(map(whole, buffer.shape))
    outside = not loops_of(path[:depth])
    if outside and _fills(path, depth, buffer, everything) is None:
        return everything
    near = all(common(path, p) == depth for p in users)
    if users and near and buffer not in func.params:
        return hull([b for p in users if (b := reads_box(p, depth, buffer)) is not None], buffer)
    if outside:
        return everything
    box = writes_box(path, depth, region)
    if box is not None:
        return box
    return Reason(
        f"block `{block_of(path).name}` does not write a box in one iteration",
        (path[-1],),
        hint="copy at a loop further out, in which it does",
    )


def _axis_names(region: Region) -> tuple[str, ...]:
    """Names for the dimensions of a buffer: those of the axes that alone index one."""
    starts = [r.start for r in region.ranges]
    return tuple(
        e.name if isinstance(e, Var) and starts.count(e) == 1 else f"vax{d}"
        for d, e in enumerate(starts)
    )


def _copy(
    name: str, region: Region, source: Buffer, target: Buffer, box: Sequence[Interval]
) -> Stmt:
    """A copy from ``source`` to ``target``, over axes that are called as in ``region``."""
    named = zip(_axis_names(region), source.shape, strict=True)
    axes = tuple(BlockAxis(Var(name), n, AxisKind.SPATIAL, Const(0)) for name, n in named)
    at = tuple(a.var for a in axes)
    point = tuple(Range(v, Const(1)) for v in at)
    block = Block(
        name,
        axes,
        (Region(source, point),),
        (Region(target, point),),
        Store(target, at, Load(source, at)),
    )
    return regenerate(block, {a.var: x for a, x in zip(axes, box, strict=True)})


def _checked(func: Func, new: Func, asked: str, names: Sequence[str]) -> Func:
    paths = [nest(new).blocks[n] for n in names]
    require(func, asked, self_contained(new, paths), check_loop_kinds(new, paths))
    return new


@primitive
def set_scope(func: Func, block: BlockRef, index: int, scope: Scope) -> Func:
    """Set the memory scope of the intermediate buffer of a block's write.

    ``index`` counts the writes of the block. Alignment and swizzling of the buffer are dropped.

    Refused:
        - a parameter of the function: ``cache_write`` makes a buffer that can be moved
        - memory that the threads which use the buffer do not share

    Example:
        sch = product()
        sch.set_scope("C", 0, "register")
    """
    asked = f"set the scope of write {index} of block `{block.name}`"
    path = find_block(func, block, asked)
    node = block_of(path)
    require(func, asked, not_opaque((path,)), has_region(node.writes, index, node, "writes"))
    buffer = node.writes[index].buffer
    require(func, asked, not_a_parameter(func, buffer, node))
    if buffer.scope is scope:
        return func
    moved = Buffer(buffer.name, buffer.shape, buffer.dtype, scope)
    new = with_buffer(func, buffer, moved)
    places = nest(new)
    names = {*places.writers.get(moved, ()), *places.readers.get(moved, ())}
    require(new, asked, check_launches(new, [places.blocks[n] for n in names]))
    return new
