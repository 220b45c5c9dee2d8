"""Products of warp groups: sums become registers, operands descriptors, groups are waited for.

The tiles of an operand, and of results that bulk copies store, keep their swizzle; where their rows
are longer than its pattern, they are cut into panels, one after another: ``[k, n]`` ->
``[n / 64, k, 64]``. Before each barrier of a
launch that has such products, its threads make what they wrote visible to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from ....ir.errors import UnsupportedError
from ....ir.loop.affine import Interval, bounds
from ....ir.loop.build import add, as_int, floordiv, floormod, mul
from ....ir.loop.intrinsics import HELD_COLUMNS, TABLE, WARP
from ....ir.loop.nodes import (
    CHUNK,
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
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.simplify import simplify
from ....ir.loop.visit import children, map_expr, map_stmt, seq, walk
from ....ir.loop.warpgroups import WARPGROUP, Descriptor
from ....schedule.fragments import WITHIN, is_grid_of_lanes
from ..passes.launches import each_launch
from .accumulators import own_pairs, own_row
from .barriers import BARRIER

FENCE, COMMIT = Intrinsic("wgmma_fence"), Intrinsic("wgmma_commit")
_SEEN = Intrinsic("fence_proxy_async")
_EIGHT = 8  # rows of a swizzle's pattern; columns that four sums of a thread are in
_SUMS = 4  # of one thread in a box of 64 x 8


def wait(groups: int) -> Intrinsic:
    """The wait until at most so many groups of products are under way."""
    return Intrinsic("wgmma_wait", args=(groups,))


def is_group_product(s: Stmt) -> bool:
    """True for a product of a warp group, which is under way when the next statement begins."""
    return isinstance(s, Intrinsic) and s.name in TABLE and TABLE[s.name].group is not None


def has_group_products(s: Stmt) -> bool:
    """True if there is one in a statement."""
    return any(map(is_group_product, walk(s)))


def _stored_boxes(s: Stmt) -> tuple[Region, ...]:
    return s.reads[:1] if isinstance(s, Intrinsic) and s.name == "tma_store" else ()


def lower_warpgroups(func: Func) -> Func:
    """The function with lane-level products of warp groups."""
    return each_launch(func, lambda s: _in_launch(s, func.name))


def _in_launch(s: For, name: str) -> Stmt:
    sums = {b: _registers(b, name) for x in walk(s) for b in _sums(x)}
    if not sums:
        return s
    operands = {r.buffer: None for x in walk(s) if is_group_product(x) for r in shared_operands(x)}
    results = {r.buffer: None for x in walk(s) for r in _stored_boxes(x)}
    thread = _thread({x.thread: x for x in walk(s) if isinstance(x, For)})
    panels = {b: _panels(b, name) for b in {**operands, **results}}
    stored = any(_fills(x, operands) for x in walk(s))
    return _GroupLanes(name, thread, sums, panels, stored=stored).stmt(_grouped(s), {})


def _thread(loops: Mapping[str, For]) -> Expr:
    """The thread's place in its group, which is 128 threads in x or rows of four."""
    y, x = (loops.get(t) for t in WITHIN)
    assert x is not None
    extents = {t: as_int(s.extent) or 1 for t, s in loops.items()}
    if y is None or not is_grid_of_lanes(extents, WARPGROUP):
        return x.var
    return add(mul(y.var, HELD_COLUMNS), x.var)


def _fills(s: Stmt, operands: Collection[Buffer]) -> bool:
    """True if threads write operands by a statement, unlike bulk copies."""
    match s:
        case Store(buffer=b):
            return b in operands
        case Intrinsic(name=name, writes=writes):
            return name != "tma_load" and any(r.buffer in operands for r in writes)
        case _:
            return False


def _sums(s: Stmt) -> Iterator[Buffer]:
    for r in (*s.writes, *s.reads) if isinstance(s, Intrinsic) else ():
        if r.buffer.scope is Scope.WARPGROUP:
            yield r.buffer


def shared_operands(s: Stmt) -> tuple[Region, ...]:
    """The operands of a product that are in shared memory."""
    assert isinstance(s, Intrinsic)
    return tuple(r for r in s.reads[1:] if r.buffer.scope is Scope.SHARED)


