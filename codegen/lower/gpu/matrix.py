"""Matrix tiles of a warp become the words that each of its threads holds.

A warp's buffer becomes registers, four words for every tile; ``load_matrix`` becomes ``ldmatrix``,
whose rows the lanes point to (or loads of single elements, where rows are the wrong way round);
``store_matrix`` becomes stores of pairs. Who holds what is PTX's business (``fragments.Matrix``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....ir.dtypes import DType, f32, u8, u16, u32
from ....ir.errors import UnsupportedError
from ....ir.loop.affine import Interval, loop_range
from ....ir.loop.build import (
    add,
    as_int,
    cast,
    compare,
    floordiv,
    floormod,
    mul,
    op,
    points,
    select,
    zero_of,
)
from ....ir.loop.intrinsics import HELD_COLUMNS, HELD_ROWS, TF32_SCALE
from ....ir.loop.nodes import (
    CHUNK,
    Alloc,
    Buffer,
    Cast,
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
from ....ir.loop.simplify import simplify
from ....ir.loop.visit import map_expr, map_stmt, seq, walk
from ....schedule.fragments import is_grid_of_lanes
from ..passes.launches import each_launch
from ..passes.layout import offset
from .products.panels import tile_start

WORDS = 4  # that a thread holds of each tile
_BITS: Mapping[int, DType] = {1: u8, 2: u16, 4: u32}


def lower_matrices(func: Func) -> Func:
    """Return the function with lane-level matrix operations; its warps' buffers are registers."""
    return each_launch(func, lambda s: _in_launch(s, func.name))


def _in_launch(s: For, name: str) -> Stmt:
    tiles = _tiles(s, name)
    if not tiles:
        return s
    threads = {x.thread: x for x in walk(s) if isinstance(x, For) and x.kind is Kind.THREAD}
    lane = threads["threadIdx.x"].var
    grid = {t: as_int(x.extent) or 1 for t, x in threads.items()}
    if not is_grid_of_lanes(grid):
        return _Lanes(name, lane, None, tiles).stmt(s, {})
    held = threads["threadIdx.y"].var, lane
    return _Lanes(name, add(mul(held[0], HELD_COLUMNS), held[1]), held, tiles).stmt(s, {})


@dataclass(frozen=True, slots=True)
class Tiles:
    """A warp's buffer cut into tiles of ``rows`` x ``columns``; ``words`` holds them.

    ``turned`` says that a tile of operands has k first.
    """

    role: str  # a, b or c
    rows: int
    columns: int
    turned: bool
    words: Buffer


def _tiles(s: Stmt, name: str) -> dict[Buffer, Tiles]:
    found: dict[Buffer, Tiles] = {}
    for x in walk(s):
        if not isinstance(x, Intrinsic):
            continue
        for buffer, role, turned in _roles(x):
            made = _cut(buffer, role, turned, name)
            known = found.setdefault(buffer, made)
            if (known.role, known.turned) != (role, turned):
                raise UnsupportedError(
                    f"buffer {buffer.name} is used as a matrix in two ways",
                    f"as {known.role} and as {role}: threads hold them differently",
                    f"function {name}",
                )
    return found


def _roles(s: Intrinsic) -> Iterator[tuple[Buffer, str, bool]]:
    """Yield the warp's buffers of a call, what they hold, and whether it is turned."""
    match s.name:
        case "load_matrix_a" | "load_matrix_b":
            yield s.writes[0].buffer, s.name[-1], bool(s.args[0])
        case "zero_matrix":
            yield s.writes[0].buffer, "c", False
        case "store_matrix":
            yield s.reads[0].buffer, "c", False
        case name if name.startswith("mma.") and s.args:
            yield s.writes[0].buffer, "c", False
            for r, role, turned in zip(s.reads, "cab", (0, *s.args), strict=True):
                yield r.buffer, role, bool(turned)


