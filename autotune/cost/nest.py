"""Scheduled nests as features see them: each block with its loops, and where its accesses lie.

Nothing here knows a sketch: the loops around each block, their kinds, and the terms and strides of
its accesses are all that the features are derived from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TypeAlias

from ...ir.loop.affine import bounds, linear
from ...ir.loop.nodes import (
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Kind,
    Scope,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.visit import children, exprs, exprs_under, free_vars, loads_in, walk
from ...schedule.cursor import extent_of
from ...schedule.space.analyze import BlockInfo, describe

_Element: TypeAlias = tuple[Buffer, tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class IndexTerm:
    """A part of an index: ``step`` times a value of ``count`` different ones, made of ``loops``."""

    loops: frozenset[Var]
    step: int
    count: int


@dataclass(frozen=True, slots=True)
class NestAccess:
    """A load or store in a nest: the terms of each dimension, and its steps in elements by loop."""

    buffer: Buffer
    stored: bool
    terms: tuple[tuple[IndexTerm, ...], ...]
    steps: Mapping[Var, int]

    @property
    def held(self) -> bool:
        """True if the buffer is a register tile."""
        return self.buffer.scope is Scope.REGISTER

    def moves(self, loop: For) -> bool:
        """True if iterations of a loop access different elements."""
        return any(loop.var in t.loops for dim in self.terms for t in dim)

    def footprint(self, inner: frozenset[Var], line: int) -> float:
        """Return the bytes of the lines that are accessed while the ``inner`` loops run."""
        spans = [
            _elements(dim, inner, n) for dim, n in zip(self.terms, self.buffer.shape, strict=True)
        ]
        if not spans:
            return float(line)
        row = max(spans[-1] * self.buffer.dtype.bytes, 1.0)
        whole = spans[-1] >= self.buffer.shape[-1]
        last = row if whole else math.ceil(row / line) * line
        return math.prod(spans[:-1]) * last


def _elements(dim: Sequence[IndexTerm], inner: frozenset[Var], extent: int) -> float:
    span, distinct = 1, 1
    for t in dim:
        if t.loops <= inner:
            span += abs(t.step) * (t.count - 1)
            distinct *= t.count
    return float(min(span, distinct, extent))


@dataclass(frozen=True, slots=True)
class NestBlock:
    """A block in a scheduled nest, with the loops around it, the outermost first.

    ``shared`` has, for each intermediate buffer, how many of the loops surround all of its uses.
    """

    info: BlockInfo
    loops: tuple[For, ...]
    accesses: tuple[NestAccess, ...]
    constants: int
    shared: Mapping[Buffer, int] = field(default_factory=dict)

    @property
    def body(self) -> tuple[For, ...]:
        """The innermost loops that become straight code: unrolled ones and vectors."""
        kinds = (Kind.UNROLLED, Kind.VECTOR)
        return tuple(takewhile(lambda x: x.kind in kinds, reversed(self.loops)))[::-1]

    @property
    def outer(self) -> tuple[For, ...]:
        """The loops around the body."""
        return self.loops[: len(self.loops) - len(self.body)]

    @property
    def trips(self) -> float:
        """How often the body runs."""
        return float(math.prod(trip_count(x) for x in self.outer))


def trip_count(loop: For) -> int:
    """Return a loop's extent; the most that it can be if it is no constant."""
    known = extent_of(loop)
    return max(1, bounds(loop.extent, {})[1] if known is None else known) if known != 0 else 1


def nest_blocks(func: Func) -> tuple[NestBlock, ...]:
    """Return every block of a scheduled function, in program order."""
    found = tuple(_blocks(func.body, ()))
    return tuple(replace(b, shared=_shared(b, found, func)) for b in found)


def _blocks(s: Stmt, loops: tuple[For, ...]) -> Iterator[NestBlock]:
    if isinstance(s, Block):
        yield _nest_block(s, loops)
        return
    inside = (*loops, s) if isinstance(s, For) else loops
    for child in children(s):
        yield from _blocks(child, inside)


def _nest_block(block: Block, loops: tuple[For, ...]) -> NestBlock:
    ranges = {x.var: (0, trip_count(x) - 1) for x in loops}
    axes = {a.var: _terms(a.value, ranges) for a in block.axes}
    loads, stores = _elements_of(block)
    accesses = [_access(buffer, index, axes, False) for buffer, index in loads]
    accesses += [_access(buffer, index, axes, True) for buffer, index in stores]
    return NestBlock(describe(block), loops, tuple(accesses), _constants(block))


def _elements_of(block: Block) -> tuple[Iterable[_Element], Iterable[_Element]]:
    """Return the elements that a block's body loads and stores, each once."""
    loads: dict[_Element, None] = {}
    stores: dict[_Element, None] = {}
    for s in walk(block.body):
        if isinstance(s, Store):
            stores[s.buffer, s.index] = None
        for x in exprs(s):
            loads |= {(e.buffer, e.index): None for e in loads_in(x)}
    return loads, stores


def _shared(block: NestBlock, blocks: Sequence[NestBlock], func: Func) -> Mapping[Buffer, int]:
    """Return the number of loops around a block that surround all uses of each intermediate."""
    found = {}
    for buffer in {a.buffer for a in block.accesses} & set(func.allocs):
        users = [b.loops for b in blocks if any(a.buffer is buffer for a in b.accesses)]
        same = takewhile(lambda xs: len({id(x) for x in xs}) == 1, zip(*users, strict=False))
        found[buffer] = sum(1 for _ in same)
    return found


def _terms(value: Expr, ranges: Mapping[Var, tuple[int, int]]) -> tuple[IndexTerm, ...]:
    found = []
    for atom, k in linear(value).terms.items():
        low, high = bounds(atom, ranges)
        found.append(IndexTerm(free_vars(atom), k, max(1, min(high - low + 1, 1 << 40))))
    return tuple(found)


def _access(
    buffer: Buffer, index: Sequence[Expr], axes: Mapping[Var, tuple[IndexTerm, ...]], stored: bool
) -> NestAccess:
    dims: list[tuple[IndexTerm, ...]] = []
    steps: dict[Var, int] = {}
    for e, stride in zip(index, buffer.strides, strict=True):
        # What is not linear, as a clipped index of padding, is taken to move with its axes.
        dim = [
            IndexTerm(t.loops, t.step * k, t.count)
            for atom, k in linear(e).terms.items()
            for v in free_vars(atom)
            for t in axes.get(v, ())
        ]
        dims.append(tuple(dim))
        for t in dim:
            for v in t.loops:
                steps[v] = steps.get(v, 0) + t.step * stride
    return NestAccess(buffer, stored, tuple(dims), steps)


def _constants(block: Block) -> int:
    """Return the number of different float constants of a block, which registers hold."""
    found = {e.value for e in exprs_under(block.body) if isinstance(e, Const) and e.dtype.is_float}
    return len(found)