def _registers(b: Buffer, name: str) -> Buffer:
    *lead, m, n = b.shape
    if m % 64 or n % _EIGHT:
        raise UnsupportedError(
            f"buffer {b.name}{list(b.shape)} does not hold whole tiles of 64 x {_EIGHT}",
            where=f"function {name}",
        )
    return Buffer(b.name, (prod(lead) * (m // 64) * (n // 2),), b.dtype, Scope.REGISTER)


def _panels(b: Buffer, name: str) -> Buffer:
    """An operand's buffer, cut into panels whose rows are a pattern of the swizzle."""
    wide, pattern = b.shape[-1] * b.dtype.bytes, b.swizzle * CHUNK
    if not b.swizzle or wide % pattern or b.shape[-2] % _EIGHT or b.align is not None:
        raise UnsupportedError(
            f"buffer {b.name}{list(b.shape)} is no operand of a warp group's product",
            "its rows are not a multiple of its swizzle, or not whole groups of eight",
            f"function {name}",
            "swizzle it by 2, 4 or 8 chunks, of which its rows have as many or a multiple",
        )
    *lead, rows, columns = b.shape
    each = pattern // b.dtype.bytes
    return replace(b, shape=(*lead, columns // each, rows, each))


def _grouped(s: Stmt) -> Stmt:
    """Products that no group is made of yet become one, which is waited for at once."""
    if only_products(s):
        calls = (x for x in walk(s) if isinstance(x, Intrinsic))
        sums = dict.fromkeys(r.buffer for x in calls for r in x.writes)
        return seq(FENCE, s, COMMIT, *(_landed(b) for b in sums))
    if isinstance(s, Seq) and FENCE in s.stmts:
        return seq(*(x if only_products(x) else _grouped(x) for x in s.stmts))
    return map_stmt(s, _grouped, lambda e: e)


def only_products(s: Stmt) -> bool:
    """True if a statement is products of warp groups and nothing else."""
    if isinstance(s, For | Seq) and not (isinstance(s, For) and s.kind is Kind.THREAD):
        return bool(children(s)) and all(map(only_products, children(s)))
    return is_group_product(s)


@dataclass(frozen=True)
class _GroupLanes:
    """Rewrites a launch. ``thread`` is the thread's place in its group, ``here`` are the sums that
    are made around a statement. Threads themselves fill operands where they are ``stored``."""

    name: str
    thread: Expr
    sums: Mapping[Buffer, Buffer]
    panels: Mapping[Buffer, Buffer]
    here: tuple[Buffer, ...] = ()
    stored: bool = True

    def stmt(self, s: Stmt, ranges: Mapping[Var, Interval]) -> Stmt:
        match s:
            case Intrinsic():
                return self.intrinsic(s, ranges)
            case Alloc(buffer=b, body=body) if b in self.sums:
                inner = replace(self, here=(*self.here, self.sums[b]))
                return Alloc(self.sums[b], inner.stmt(body, ranges))
            case Alloc(buffer=b, body=body) if b in self.panels:
                return Alloc(self.panels[b], self.stmt(body, ranges))
            case For(var=var, extent=extent):
                ranges = {**ranges, var: (0, max(bounds(extent, ranges)[1] - 1, 0))}
        s = map_stmt(s, lambda c: self.stmt(c, ranges), lambda e: self.expr(e, ranges))
        if isinstance(s, Store) and s.buffer in self.sums:
            return replace(
                s, buffer=self.sums[s.buffer], index=self.held(s.buffer, s.index, ranges)
            )
        if isinstance(s, Store) and s.buffer in self.panels:
            return replace(
                s, buffer=self.panels[s.buffer], index=self.at(s.buffer, s.index, ranges)
            )
        return s

    def expr(self, e: Expr, ranges: Mapping[Var, Interval]) -> Expr:
        e = map_expr(e, lambda x: self.expr(x, ranges))
        if isinstance(e, Load) and e.buffer in self.panels:
            return Load(self.panels[e.buffer], self.at(e.buffer, e.index, ranges))
        if isinstance(e, Load) and e.buffer in self.sums:
            return Load(self.sums[e.buffer], self.held(e.buffer, e.index, ranges))
        return e

    def at(
        self, b: Buffer, index: tuple[Expr, ...], ranges: Mapping[Var, Interval]
    ) -> tuple[Expr, ...]:
        """The place of an element in panels."""
        *lead, row, column = index
        each = self.panels[b].shape[-1]
        panel, rest = (simplify(f(column, each), ranges) for f in (floordiv, floormod))
        return (*lead, panel, row, rest)

    def held(
        self, b: Buffer, index: tuple[Expr, ...], ranges: Mapping[Var, Interval]
    ) -> tuple[Expr, ...]:
        """Where a thread has an element that it holds (see ``GroupMatrix.c``)."""
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
        place: Expr = Const(0)
        tile = floordiv(add(m, mul(lane[2], -16)), 64)  # more threads than a group may have them
        for e, size in zip((*lead, tile), (*sizes, rows // 64), strict=True):
            place = add(mul(place, size), e)
        box = add(mul(place, columns // _EIGHT), floordiv(n, _EIGHT))
        return (simplify(add(mul(box, _SUMS), add(mul(half, 2), floormod(n, 2))), ranges),)

    def intrinsic(self, s: Intrinsic, ranges: Mapping[Var, Interval]) -> Stmt:
        match s.name:
            case "zero_accumulators":
                to = self.registers(s.writes[0], ranges)
                zero = Const(0.0 if to.buffer.dtype.is_float else 0, to.buffer.dtype)
                return seq(*(Store(to.buffer, _word(to, n), zero) for n in range(_SUMS)))
            case "store_accumulators":
                return self.store(s.writes[0], self.registers(s.reads[0], ranges), ranges)
            case "store_results":
                row = own_row(s.writes[0], self.thread)
                own = self.registers(s.reads[0], ranges)
                return Intrinsic("stmatrix.x4", (self.copied(row, ranges),), (own,))
            case "wgmma_wait" if s.writes:
                return seq(*(_landed(self.sums[r.buffer]) for r in s.writes))
            case "wgmma_wait" if s.args == (0,):
                return seq(*map(_landed, self.here))
            case "barrier" if self.stored:
                return seq(_SEEN, BARRIER)
            case _ if is_group_product(s):
                return self.product(s, ranges)
        writes, reads = (
            tuple(self.copied(r, ranges) for r in regions) for regions in (s.writes, s.reads)
        )
        return replace(s, writes=writes, reads=reads)

    def copied(self, r: Region, ranges: Mapping[Var, Interval]) -> Region:
        """A stretch of a row that a copy fills, or rows of a panel."""
        if r.buffer not in self.panels:
            return r
        start = self.at(r.buffer, tuple(x.start for x in r.ranges), ranges)
        *lead, last = (x.extent for x in r.ranges)
        sizes = (*lead[:-1], Const(1), lead[-1], last)
        return Region(self.panels[r.buffer], tuple(map(Range, start, sizes)))

    def registers(self, r: Region, ranges: Mapping[Var, Interval]) -> Region:
        """A thread's own sums of a box, half as many as the box has columns."""
        *lead, m, n = (simplify(x.start, ranges) for x in r.ranges)
        tile = floordiv(self.whole(r, m, 64, ranges), 64)
        first = floordiv(self.whole(r, n, _EIGHT, ranges), 2)
        *sizes, rows, columns = r.buffer.shape
        place: Expr = Const(0)
        for e, size in zip((*lead, tile), (*sizes, rows // 64), strict=True):
            place = add(mul(place, size), e)
        start = simplify(add(mul(place, columns // 2), first), ranges)
        count = (as_int(r.ranges[-1].extent) or 0) // 2
        return Region(self.sums[r.buffer], (Range(start, Const(count)),))

    def whole(self, r: Region, e: Expr, size: int, ranges: Mapping[Var, Interval]) -> Expr:
        """``e``, which is known to be a multiple of ``size``."""
        if as_int(simplify(floormod(e, size), ranges)) != 0:
            raise UnsupportedError(
                f"a tile of {r.buffer.name} does not start at a multiple of {size}",
                where=f"function {self.name}",
            )
        return e

    def product(self, s: Intrinsic, ranges: Mapping[Var, Interval]) -> Stmt:
        sums = self.registers(s.writes[0], ranges)
        inputs: list[Region] = []
        sizes: list[int] = []
        for r, turned in zip(s.reads[1:], s.args, strict=True):
            if r.buffer in self.sums:
                inputs.append(self.registers(r, ranges))
                continue
            start, d = self.operand(r, bool(turned), ranges)
            inputs.append(start)
            sizes += (d.swizzle, d.leading, d.stride)
        return Intrinsic(s.name, (sums,), (sums, *inputs), (*s.args, *sizes))

    def operand(
        self, r: Region, turned: bool, ranges: Mapping[Var, Interval]
    ) -> tuple[Region, Descriptor]:
        """Where an operand begins, and where the rest of it is."""
        b = self.panels[r.buffer]
        *lead, row, column = (simplify(x.start, ranges) for x in r.ranges)
        self.whole(r, row, _EIGHT, ranges)
        across = as_int(r.ranges[-1].extent) or 0
        self.whole(r, column, min(across, b.shape[-1]), ranges)
        start = self.at(r.buffer, (*lead, row, column), ranges)
        each = CHUNK // b.dtype.bytes
        box = (*(Range(e, Const(1)) for e in start[:-1]), Range(start[-1], Const(each)))
        pattern = b.swizzle * CHUNK
        found = Descriptor(pattern, b.shape[-2] * pattern, _EIGHT * pattern, turned)
        return Region(b, box), found

    def store(self, to: Region, words: Region, ranges: Mapping[Var, Interval]) -> Stmt:
        """Two pairs of neighbours, eight rows apart."""
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


def _landed(b: Buffer) -> Intrinsic:
    """The wait after which all sums may be touched."""
    every = (Region(b, tuple(Range(Const(0), Const(n)) for n in b.shape)),)
    return replace(wait(0), writes=every, reads=every)


def _word(words: Region, n: Expr | int) -> tuple[Expr, ...]:
    (only,) = words.ranges
    return (add(only.start, n),)
