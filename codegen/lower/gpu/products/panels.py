"""Operands of asynchronous products in shared memory, where descriptors say how they lie.

The tiles of an operand, and of results that bulk copies store, keep their swizzle; where their rows
are longer than its pattern, they are cut into panels, one after another: ``[k, n]`` ->
``[n / 64, k, 64]``. Before barriers of a launch that has such products, its threads make what
they wrote visible to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from .....ir.errors import UnsupportedError
from .....ir.loop.affine import Interval, loop_range
from .....ir.loop.build import as_int, floordiv, floormod, points
from .....ir.loop.nodes import (
    CHUNK,
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Intrinsic,
    Load,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
)
from .....ir.loop.simplify import simplify
from .....ir.loop.visit import map_expr, map_stmt, seq, walk
from .....ir.loop.warpgroups import Descriptor
from ...passes.launches import BARRIER, PROXY_FENCE
from .groups import shared_operands

_EIGHT = 8  # rows of a swizzle's pattern


def tile_start(r: Region, e: Expr, size: int, ranges: Mapping[Var, Interval], name: str) -> Expr:
    """Return ``e``, where tiles of a region begin, if it is known to be a multiple of ``size``.

    ``UnsupportedError`` for function ``name`` if it is not.
    """
    if as_int(simplify(floormod(e, size), ranges)) != 0:
        what = f"a tile of {r.buffer.name} does not start at a multiple of {size}"
        raise UnsupportedError(what, where=f"function {name}")
    return e


@dataclass(frozen=True)
class PanelRewriter:
    """Rewrites a launch, whose operands get other buffers, the ``panels``.

    Threads themselves fill operands where they are ``stored``.
    """

    name: str
    panels: Mapping[Buffer, Buffer]
    stored: bool

    def stmt(self, s: Stmt, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return the statement with accesses of panels."""
        match s:
            case Intrinsic():
                return self.intrinsic(s, ranges)
            case Seq(stmts=stmts):
                return self.sequence(stmts, ranges)
            case Alloc(buffer=b, body=body) if b in self.panels:
                return Alloc(self.panels[b], self.stmt(body, ranges))
            case For(var=var, extent=extent):
                ranges = {**ranges, var: loop_range(extent, ranges)}
        s = map_stmt(s, lambda c: self.stmt(c, ranges), lambda e: self.expr(e, ranges))
        if isinstance(s, Store) and s.buffer in self.panels:
            return replace(
                s, buffer=self.panels[s.buffer], index=self.at(s.buffer, s.index, ranges)
            )
        return s

    def sequence(self, stmts: tuple[Stmt, ...], ranges: Mapping[Var, Interval]) -> Stmt:
        """Return the statements in order, without fences before barriers that follow no store."""
        done: list[Stmt] = []
        stored = self.stored
        for s in stmts:
            fills = self.stored and any(_stores(x, self.panels) for x in walk(s))
            done.append(replace(self, stored=stored or fills).stmt(s, ranges))
            stored = fills or (stored and s != BARRIER)
        return seq(*done)

    def expr(self, e: Expr, ranges: Mapping[Var, Interval]) -> Expr:
        """Return the expression with loads of panels."""
        e = map_expr(e, lambda x: self.expr(x, ranges))
        if isinstance(e, Load) and e.buffer in self.panels:
            return Load(self.panels[e.buffer], self.at(e.buffer, e.index, ranges))
        return e

    def intrinsic(self, s: Intrinsic, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return a barrier, before which stores are made visible, or a copy."""
        if s == BARRIER and self.stored:
            return seq(PROXY_FENCE, BARRIER)
        writes, reads = (
            tuple(self.copied(r, ranges) for r in regions) for regions in (s.writes, s.reads)
        )
        return replace(s, writes=writes, reads=reads)

    def at(
        self, b: Buffer, index: tuple[Expr, ...], ranges: Mapping[Var, Interval]
    ) -> tuple[Expr, ...]:
        """Return the place of an element in panels."""
        *lead, row, column = index
        each = self.panels[b].shape[-1]
        panel, rest = (simplify(f(column, each), ranges) for f in (floordiv, floormod))
        return (*lead, panel, row, rest)

    def copied(self, r: Region, ranges: Mapping[Var, Interval]) -> Region:
        """Return a stretch of a row that a copy fills, or rows of a panel."""
        if r.buffer not in self.panels:
            return r
        start = self.at(r.buffer, tuple(x.start for x in r.ranges), ranges)
        *lead, last = (x.extent for x in r.ranges)
        sizes = (*lead[:-1], Const(1), lead[-1], last)
        return Region(self.panels[r.buffer], tuple(map(Range, start, sizes)))

    def operands(
        self, s: Intrinsic, ranges: Mapping[Var, Interval]
    ) -> tuple[tuple[Region, ...], tuple[int, ...]]:
        """Return where the operands of a product begin, and the sizes of their descriptors."""
        pairs = zip(s.reads[1:], s.args, strict=True)
        shared = [(r, bool(t)) for r, t in pairs if r.buffer in self.panels]
        found = [self.operand(r, turned, ranges) for r, turned in shared]
        sizes = (n for _, d in found for n in (d.swizzle, d.leading, d.stride))
        return tuple(r for r, _ in found), (*s.args, *sizes)

    def operand(
        self, r: Region, turned: bool, ranges: Mapping[Var, Interval]
    ) -> tuple[Region, Descriptor]:
        """Return where an operand begins, and where the rest of it is."""
        b = self.panels[r.buffer]
        *lead, row, column = (simplify(x.start, ranges) for x in r.ranges)
        tile_start(r, row, _EIGHT, ranges, self.name)
        across = as_int(r.ranges[-1].extent) or 0
        tile_start(r, column, min(across, b.shape[-1]), ranges, self.name)
        start = self.at(r.buffer, (*lead, row, column), ranges)
        each = CHUNK // b.dtype.bytes
        box = (*points(start[:-1]), Range(start[-1], Const(each)))
        pattern = b.swizzle * CHUNK
        found = Descriptor(pattern, b.shape[-2] * pattern, _EIGHT * pattern, turned)
        return Region(b, box), found


def find_panels(s: Stmt, name: str) -> tuple[dict[Buffer, Buffer], bool]:
    """Return the buffers that a launch's panels replace, and whether threads store to operands."""
    operands = {r.buffer: None for x in walk(s) for r in shared_operands(x)}
    results = {r.buffer: None for x in walk(s) for r in _stored_boxes(x)}
    stored = any(_fills(x, operands) for x in walk(s))
    return {b: _panels(b, name) for b in {**operands, **results}}, stored


def _stored_boxes(s: Stmt) -> tuple[Region, ...]:
    return s.reads[:1] if isinstance(s, Intrinsic) and s.name == "tma_store" else ()


def _fills(s: Stmt, operands: Collection[Buffer]) -> bool:
    """True if threads write operands by a statement, unlike bulk copies."""
    match s:
        case Store(buffer=b):
            return b in operands
        case Intrinsic(name=name, writes=writes):
            return name != "tma_load" and any(r.buffer in operands for r in writes)
        case _:
            return False


def _stores(s: Stmt, panels: Collection[Buffer]) -> bool:
    """True if operands or results of threads are there after it: copies of a thread land late."""
    return _fills(s, panels) or (isinstance(s, Intrinsic) and s.name == "wait_async")


def _panels(b: Buffer, name: str) -> Buffer:
    """Return an operand's buffer, cut into panels whose rows are a pattern of the swizzle."""
    wide, pattern = b.shape[-1] * b.dtype.bytes, b.swizzle * CHUNK
    if not b.swizzle or wide % pattern or b.shape[-2] % _EIGHT or b.align is not None:
        raise UnsupportedError(
            f"buffer {b.name}{list(b.shape)} is no operand of an asynchronous product",
            "its rows are not a multiple of its swizzle, or not whole groups of eight",
            f"function {name}",
            "swizzle it by 2, 4 or 8 chunks, of which its rows have as many or a multiple",
        )
    *lead, rows, columns = b.shape
    each = pattern // b.dtype.bytes
    return replace(b, shape=(*lead, columns // each, rows, each))