def _cut(b: Buffer, role: str, turned: bool, name: str) -> Tiles:
    deep = 2 * CHUNK // b.dtype.bytes
    rows, columns = (16, 8) if role == "c" else (16, deep)
    if turned:
        rows, columns = columns, rows
    *lead, m, n = b.shape
    if m % rows or n % columns:
        raise UnsupportedError(
            f"buffer {b.name}{list(b.shape)} does not hold whole tiles of {rows} x {columns}",
            where=f"function {name}",
        )
    dtype = b.dtype if role == "c" else u32
    shape = (*lead, m // rows, n // columns, WORDS)
    return Tiles(role, rows, columns, turned, Buffer(b.name, shape, dtype, Scope.REGISTER))


@dataclass(frozen=True)
class _Lanes:
    """Rewrites a launch. ``lane`` is the thread's place in its warp.

    ``held`` are the thread's row and pair of columns, where it may access by itself what it holds.
    """

    name: str
    lane: Expr
    held: tuple[Var, Var] | None
    tiles: Mapping[Buffer, Tiles]

    def stmt(self, s: Stmt, ranges: Mapping[Var, Interval]) -> Stmt:
        match s:
            case Intrinsic():
                return self.intrinsic(s, ranges)
            case Alloc(buffer=b, body=body) if b in self.tiles:
                return Alloc(self.tiles[b].words, self.stmt(body, ranges))
            case Store(buffer=b) if b in self.tiles:
                return self.keep(s, ranges)
            case For(var=var, extent=extent):
                ranges = {**ranges, var: loop_range(extent, ranges)}
        return map_stmt(s, lambda c: self.stmt(c, ranges), lambda e: self.expr(e, ranges))

    def expr(self, e: Expr, ranges: Mapping[Var, Interval]) -> Expr:
        """Return ``e`` with elements of tiles as the (parts of) words that the thread holds."""
        e = map_expr(e, lambda x: self.expr(x, ranges))
        if not isinstance(e, Load) or e.buffer not in self.tiles:
            return e
        t, (word, part) = self.tiles[e.buffer], self.place(e.buffer, e.index, ranges)
        if part is None:
            return Load(t.words, word)
        bits = op("shift-right-logical", Load(t.words, word), _shift(part))
        return Cast(cast(bits, u16), e.buffer.dtype, bits=True)

    def keep(self, s: Store, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return a store of what the thread holds; of two parts of a word the low one is first."""
        t, (word, part) = self.tiles[s.buffer], self.place(s.buffer, s.index, ranges)
        value = self.expr(s.value, ranges)
        if part is None:
            return Store(t.words, word, value)
        bits = op("shift-left", cast(Cast(value, u16, bits=True), u32), _shift(part))
        low = select(compare("eq", part, 0), Const(0, u32), Load(t.words, word))
        return Store(t.words, word, op("or", low, bits))

    def place(
        self, b: Buffer, index: tuple[Expr, ...], ranges: Mapping[Var, Interval]
    ) -> tuple[tuple[Expr, ...], Expr | None]:
        """Return the index of the words with an element, and its half of a word, if it is one."""
        t, (*lead, m, n) = self.tiles[b], index
        row = simplify(floormod(m, HELD_ROWS), ranges)
        pair = simplify(floordiv(floormod(n, 2 * HELD_COLUMNS), 2), ranges)
        narrow = t.role != "c"
        if self.held != (row, pair) or t.turned or (narrow and b.dtype.bytes != 2):
            raise UnsupportedError(
                f"an element of {b.name} is accessed by a thread that may not hold it",
                "threads hold pairs of columns of every eighth row",
                f"function {self.name}",
                "bind the loops over 8 rows to threadIdx.y and over 4 pairs to threadIdx.x",
            )
        down, part = floordiv(floormod(m, t.rows), HELD_ROWS), floormod(n, 2)
        along = floordiv(floormod(n, t.columns), 2 * HELD_COLUMNS)
        word = add(down, mul(along, 2)) if narrow else add(mul(down, 2), part)
        at = (*lead, floordiv(m, t.rows), floordiv(n, t.columns), word)
        found = tuple(simplify(e, ranges) for e in at)
        return found, simplify(part, ranges) if narrow else None

    def intrinsic(self, s: Intrinsic, ranges: Mapping[Var, Interval]) -> Stmt:
        match s.name:
            case "zero_matrix":
                to = self.words(s.writes[0], ranges)
                zero = zero_of(to.buffer.dtype)
                return seq(*(Store(to.buffer, _word(to, n), zero) for n in range(WORDS)))
            case "load_matrix_a" | "load_matrix_b":
                return self.load(s.writes[0], s.reads[0], ranges)
            case "store_matrix":
                return self.store(s.writes[0], self.words(s.reads[0], ranges))
            case name if name.startswith("mma.") and s.args:
                writes = tuple(self.words(r, ranges) for r in s.writes)
                reads = tuple(self.words(r, ranges) for r in s.reads)
                return Intrinsic(name, writes, reads)
            case _:
                return s

    def words(self, r: Region, ranges: Mapping[Var, Interval]) -> Region:
        """Return the words of a box of tiles: four of a whole one, two of half a tile of b."""
        t = self.tiles[r.buffer]
        *lead, m, n = (simplify(x.start, ranges) for x in r.ranges)
        first, count = Const(0), WORDS
        if t.role == "b" and as_int(r.ranges[-1 if t.turned else -2].extent) == 8:
            half = n if t.turned else m
            part = simplify(mul(floordiv(floormod(half, 16), 8), 2), ranges)
            m, n = (
                (m, tile_start(r, half, 8, ranges, self.name))
                if t.turned
                else (tile_start(r, half, 8, ranges, self.name), n)
            )
            at = simplify(floordiv(m, t.rows), ranges), simplify(floordiv(n, t.columns), ranges)
            return _region(t.words, (*lead, *at), part, 2)
        at = (
            simplify(floordiv(tile_start(r, m, t.rows, ranges, self.name), t.rows), ranges),
            simplify(floordiv(tile_start(r, n, t.columns, ranges, self.name), t.columns), ranges),
        )
        return _region(t.words, (*lead, *at), first, count)

    def load(self, to: Region, of: Region, ranges: Mapping[Var, Interval]) -> Stmt:
        t = self.tiles[to.buffer]
        words = self.words(to, ranges)
        each = CHUNK // of.buffer.dtype.bytes
        row, column = self.row(t, each)
        *lead, m, n = (x.start for x in of.ranges)
        start = (*lead, add(m, row), add(n, column))
        aligned = as_int(simplify(floormod(offset(of.buffer, start), each), {**ranges}))
        if aligned != 0 or (t.turned and of.buffer.dtype.bytes != 2):
            return seq(self.elements(t, words, of), *_rounded(words, of.buffer.dtype))
        box = (*points(start[:-1]), Range(start[-1], Const(each)))
        name = "ldmatrix.x4.trans" if t.turned else "ldmatrix.x4"
        loaded = Intrinsic(name, (words,), (Region(of.buffer, box),))
        return seq(loaded, *_rounded(words, of.buffer.dtype))

    def row(self, t: Tiles, each: int) -> tuple[Expr, Expr]:
        """Return the index in the tile at which the row begins that this lane points to.

        The four matrices of ``ldmatrix`` are the words' in order; their 16-byte rows lie along the
        tile's rows.
        """
        within, high = floormod(self.lane, 8), floordiv(self.lane, 16)
        low = floormod(floordiv(self.lane, 8), 2)
        down, along = (low, high) if (t.role == "a") != t.turned else (high, low)
        return add(mul(down, 8), within), mul(along, each)

    def elements(self, t: Tiles, words: Region, of: Region) -> Stmt:
        """Return each word put together from the elements that belong there."""
        *lead, m, n = (x.start for x in of.ranges)
        per = 4 // of.buffer.dtype.bytes
        stores: list[Stmt] = []
        for w in range(WORDS):
            down, along = (w % 2, w // 2) if t.role == "a" else (w // 2, w % 2)
            r = add(floordiv(self.lane, 4), 8 * down)
            value: Expr | None = None
            for part in range(per):
                k = add(mul(add(floormod(self.lane, 4), 4 * along), per), part)
                i, j = (k, r) if t.turned else (r, k)
                bits = _BITS[of.buffer.dtype.bytes]
                one: Expr = Cast(Load(of.buffer, (*lead, add(m, i), add(n, j))), bits, bits=True)
                one = cast(one, u32)
                if part:
                    one = op("shift-left", one, Const(32 // per * part, u32))
                value = one if value is None else op("or", value, one)
            assert value is not None
            stores.append(Store(words.buffer, _word(words, w), value))
        return seq(*stores)

    def store(self, to: Region, words: Region) -> Stmt:
        """Return a thread's stores: two pairs of neighbors, eight rows apart."""
        *lead, m, n = (x.start for x in to.ranges)
        stores: list[Stmt] = []
        for half in range(2):
            v = Var("v")
            row = add(add(m, floordiv(self.lane, 4)), 8 * half)
            column = add(add(n, mul(floormod(self.lane, 4), 2)), v)
            value = Load(words.buffer, _word(words, add(v, 2 * half)))
            body = Store(to.buffer, (*lead, row, column), value)
            stores.append(For(v, Const(2), body, Kind.VECTOR))
        return seq(*stores)


def _rounded(words: Region, dtype: DType) -> Iterator[Stmt]:
    """Yield the scaling of f32 words by which what tensor cores cut off rounds them."""
    for n in range(WORDS) if dtype == f32 else ():
        word = _word(words, n)
        number = Cast(Load(words.buffer, word), f32, bits=True)
        scaled = op("multiply", number, Const(TF32_SCALE, f32))
        yield Store(words.buffer, word, Cast(scaled, u32, bits=True))


def _shift(part: Expr) -> Expr:
    """Return the place of the first bit of a half of a word."""
    return cast(mul(part, 16), u32)


def _word(words: Region, n: Expr | int) -> tuple[Expr, ...]:
    *lead, last = (x.start for x in words.ranges)
    return (*lead, add(last, n))


def _region(b: Buffer, at: tuple[Expr, ...], first: Expr, count: int) -> Region:
    return Region(b, (*points(at), Range(first, Const(count))))
