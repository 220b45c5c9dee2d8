"""Exponentials relative to the maximum of a part of their row: rescale (an online softmax)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from ...ir.elementwise import identity
from ...ir.loop.affine import linear
from ...ir.loop.build import compare, floordiv, op, point, select, var
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Load,
    Op,
    Seq,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.visit import free_vars, loads_in, substitute_expr
from ..concurrent import check_loop_kinds
from ..cursor import (
    BlockRef,
    Path,
    block_of,
    common,
    consumers,
    edit,
    find_block,
    fresh_name,
    nest,
)
from ..declare import primitive
from ..errors import Reason, obtain, require
from ..legality import not_opaque, self_contained, sole_writer
from ..softmax.parts import factor
from ..stores import single_store, update_of


@dataclass(frozen=True, slots=True)
class _Softmax:
    """``E[rows, t] = exp(x - shift)``, where ``shift`` comes from the maximum of each row.

    ``largest`` holds the maxima of the parts of ``length`` elements, with the part as dimension
    ``part``; ``rows`` are the axes of the block that index its other dimensions, in order, and
    ``along`` is the axis ``t``.
    """

    path: Path
    store: Store
    x: Expr
    shift: Expr
    whole: Path
    largest: Buffer
    part: int
    length: int
    rows: tuple[Var, ...]
    along: Var


@dataclass(frozen=True, slots=True)
class _Sum:
    """A block that puts partial sums of exponentials together, and where it reads its scales."""

    path: Path
    store: Store
    term: Load
    at: tuple[Expr, ...]


@primitive
def rescale(func: Func, block: BlockRef) -> tuple[Func, BlockRef]:
    """Make exponentials relative to the maximum of their part of a row; return the scales' block.

    ``E[t] = exp(x[t] - M)``  ->  ``E[t] = exp(x[t] - M_rf[t // n])``, where ``M`` is the maximum of
    the maxima ``M_rf`` of parts of ``n`` elements. Each sum over ``E`` has partial results of the
    same parts; they are multiplied by the scales, ``exp(M_rf[p] - M)``, when they are put together.
    No part of a row then waits for the whole row: an online softmax. A part whose maximum is -inf
    counts as zeros.

    Refused:
        - a block that is not an exponential of a difference from the maximum of a row
        - a maximum, or a sum over the exponentials, that `rfactor` did not split into parts
        - blocks that share loops already: do this before `compute_at`

    Example:
        sch = softmax()
        for name in ("M", "S"):
            i, k = sch.get_loops(name)
            k, part = sch.split(k, [None, 4])
            sch.reorder(k, i, part)
            sch.rfactor(k)
        sch.rescale("E")
    """
    asked = f"rescale the exponentials of block `{block.name}`"
    path = find_block(func, block, asked)
    require(func, asked, not_opaque((path,)), sole_writer(func, block_of(path)))
    found = obtain(func, asked, _softmax(func, path))
    sums = obtain(func, asked, _sums(func, found))
    name = fresh_name(func, f"{block_of(found.whole).name}_scale")
    scale = Buffer(name, found.largest.shape, found.store.buffer.dtype)
    top = found.whole[: 2 if isinstance(found.whole[0], Seq) else 1]
    new = edit(
        func,
        [
            (path, lambda _: _relative(found)),
            (top, lambda s: Seq((s, _scales(found, scale)))),
            *((x.path, lambda _, x=x: _scaled(found, x, scale)) for x in sums),
        ],
    )
    new = replace(new, allocs=(*func.allocs, scale))
    index = nest(new)
    names = (name, block.name, *(block_of(x.path).name for x in sums))
    paths = [index.blocks[n] for n in names]
    require(func, asked, self_contained(new, paths), check_loop_kinds(new, paths))
    return new, BlockRef(name)


def _softmax(func: Func, path: Path) -> _Softmax | Reason:
    block = block_of(path)
    store = single_store(block)
    match store:
        case Store(value=Op(name="exponential", args=(Op(name="subtract", args=(x, shift)),))):
            pass
        case _:
            return _no_exponential(block)
    assert store is not None
    loads = {*loads_in(shift)}
    axes = tuple(e for e in store.index if isinstance(e, Var))
    if len(loads) != 1 or len(axes) != len(store.index):
        return _no_exponential(block)
    (load,) = loads
    rows = tuple(e for e in _of_units(load.index, block) if isinstance(e, Var))
    rest = [v for v in axes if v not in rows]
    writers = nest(func).writers.get(load.buffer, ())
    if len(rows) != len(load.index) or len(rest) != 1 or len(writers) != 1:
        return _no_exponential(block)
    whole = nest(func).blocks[writers[0]]
    parts = _parts(func, block_of(whole))
    if isinstance(parts, Reason):
        return parts
    largest, part, length = parts
    if common(path, whole) > (1 if isinstance(path[0], Seq) else 0):
        return _shares_loops(block, block_of(whole))
    return _Softmax(
        path=path,
        store=store,
        x=x,
        shift=shift,
        whole=whole,
        largest=largest,
        part=part,
        length=length,
        rows=rows,
        along=rest[0],
    )


def _of_units(index: tuple[Expr, ...], block: Block) -> tuple[Expr, ...]:
    """Return an index with axes of extent 1 for its zeros, in order."""
    units = [a.var for a in block.axes if a.extent == 1 and a.var not in index]
    return tuple(units.pop(0) if e == Const(0) and units else e for e in index)


def _no_exponential(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` is not an exponential of a difference from the maximum of a row",
        (block,),
        hint="the block stores exp(x - m), where m is computed from one maximum per row",
    )


def _shares_loops(block: Block, other: Block) -> Reason:
    return Reason(
        f"blocks `{block.name}` and `{other.name}` share loops",
        (block, other),
        hint="do this before compute_at",
    )


def _not_in_parts(block: Block, what: str) -> Reason:
    return Reason(
        f"block `{block.name}` is not {what} over parts of the row",
        (block,),
        hint="split the reduction loop, and rfactor the outer one",
    )


def _parts(func: Func, whole: Block) -> tuple[Buffer, int, int] | Reason:
    """Return the maxima of parts that ``whole`` combines, their dimension, and a part's length."""
    wrong = _not_in_parts(whole, "the maximum of maxima")
    update = update_of(whole)
    reduce = [a for a in whole.axes if a.kind is AxisKind.REDUCE]
    if update is None or update.op != "maximum" or len(reduce) != 1:
        return wrong
    store, _, term = update
    if not isinstance(term, Load) or [e for e in term.index if e != reduce[0].var] != [
        *store.index
    ]:
        return wrong
    writers = nest(func).writers.get(term.buffer, ())
    inner = nest(func).block(writers[0]) if len(writers) == 1 else whole
    length = [a.extent for a in inner.axes if a.kind is AxisKind.REDUCE]
    inside = update_of(inner)
    if inner is whole or len(length) != 1 or inside is None or inside.op != "maximum":
        return wrong
    return term.buffer, term.index.index(reduce[0].var), length[0]


def _sums(func: Func, k: _Softmax) -> list[_Sum] | Reason:
    """Return the blocks that combine the partial sums over the exponentials."""
    found: list[_Sum] = []
    users = consumers(func, block_of(k.path))
    if k.store.buffer in func.params or not users:
        return _not_in_parts(block_of(k.path), "summed")
    for path, load in _partial_sums(func, k, users):
        block = block_of(path)
        wanted = None if load is None else _rows(k, block, load)
        partial = block.writes[0].buffer
        readers = consumers(func, block)
        if wanted is None or len(readers) != 1 or partial in func.params:
            return _not_in_parts(block, "a sum")
        final = block_of(readers[0])
        update = update_of(final)
        if update is None or update.op != "add" or not isinstance(update.term, Load):
            return _not_in_parts(final, "a sum")
        if common(readers[0], k.whole) > (1 if isinstance(k.whole[0], Seq) else 0):
            return _shares_loops(final, block_of(k.whole))
        term, own = update.term, update_of(block)
        assert own is not None
        pairs = zip(own.store.index, term.index, strict=True)
        by = {v: e for v, e in pairs if isinstance(v, Var)}
        if any(not free_vars(e) <= by.keys() for e in wanted):
            return _not_in_parts(block, "a sum")
        at = tuple(substitute_expr(e, by) for e in wanted)
        found.append(_Sum(readers[0], update.store, term, at))
    return found


def _partial_sums(
    func: Func, k: _Softmax, users: Sequence[Path]
) -> Iterator[tuple[Path, Load | None]]:
    """Yield the blocks that sum over exponentials, or over a copy of them, and what they read.

    What is read is given as an element of the exponentials; None if it is no factor of the terms.
    """
    for path in users:
        block = block_of(path)
        copied = _copied(k, block)
        if copied is None:
            update = update_of(block)
            yield path, None if update is None else factor(update.term, k.store.buffer)
            continue
        store, load = copied
        for reader in consumers(func, block):
            update = update_of(block_of(reader))
            read = None if update is None else factor(update.term, store.buffer)
            if read is None:
                yield reader, None
                continue
            pairs = zip(store.index, read.index, strict=True)
            by = {v: e for v, e in pairs if isinstance(v, Var)}
            yield reader, replace(load, index=tuple(substitute_expr(e, by) for e in load.index))


def _copied(k: _Softmax, block: Block) -> tuple[Store, Load] | None:
    """Return store and load of a block that copies exponentials, some places filled with 0."""
    store = single_store(block)
    if store is None or any(a.kind is AxisKind.REDUCE for a in block.axes):
        return None
    value = _widened(store.value)
    match value:
        case Op(name="select", args=(_, x, Const(value=0.0))):
            value = _widened(x)
    plain = all(isinstance(e, Var) for e in store.index)
    return (store, value) if plain and _is_load(value, k.store.buffer) else None


def _widened(e: Expr) -> Expr:
    """Return a value of a floating-point type before it was rounded or widened."""
    return _widened(e.value) if isinstance(e, Cast) and e.dtype.is_float and not e.bits else e


def _is_load(e: Expr, buffer: Buffer) -> TypeGuard[Load]:
    return isinstance(e, Load) and e.buffer is buffer


def _rows(k: _Softmax, block: Block, load: Load) -> list[Expr] | None:
    """Return the element of the scales that is for a block's partial sums; None if not linear.

    The block sums, over one part of a row, terms that are proportional to the exponentials.
    """
    reduce = {a.var: a.extent for a in block.axes if a.kind is AxisKind.REDUCE}
    by = dict(zip(k.store.index, load.index, strict=True))
    form = linear(by[k.along])
    inner = [v for v in form.terms if v in reduce]
    outer = [v for v in form.terms if v not in reduce]
    steps = [reduce.get(v) for v in inner if isinstance(v, Var)]
    if form.constant or len(outer) != 1 or steps != [k.length] or form.terms[inner[0]] != 1:
        return None
    if form.terms[outer[0]] != k.length:
        return None
    wanted = [by[v] for v in k.rows]
    part = outer[0]
    assert isinstance(part, Var)
    wanted.insert(k.part, part)
    return wanted


def _relative(k: _Softmax) -> Block:
    """Return the exponentials relative to the maximum of their part; zeros if that is -inf."""
    block = block_of(k.path)
    at: list[Expr] = list(k.rows)
    at.insert(k.part, floordiv(k.along, k.length))
    largest = Load(k.largest, tuple(at))
    dtype = k.largest.dtype
    nothing = Const(float(identity("maximum", dtype)), dtype)
    base = select(compare("eq", largest, nothing), Const(0.0, dtype), largest)
    used = {x.buffer for x in loads_in(k.x)}
    reads = (*(r for r in block.reads if r.buffer in used), point(k.largest, tuple(at)))
    value = op("exponential", op("subtract", k.x, base))
    return replace(block, reads=reads, body=replace(k.store, value=value))


def _scales(k: _Softmax, scale: Buffer) -> Stmt:
    """Return the nest of what the sums of each part are multiplied by."""
    names = [v.name for v in k.rows]
    names.insert(k.part, "vpart")
    axes = [
        BlockAxis(var(n), extent, AxisKind.SPATIAL, var(n.removeprefix("v")))
        for n, extent in zip(names, scale.shape, strict=True)
    ]
    at = tuple(a.var for a in axes)
    by: dict[Var, Expr] = dict(zip(k.rows, (*at[: k.part], *at[k.part + 1 :]), strict=True))
    shift = substitute_expr(k.shift, by)
    loads = [*loads_in(shift)]
    reads = (point(k.largest, at), point(loads[0].buffer, loads[0].index))
    value = op("exponential", op("subtract", Load(k.largest, at), shift))
    body: Stmt = Block(scale.name, tuple(axes), reads, (point(scale, at),), Store(scale, at, value))
    for a in reversed(axes):
        assert isinstance(a.value, Var)
        body = For(a.value, Const(a.extent), body)
    return body


def _scaled(k: _Softmax, x: _Sum, scale: Buffer) -> Block:
    block = block_of(x.path)
    own = Load(x.store.buffer, x.store.index)
    factor: Expr = Load(scale, x.at)
    if factor.dtype != x.term.dtype:
        factor = Cast(factor, x.term.dtype)
    value = op("add", own, op("multiply", x.term, factor))
    return replace(
        block,
        reads=(*block.reads, point(scale, x.at)),
        body=replace(x.store, value=value),
    )
