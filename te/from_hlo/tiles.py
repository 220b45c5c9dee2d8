"""Sort rows with the threads of a GPU: tiles in shared memory, then passes that merge runs.

A tile is what one block of threads sorts. Each thread sorts a few neighbors by exchanging adjacent
elements; then runs are merged in pairs, ever longer ones. In each merge a thread writes as many
elements as before, and finds by bisection how many of those before them come from the first of the
two runs (a merge path). Rows of several tiles are merged in the same way, a launch per pass: a
block of threads finds its parts of both runs, takes them to shared memory, and merges them there.

Of a row of which only a few are wanted, each tile passes on its own first few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from ...ir.dtypes import DType
from ...ir.dtypes import index as index_type
from ...ir.loop.build import add, cast, compare, const, floormod, minimum, mul, op, select, sub
from ...ir.loop.nodes import Buffer, Expr, For, If, Kind, Load, Stmt, Store, Var
from ...ir.loop.notes import OPAQUE, STAGE_OF
from ...ir.loop.visit import lets, seq
from .. import blocks
from ..blocks import variables
from .emitter import Index
from .merge_path import (
    Before,
    RunPair,
    Steps,
    Values,
    exchanged,
    merged,
    split,
    split_in_turn,
    sum_type,
)
from .stages import Draft

ITEMS = 7  # neighbors of a thread; odd, so that threads of a warp access different banks
MOST = 512  # most threads of a tile
LEAST = 128  # least threads of a tile, if a row has several tiles
BLOCKS = 128  # blocks of threads below which tiles are made smaller to get more of them
SHARED = 1 << 16  # bytes of shared memory for the two halves of a tile

Source: TypeAlias = Callable[[Index, Expr], Values]
"""Returns the values of the element at a place of a row."""
Sink: TypeAlias = Callable[[Index, Expr, Expr, Values], Stmt]
"""Returns the stores of an element, given its row, its tile and its place in the tile."""


@dataclass(frozen=True, slots=True)
class Records:
    """Elements to sort: values that move together, of which the first ``compared`` are compared.

    ``fetch`` returns the values of the element at an index of the operand, ``put`` the stores to an
    index of the result. ``before`` takes compared values. ``sure`` is true if it is a strict weak
    order; otherwise the result is some permutation of the row.
    """

    dtypes: tuple[DType, ...]
    compared: int
    sure: bool
    fetch: Callable[[Index], Values]
    before: Before
    put: Callable[[Index, Values], Stmt]


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of ``n`` elements as tiles of ``threads`` times ``items``."""

    n: int
    threads: int
    items: int

    @property
    def size(self) -> int:
        """Elements of a tile."""
        return self.threads * self.items

    @property
    def tiles(self) -> int:
        """Tiles of a row, the last of which may have fewer elements."""
        return -(-self.n // self.size)

    def place(self, tile: Expr, i: Expr) -> Expr:
        """Return the place in the row."""
        return add(mul(tile, self.size), i)


def grid_of(rows: int, n: int, width: int) -> Grid:
    """Return the tiles of rows of ``n`` elements of ``width`` bytes."""
    most = MOST
    while 2 * most * ITEMS * width > SHARED and most > 1:
        most //= 2
    threads = -(-n // ITEMS)
    if threads <= most:
        return Grid(n, threads, -(-n // threads))
    even = 1 << max(rows * n // (ITEMS * BLOCKS) - 1, 0).bit_length()
    return Grid(n, min(most, max(LEAST, even)), ITEMS)


def sort_tiles(
    d: Draft, name: str, extents: Sequence[int], dim: int, r: Records, wanted: int
) -> None:
    """Sort rows along ``dim``, and put the first ``wanted`` of each; no extent is 0."""
    rows, n = tuple(e for i, e in enumerate(extents) if i != dim), extents[dim]
    width = sum(t.bytes for t in r.dtypes)

    def place(row: Index, p: Expr) -> Index:
        return (*row[:dim], p, *row[dim:])

    def operand(row: Index, p: Expr) -> Values:
        return r.fetch(place(row, p))

    source: Source = operand
    while (g := grid_of(math.prod(rows), n, width)).tiles > 1 and 2 * wanted <= g.size:
        kept = _buffers(d, f"{name}_first", (*rows, g.tiles * wanted), r)
        _Launch.of(d, name, rows, g, r).sort(source, wanted, _into(kept, wanted))
        n = (g.tiles - 1) * wanted + min(wanted, n - (g.tiles - 1) * g.size)
        source = _from(kept)

    def result(row: Index, tile: Expr, i: Expr, values: Values) -> Stmt:
        p = g.place(tile, i)
        put = r.put(place(row, p), values)
        return put if g.tiles == 1 else If(compare("lt", p, const(wanted)), put)

    if g.tiles == 1:
        _Launch.of(d, name, rows, g, r).sort(source, wanted, result)
        return
    passes = (g.tiles - 1).bit_length()
    halves = [
        _buffers(d, f"{name}_half{n}", (*rows, g.tiles * g.size), r) for n in range(min(passes, 2))
    ]
    _Launch.of(d, name, rows, g, r).sort(source, g.size, _into(halves[0], g.size))
    for n in range(passes):
        sink = result if n == passes - 1 else _into(halves[(n + 1) % 2], g.size)
        _Launch.of(d, name, rows, g, r).merge(_from(halves[n % 2]), 1 << n, sink)


def _buffers(d: Draft, name: str, shape: Sequence[int], r: Records) -> list[Buffer]:
    name = d.fresh(name)
    return [d.alloc(f"{name}_{i}", shape, t) for i, t in enumerate(r.dtypes)]


def _into(buffers: Sequence[Buffer], size: int) -> Sink:
    """Keep ``size`` elements of each tile, one tile behind the other."""

    def sink(row: Index, tile: Expr, i: Expr, values: Values) -> Stmt:
        return blocks.stores(buffers, (*row, add(mul(tile, size), i)), values)

    return sink


def _from(buffers: Sequence[Buffer]) -> Source:
    return lambda row, p: [Load(b, (*row, p)) for b in buffers]


@dataclass(frozen=True, slots=True)
class _Launch:
    """The stages of one launch, which share rows and tiles; ``number`` identifies the launch.

    ``wide`` are the dimensions of rows that are longer than 1. ``outer`` are the extents that all
    stages share: those of these dimensions, and the tiles. Stages move elements from one of the
    ``halves`` to the other.
    """

    d: Draft
    name: str
    rows: tuple[int, ...]
    g: Grid
    r: Records
    number: int
    wide: tuple[int, ...]
    outer: tuple[int, ...]
    halves: tuple[list[Buffer], list[Buffer]]

    @staticmethod
    def of(d: Draft, name: str, rows: tuple[int, ...], g: Grid, r: Records) -> _Launch:
        """Return a new launch, with buffers for its tiles."""
        d.launches += 1
        wide = tuple(n for n, e in enumerate(rows) if e > 1)
        outer = (*(rows[n] for n in wide), *((g.tiles,) if g.tiles > 1 or not wide else ()))
        one, other = (_buffers(d, f"{name}_tile", (*outer, g.size), r) for _ in range(2))
        return _Launch(
            d=d,
            name=name,
            rows=rows,
            g=g,
            r=r,
            number=d.launches,
            wide=wide,
            outer=outer,
            halves=(one, other),
        )

    def other(self, held: list[Buffer]) -> list[Buffer]:
        """Return the other half than ``held``."""
        return self.halves[held is self.halves[0]]

    def stage(self, name: str, columns: int, body: Callable[[Index, Expr, Expr], Stmt]) -> None:
        """Append a block with an instance for each column of each tile."""
        axes = self.d.emitter.spatial((*self.outer, columns))
        at = variables(axes)
        own = dict(zip(self.wide, at, strict=False))
        row = tuple(own.get(n, const(0)) for n in range(len(self.rows)))
        tile = at[-2] if self.g.tiles > 1 else const(0)
        notes = MappingProxyType({**OPAQUE.alone(1), **STAGE_OF.alone(self.number)})
        made = blocks.nest(self.d.fresh(name), axes, body(row, tile, at[-1]), notes=notes)
        self.d.body.append(made)

    def at(self, row: Index, tile: Expr, i: Expr) -> Index:
        """Return the index of an element in the buffers of a tile."""
        own = tuple(row[n] for n in self.wide)
        return (*own, tile, i) if len(own) < len(self.outer) else (*own, i)

    def count(self, tile: Expr) -> Expr:
        """Return the elements of a tile that exist."""
        g = self.g
        return const(g.size) if g.n % g.size == 0 else minimum(g.size, sub(g.n, mul(tile, g.size)))

    def inside(self, p: Expr) -> Expr:
        """Return a place, or the last one of the row."""
        return p if self.g.n % self.g.size == 0 else minimum(p, self.g.n - 1)

    def sort(self, source: Source, columns: int, sink: Sink) -> None:
        """Append the stages that sort every tile and keep its first ``columns`` elements."""
        held = self.halves[0]

        def fetch(row: Index, tile: Expr, i: Expr) -> Stmt:
            values = source(row, self.inside(self.g.place(tile, i)))
            return blocks.stores(held, self.at(row, tile, i), values)

        self.stage(f"{self.name}_fetch", self.g.size, fetch)
        if self.g.items > 1:
            held = self.neighbors(held)
        for level in range((self.g.threads - 1).bit_length()):
            held = self.level(held, 1 << level)
        self.write(held, columns, sink)

    def write(self, held: Sequence[Buffer], columns: int, sink: Sink) -> None:
        """Append the stage that passes the first ``columns`` elements of each tile to ``sink``."""

        def write(row: Index, tile: Expr, i: Expr) -> Stmt:
            return sink(row, tile, i, [Load(h, self.at(row, tile, i)) for h in held])

        self.stage(f"{self.name}_write", columns, write)

    def neighbors(self, held: list[Buffer]) -> list[Buffer]:
        """Append the stage in which each thread sorts its elements, in registers."""
        out, items = self.other(held), self.g.items
        name = self.d.fresh(f"{self.name}_own")
        own = [self.d.register(f"{name}_{i}", (items,), b.dtype) for i, b in enumerate(out)]
        n, turn, k = self.d.loop(items), self.d.loop(-(-items // 2)), self.d.loop(items)

        def run(row: Index, tile: Expr, t: Expr) -> Stmt:
            first = mul(t, items)
            near, far = (self.at(row, tile, add(first, x)) for x in (n, k))
            loads = [Store(o, (n,), Load(h, near)) for o, h in zip(own, held, strict=True)]
            stores = [Store(h, far, Load(o, (k,))) for o, h in zip(own, out, strict=True)]
            valid = sub(self.count(tile), first)
            return seq(
                For(n, const(items), seq(*loads), Kind.UNROLLED),
                exchanged(own, valid, turn, self.r.before, self.r.compared),
                For(k, const(items), seq(*stores), Kind.UNROLLED),
            )

        self.stage(f"{self.name}_run", self.g.threads, run)
        return out

    def level(self, held: list[Buffer], width: int) -> list[Buffer]:
        """Append the stage that merges the runs of ``width`` threads in pairs."""
        items = self.g.items

        def runs(row: Index, tile: Expr, t: Expr) -> list[Expr]:
            count = self.count(tile)
            base = mul(sub(t, floormod(t, 2 * width)), items)
            return [minimum(add(base, n * width * items), count) for n in range(3)]

        return self.steps(held, runs, width * items, 2 * width)

    def pair(self, name: str, limit: int, longest: int, at: Callable[[Expr], Values]) -> RunPair:
        """Return a pair of runs with new variables, and registers for a thread's bisection."""
        dtype = sum_type(limit)
        heads, ends = (
            self.d.register(self.d.fresh(f"{self.name}_{name}_{x}"), (2,), dtype)
            for x in ("heads", "ends")
        )
        base, middle, end = (Var(v, dtype) for v in ("base", "middle", "end"))
        r = self.r
        return RunPair(
            base=base,
            middle=middle,
            end=end,
            at=at,
            before=r.before,
            compared=r.compared,
            limit=limit,
            longest=longest,
            heads=heads,
            ends=ends,
        )

    def steps(
        self,
        held: list[Buffer],
        runs: Callable[[Index, Expr, Expr], list[Expr]],
        longest: int,
        units: int,
    ) -> list[Buffer]:
        """Append a stage in which each thread writes its elements of a pair of runs, merged.

        The pair is shared by ``units`` threads, a power of two.
        """
        out, items, r = self.other(held), self.g.items, self.r
        front = [
            self.d.register(self.d.fresh(f"{self.name}_front"), (2,), t)
            for t in r.dtypes[: r.compared]
        ]
        level, search, step = (
            self.d.loop(n) for n in ((units - 1).bit_length(), longest.bit_length(), items)
        )

        def merge(row: Index, tile: Expr, t: Expr) -> Stmt:
            def at(p: Expr) -> Values:
                return [Load(h, self.at(row, tile, p)) for h in held]

            def write(j: Expr, values: Values) -> Stmt:
                to = self.at(row, tile, add(mul(t, items), j))
                return seq(*(Store(o, to, x) for o, x in zip(out, values, strict=True)))

            p = self.pair("merge", self.g.size, longest, at)
            unit, taken, first = (Var(v, p.heads.dtype) for v in ("unit", "taken", "merged"))
            names = [*_named((p.base, p.middle, p.end), runs(row, tile, t))]
            names += _named((unit,), (floormod(t, units),))
            if r.sure:
                found, of, ends = split(p, unit, items, search), p.heads, (p.middle, p.end)
            else:
                found, of = split_in_turn(p, unit, items, units, level, search), p.ends
                last = p.merged_before(op("add", unit, p.number(1)), items)
                till = Load(p.ends, (const(1),))
                ends = op("add", p.base, till), op("add", p.middle, op("subtract", last, till))
            s = Steps(front, *ends, step, items, write)
            known = [(taken, Load(of, (const(0),))), (first, p.merged_before(unit, items))]
            return lets(names, seq(found, lets(known, merged(p, first, taken, s))))

        self.stage(f"{self.name}_merge", self.g.threads, merge)
        return out

    def merge(self, source: Source, width: int, sink: Sink) -> None:
        """Append the stages that merge runs of ``width`` tiles in pairs."""
        g, dtype = self.g, sum_type(self.g.n)
        parts = self.d.alloc(self.d.fresh(f"{self.name}_parts"), (*self.outer, 2), dtype)
        level, search = self.d.loop(width.bit_length()), self.d.loop((width * g.size).bit_length())

        def runs(tile: Expr) -> list[Expr]:
            base = mul(sub(tile, floormod(tile, 2 * width)), g.size)
            return [minimum(add(base, n * width * g.size), g.n) for n in range(3)]

        def find(row: Index, tile: Expr, which: Expr) -> Stmt:
            p = self.pair("split", g.n, width * g.size, lambda at: source(row, at))
            names = _named((p.base, p.middle, p.end), runs(tile))
            own, keep = floormod(tile, 2 * width), self.at(row, tile, which)
            if self.r.sure:
                unit = cast(add(own, which), dtype)
                kept = Store(parts, keep, Load(p.heads, (const(0),)))
                return lets(names, seq(split(p, unit, g.size, search), kept))
            found = split_in_turn(p, cast(own, dtype), g.size, 2 * width, level, search)
            both = [Load(p.ends, (const(n),)) for n in range(2)]
            last = compare("eq", which, const(1))
            return lets(names, seq(found, Store(parts, keep, select(last, both[1], both[0]))))

        def taken(row: Index, tile: Expr) -> list[Expr]:
            ends = (Load(parts, self.at(row, tile, const(n))) for n in range(2))
            return [cast(x, index_type) for x in ends]

        held = self.halves[0]

        def fetch(row: Index, tile: Expr, i: Expr) -> Stmt:
            left, till, base, middle = (Var(v) for v in ("left", "till", "base", "middle"))
            behind = sub(add(middle, mul(tile, g.size)), add(base, till))
            p = select(compare("lt", add(left, i), till), add(add(base, left), i), add(behind, i))
            values = source(row, minimum(p, g.n - 1))
            known = [*taken(row, tile), *runs(tile)[:2]]
            names = [*zip((left, till, base, middle), known, strict=True)]
            return lets(names, blocks.stores(held, self.at(row, tile, i), values))

        def within(row: Index, tile: Expr, t: Expr) -> list[Expr]:
            first, last = taken(row, tile)
            here = sub(runs(tile)[2], mul(tile, g.size))
            return [const(0), sub(last, first), minimum(here, g.size)]

        self.stage(f"{self.name}_split", 2, find)
        self.stage(f"{self.name}_fetch", g.size, fetch)
        units = 1 << (g.threads - 1).bit_length()
        self.write(self.steps(held, within, g.size, units), g.size, sink)


def _named(names: Sequence[Expr], values: Sequence[Expr]) -> list[tuple[Var, Expr]]:
    """Pair variables of places with values, converted from indices to their type."""
    pairs = zip(names, values, strict=True)
    return [(v, cast(x, v.dtype)) for v, x in pairs if isinstance(v, Var)]
