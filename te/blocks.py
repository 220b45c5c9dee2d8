"""Blocks with their loops in default order, and the regions that a body touches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..ir.loop.affine import to_expr
from ..ir.loop.build import const
from ..ir.loop.nodes import (
    NO_NOTES,
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Const,
    Expr,
    For,
    Load,
    Notes,
    Op,
    Range,
    Region,
    Stmt,
    Store,
    Var,
)
from ..ir.loop.regions import Spans, loop_ranges
from ..ir.loop.visit import exprs, lets, seq, walk
from .sharing import bind, postorder

# What a declared region may be computed with; anything else widens to the whole dimension.
_REGION_OPS = frozenset(
    {
        "add",
        "subtract",
        "multiply",
        "floordiv",
        "floormod",
        "minimum",
        "maximum",
    }
)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a block to be: a variable with its extent and kind."""

    var: Var
    extent: int
    kind: AxisKind = AxisKind.SPATIAL


def spatial(extents: Sequence[int], prefix: str = "i") -> tuple[Axis, ...]:
    """Axes over the elements that a block writes: loops ``i0, i1, ..``, block axes ``vi0, ..``."""
    return tuple(Axis(Var(f"v{prefix}{n}"), extent) for n, extent in enumerate(extents))


def reducing(extents: Sequence[int], prefix: str = "k") -> tuple[Axis, ...]:
    """Axes over the terms of a reduction: loops ``k0, k1, ..``, block axes ``vk0, ..``."""
    return tuple(
        Axis(Var(f"v{prefix}{n}"), extent, AxisKind.REDUCE) for n, extent in enumerate(extents)
    )


def unique(name: str, taken: dict[str, int]) -> str:
    """Return ``name``, with a number appended if it is in use; ``taken`` counts the uses."""
    count = taken.get(name, 0)
    taken[name] = count + 1
    return unique(f"{name}_{count}", taken) if count else name


def variables(axes: Sequence[Axis]) -> tuple[Expr, ...]:
    """Return the axes as an index."""
    return tuple(a.var for a in axes)


def nest(
    name: str,
    axes: Sequence[Axis],
    body: Stmt,
    init: Stmt | None = None,
    notes: Notes = NO_NOTES,
) -> Stmt:
    """Return a block under one serial loop per axis, the first axis outermost.

    Reads and writes are derived from the body. If a reduce axis is empty, no iteration would run
    the ``init``, so it becomes the body of a block without reduce axes. Without reduce axes, each
    instance begins with it.
    """
    reduced = any(a.kind is AxisKind.REDUCE for a in axes)
    if init is not None and not reduced:
        return nest(name, axes, seq(init, body), notes=notes)
    if init is not None and any(a.extent == 0 and a.kind is AxisKind.REDUCE for a in axes):
        return nest(name, [a for a in axes if a.kind is AxisKind.SPATIAL], init, notes=notes)
    loops = [Var(a.var.name.removeprefix("v")) for a in axes]
    own = {a.var for a in axes}
    parts = (body,) if init is None else (init, body)
    result: Stmt = Block(
        name=name,
        axes=tuple(
            BlockAxis(a.var, a.extent, a.kind, loop) for a, loop in zip(axes, loops, strict=True)
        ),
        reads=_regions((x for s in parts for x in _loads(s)), own),
        writes=_regions((x for s in parts for x in _stores(s)), own, _spans(body, axes)),
        body=body,
        init=init,
        notes=notes,
    )
    for axis, loop in zip(reversed(axes), reversed(loops), strict=True):
        result = For(loop, const(axis.extent), result)
    return result


def elements(buffer: Buffer, name: str, value: Callable[[tuple[Expr, ...]], Expr]) -> Stmt:
    """Return a block that computes every element of ``buffer`` from its index."""
    axes = spatial(buffer.shape)
    at = variables(axes)
    return nest(name, axes, store(buffer, at, value(at)))


def store(buffer: Buffer, index: tuple[Expr, ...], value: Expr) -> Stmt:
    """Return ``buffer[index] = value``; shared subexpressions of both are bound to names."""
    rank = len(index)
    return bind((*index, value), lambda es: Store(buffer, es[:rank], es[rank]))


def stores(buffers: Sequence[Buffer], index: tuple[Expr, ...], values: Sequence[Expr]) -> Stmt:
    """Return stores to one place of several buffers; all values are computed before the first."""
    if len(buffers) == 1:
        return store(buffers[0], index, values[0])

    def use(bound: tuple[Expr, ...]) -> Stmt:
        return _together([(b, index, f"{b.name}_new") for b in buffers], bound)

    return bind(values, use)


def stores_at(buffer: Buffer, places: Sequence[tuple[Expr, ...]], values: Sequence[Expr]) -> Stmt:
    """Return stores to several elements of a buffer; all values are computed before the first."""

    def use(bound: tuple[Expr, ...]) -> Stmt:
        targets = [(buffer, p, f"{buffer.name}_{n}_new") for n, p in enumerate(places)]
        return _together(targets, bound)

    return bind(values, use)


def _together(
    targets: Sequence[tuple[Buffer, tuple[Expr, ...], str]], values: Sequence[Expr]
) -> Stmt:
    names: list[tuple[Var, Expr]] = []
    writes: list[Stmt] = []
    for (buffer, index, name), value in zip(targets, values, strict=True):
        if not isinstance(value, Const | Var):
            names.append((Var(name, buffer.dtype), value))
            value = names[-1][0]
        writes.append(Store(buffer, index, value))
    return lets(names, seq(*writes))


def _loads(s: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    for part in walk(s):
        for e in postorder(exprs(part)):
            if isinstance(e, Load):
                yield e.buffer, e.index


def _stores(s: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    for part in walk(s):
        if isinstance(part, Store):
            yield part.buffer, part.index


def _spans(body: Stmt, axes: Sequence[Axis]) -> Spans:
    ranges = {a.var: (0, max(a.extent - 1, 0)) for a in axes}
    return Spans(loop_ranges(body, ranges), ranges)


def _regions(
    accesses: Iterator[tuple[Buffer, tuple[Expr, ...]]], own: set[Var], spans: Spans | None = None
) -> tuple[Region, ...]:
    """Return a box for each distinct access, in order; ``spans`` has the ranges of inner loops."""
    found: dict[Region, None] = {}
    for buffer, at in accesses:
        ranges = tuple(
            _range(e, extent, own, spans) for e, extent in zip(at, buffer.shape, strict=True)
        )
        found[Region(buffer, ranges)] = None
    return tuple(found)


def _range(e: Expr, extent: int, own: set[Var], spans: Spans | None) -> Range:
    """Return the range of an index in one instance of a block, over all iterations inside it."""
    if _over(e, own):
        return Range(e, const(1))
    swept = None if spans is None else spans.span(e)
    if swept is not None and swept.start.terms and swept.width + 1 < extent:
        start = to_expr(swept.start)
        if _over(start, own):
            return Range(start, const(swept.width + 1))
    return Range(const(0), const(extent))


def _over(e: Expr, own: set[Var]) -> bool:
    """True if ``e`` is index arithmetic over the block's own axes."""
    return all(
        isinstance(x, Const)
        or (isinstance(x, Var) and x in own)
        or (isinstance(x, Op) and x.name in _REGION_OPS)
        for x in postorder((e,))
    )
