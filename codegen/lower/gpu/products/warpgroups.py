"""Products of warp groups: sums become registers, operands descriptors, groups are waited for.

How operands lie is the business of ``panels``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from .....ir.errors import UnsupportedError
from .....ir.loop.affine import Interval
from .....ir.loop.build import add, as_int, floordiv, floormod, mul, number_of, zero_of
from .....ir.loop.intrinsics import HELD_COLUMNS, WARP
from .....ir.loop.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Intrinsic,
    Kind,
    Load,
    Range,
    Region,
    Scope,
    Stmt,
    Store,
    Var,
)
from .....ir.loop.simplify import simplify
from .....ir.loop.visit import seq, walk
from .....ir.loop.warpgroups import WARPGROUP
from .....schedule.fragments import WITHIN, is_grid_of_lanes
from ...passes.launches import each_launch
from .accumulators import own_pairs, own_row
from .groups import OF_GROUPS, grouped, is_group_product
from .panels import PanelRewriter, find_panels, tile_start

_EIGHT = 8  # rows of a swizzle's pattern; columns that four sums of a thread are in
_SUMS = 4  # of one thread in a box of 64 x 8


def lower_warpgroups(func: Func) -> Func:
    """Return the function with lane-level products of warp groups."""
    return each_launch(func, lambda s: _in_launch(s, func.name))


def _in_launch(s: For, name: str) -> Stmt:
    sums = {b: _registers(b, name) for x in walk(s) for b in _sums(x)}
    if not sums:
        return s
    thread = _thread({x.thread: x for x in walk(s) if isinstance(x, For)})
    return _GroupLanes(name, *find_panels(s, name), thread, sums).stmt(grouped(s), {})


def _thread(loops: Mapping[str, For]) -> Expr:
    """Return the thread's place in its group, which is 128 threads in x or rows of four."""
    y, x = (loops.get(t) for t in WITHIN)
    assert x is not None
    extents = {t: as_int(s.extent) or 1 for t, s in loops.items()}
    if y is None or not is_grid_of_lanes(extents, WARPGROUP):
        return x.var
    return add(mul(y.var, HELD_COLUMNS), x.var)


def _sums(s: Stmt) -> Iterator[Buffer]:
    for r in (*s.writes, *s.reads) if isinstance(s, Intrinsic) else ():
        if r.buffer.scope is Scope.WARPGROUP:
            yield r.buffer


def _registers(b: Buffer, name: str) -> Buffer:
    *lead, m, n = b.shape
    if m % 64 or n % _EIGHT:
        raise UnsupportedError(
            f"buffer {b.name}{list(b.shape)} does not hold whole tiles of 64 x {_EIGHT}",
            where=f"function {name}",
        )
    return Buffer(b.name, (prod(lead) * (m // 64) * (n // 2),), b.dtype, Scope.REGISTER)


@dataclass(frozen=True)
class _GroupLanes(PanelRewriter):
    """Rewrites a launch. ``thread`` is the thread's place in its group, ``here`` are the sums that
    are made around a statement."""

    thread: Expr
    sums: Mapping[Buffer, Buffer]
    here: tuple[Buffer, ...] = ()

    def stmt(self, s: Stmt, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return the statement with sums in registers."""
        if isinstance(s, Alloc) and s.buffer in self.sums:
            inner = replace(self, here=(*self.here, self.sums[s.buffer]))
            return Alloc(self.sums[s.buffer], inner.stmt(s.body, ranges))
        if isinstance(s, Store) and s.buffer in self.sums:
            index = tuple(self.expr(e, ranges) for e in s.index)
            held = self.held(s.buffer, index, ranges)
            return Store(self.sums[s.buffer], held, self.expr(s.value, ranges))
        return PanelRewriter.stmt(self, s, ranges)

    def sequence(self, stmts: tuple[Stmt, ...], ranges: Mapping[Var, Interval]) -> Stmt:
        """Return the statements in order: fences name the registers of the products behind them."""
        named = [
            self.fence(stmts[n + 1 :]) if (s,) == OF_GROUPS.fence else s
            for n, s in enumerate(stmts)
        ]
        return PanelRewriter.sequence(self, tuple(named), ranges)

    def fence(self, behind: tuple[Stmt, ...]) -> Stmt:
        """Return the fence before statements."""
        held = tuple(_all(self.sums[b]) for b in OF_GROUPS.held(behind))
        return replace(OF_GROUPS.fence[0], writes=held, reads=held)

    def expr(self, e: Expr, ranges: Mapping[Var, Interval]) -> Expr:
        """Return the expression with loads of registers."""
        e = PanelRewriter.expr(self, e, ranges)
        if isinstance(e, Load) and e.buffer in self.sums:
            return Load(self.sums[e.buffer], self.held(e.buffer, e.index, ranges))
        return e

    def held(
        self, b: Buffer, index: tuple[Expr, ...], ranges: Mapping[Var, Interval]
    ) -> tuple[Expr, ...]:
        """Return where a thread has an element that it holds (see ``GroupMatrix.c``)."""
        *lead, m, n = index
        lane = floordiv(self.thread, 4), floormod(self.thread, 4), floordiv(self.thread, WARP)
        mine = floormod(lane[0], 8), lane[1], floormod(lane[2], 4)
        asked = floormod(m, 8), floordiv(floormod(n, _EIGHT), 2), floormod(floordiv(m, 16), 4)
        half = floormod(floordiv(m, 8), 2)
        if any(
            simplify(x, ranges) != simplify(y, ranges) for x, y in zip(mine, asked, strict=True)
        ):
            raise UnsupportedError(
                f"an element of {b.name} is accessed by a thread that may not hold it",
                "threads of a warp group hold pairs of columns of every eighth row",
                f"function {self.name}",
                "bind the loops over 4 warps by 8 rows to threadIdx.y and over 4 pairs to "
                "threadIdx.x, or all of them fused to the latter",
            )
        *sizes, rows, columns = b.shape
        tile = floordiv(add(m, mul(lane[2], -16)), 64)  # more threads than a group may have them
        extents = (*sizes, rows // 64, columns // _EIGHT)
        box = number_of((*lead, tile, floordiv(n, _EIGHT)), extents)
        return (simplify(add(mul(box, _SUMS), add(mul(half, 2), floormod(n, 2))), ranges),)

    def intrinsic(self, s: Intrinsic, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return what a thread does of a tile's operation."""
        match s.name:
            case "zero_accumulators":
                to = self.registers(s.writes[0], ranges)
                zero = zero_of(to.buffer.dtype)
                return seq(*(Store(to.buffer, _word(to, n), zero) for n in range(_SUMS)))
            case "store_accumulators":
                return self.store(s.writes[0], self.registers(s.reads[0], ranges), ranges)
            case "store_results":
                row = own_row(s.writes[0], self.thread)
                own = self.registers(s.reads[0], ranges)
                return Intrinsic("stmatrix.x4", (self.copied(row, ranges),), (own,))
            case "wgmma_wait" if s.writes:
                return seq(*(OF_GROUPS.sums_landed(self.sums[r.buffer]) for r in s.writes))
            case "wgmma_wait" if s.args == (0,):
                return seq(*map(OF_GROUPS.sums_landed, self.here))
            case _ if is_group_product(s):
                return self.product(s, ranges)
        return PanelRewriter.intrinsic(self, s, ranges)

    def registers(self, r: Region, ranges: Mapping[Var, Interval]) -> Region:
        """Return a thread's own sums of a box, half as many as the box has columns."""
        *lead, m, n = (simplify(x.start, ranges) for x in r.ranges)
        tile = floordiv(tile_start(r, m, 64, ranges, self.name), 64)
        first = floordiv(tile_start(r, n, _EIGHT, ranges, self.name), 2)
        *sizes, rows, columns = r.buffer.shape
        extents = (*sizes, rows // 64, columns // 2)
        start = simplify(number_of((*lead, tile, first), extents), ranges)
        count = (as_int(r.ranges[-1].extent) or 0) // 2
        return Region(self.sums[r.buffer], (Range(start, Const(count)),))

    def product(self, s: Intrinsic, ranges: Mapping[Var, Interval]) -> Stmt:
        sums = self.registers(s.writes[0], ranges)
        starts, args = self.operands(s, ranges)
        held = (self.registers(r, ranges) for r in s.reads[1:] if r.buffer in self.sums)
        return Intrinsic(s.name, (sums,), (sums, *held, *starts), args)

    def store(self, to: Region, words: Region, ranges: Mapping[Var, Interval]) -> Stmt:
        """Two pairs of neighbors, eight rows apart."""
        stores: list[Stmt] = []
        for half, pair in enumerate(own_pairs(to, self.thread)):
            v = Var("v")
            *at, column = (x.start for x in pair.ranges)
            value = Load(words.buffer, _word(words, add(v, 2 * half)))
            body = Store(to.buffer, (*at, add(column, v)), value)
            if to.buffer in self.panels:
                inner = {**ranges, v: (0, 1)}
                panels = self.at(to.buffer, body.index, inner)
                body = Store(self.panels[to.buffer], panels, value)
            stores.append(For(v, Const(2), body, Kind.VECTOR))
        return seq(*stores)


def _all(b: Buffer) -> Region:
    return Region(b, (Range(Const(0), Const(b.shape[0])),))


def _word(words: Region, n: Expr | int) -> tuple[Expr, ...]:
    (only,) = words.ranges
    return (add(only.start, n),)
