"""The stages of a Fourier transform, and what goes before and after them for real rows.

Stages of Stockham's kind (Cochran et al., What Is the Fast Fourier Transform?, 1967) go from one
scratch buffer to another and leave the numbers in order. A stage of radix r takes r numbers into
registers, transforms them and turns what comes of it.

A real row of even length is a complex one of half the length, whose spectrum is told apart into
those of the numbers at even and at odd places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ...ir.loop.build import add, const, mul, op, sub
from ...ir.loop.nodes import Buffer, Expr, Kind, Load, Stmt, Store, Var
from ...ir.loop.visit import lets, seq
from .butterflies import Butterfly, Complex
from .rows import Rows, radices
from .strip import Strip

T = TypeVar("T")

Read: TypeAlias = Callable[[Butterfly, int, Expr], Complex]
"""Gives the number of a leg, in a lane."""

Write: TypeAlias = Callable[[int, Expr, Complex], Stmt]
"""Takes the number of a leg, in a lane."""

Legs: TypeAlias = Callable[[Expr, Expr], T]
"""Gives what reads or writes the legs for p and q."""


def transformed(strip: Strip, name: str, roots: Buffer, factors: Buffer | None = None) -> Stmt:
    """Return the transform of a strip of rows; ``name`` begins those of its scratch buffers.

    ``roots`` are ``exp(-2 pi i k / n)`` for the length n, as ``[n, 2]``; results that lie side by
    side are multiplied by ``factors``, ``[n, rows, 2]``.
    """
    return _Transform(strip, name, roots, factors).body()


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage of ``radix``, after stages whose radices multiply to ``done``, ``left`` to come.

    For p below ``left`` and q below ``done`` it transforms the numbers at ``source(p, q, j)`` to
    those at ``target(p, q, k)``, for all j and k below the radix.
    """

    radix: int
    done: int
    left: int

    def source(self, p: Expr, q: Expr, j: int) -> Expr:
        """Return the place of a number to read."""
        return add(q, mul(add(p, self.left * j), self.done))

    def target(self, p: Expr, q: Expr, k: int) -> Expr:
        """Return the place of a number to write."""
        return add(q, mul(add(mul(p, self.radix), k), self.done))


def _stages(n: int) -> list[_Stage]:
    found, done = [], 1
    for r in radices(n):
        found.append(_Stage(r, done, n // (done * r)))
        done *= r
    return found


@dataclass(frozen=True, slots=True)
class _Transform:
    """The arguments of ``transformed``."""

    strip: Strip
    name: str
    roots: Buffer
    factors: Buffer | None = None

    @property
    def rows(self) -> Rows:
        """Return the rows of the strip."""
        return self.strip.rows

    def body(self) -> Stmt:
        """Return all of it, by way of two scratch buffers."""
        rows, strip = self.rows, self.strip
        shape = (2 * max(rows.points, rows.half), rows.lanes)
        here, there = (
            strip.draft.alloc(f"{self.name}_{k}", shape, rows.dtype) for k in ("even", "odd")
        )
        first, *others = _stages(rows.points)
        parts = [*self._begun(first, here, there)]
        here, there = there, here
        for stage in others:
            parts.append(self._all(stage, self._out_of(stage, here), self._into(stage, there)))
            here, there = there, here
        if rows.kind == "RFFT" and rows.halved:
            parts.append(self._told_apart(here, there))
            here, there = there, here
        return seq(*parts, strip.guarded(lambda guard: self._written(here, guard)))

    # stages

    def _all(self, stage: _Stage, read: Legs[Read], write: Legs[Write]) -> Stmt:
        """Return a stage for all p and q."""

        def turned(p: Expr) -> Stmt:
            names, turns = self._turns(stage, p)
            each = self.strip.each(
                stage.done, lambda q: self._butterfly(stage, read(p, q), write(p, q), turns)
            )
            return lets(names, each)

        return self.strip.each(stage.left, turned)

    def _turns(self, stage: _Stage, p: Expr) -> tuple[list[tuple[Var, Expr]], list[Complex]]:
        """Return the roots by which a stage turns its results but the first, and their names."""
        rows = self.rows
        names: list[tuple[Var, Expr]] = []
        found: list[Complex] = []
        apart = rows.length // rows.points * stage.done
        for k in range(1, stage.radix) if stage.left > 1 else ():
            pair = Var("w", rows.dtype), Var("w", rows.dtype)
            names += zip(pair, self._root(mul(p, k * apart)), strict=True)
            found.append((pair[0], pair[1]))
        return names, found

    def _butterfly(self, stage: _Stage, read: Read, write: Write, turns: Sequence[Complex]) -> Stmt:
        """Transform the legs in all lanes.

        The inverse is a transform with the parts exchanged before the first stage and after the
        last.
        """
        rows = self.rows

        def in_lane(lane: Expr) -> Stmt:
            fly = Butterfly(rows.dtype)
            values = [read(fly, j, lane) for j in range(stage.radix)]
            if rows.inverse and stage.done == 1:
                values = [(im, re) for re, im in values]
            found = fly.transform(values)
            for k, root in enumerate(turns, 1):
                found[k] = fly.multiply(found[k], root)
            if rows.inverse and stage.left == 1:
                scale = fly.number(1 / rows.points)
                found = [(im, re) for re, im in (fly.scaled(v, scale) for v in found)]
            stores = [write(k, lane, v) for k, v in enumerate(found)]
            return lets(fly.names, seq(*stores))

        return self.strip.lanes(in_lane)

    def _root(self, power: Expr) -> Complex:
        """Return a power of the root of unity for the length, below the length."""
        return Load(self.roots, (power, const(0))), Load(self.roots, (power, const(1)))

    def _out_of(self, stage: _Stage, scratch: Buffer) -> Legs[Read]:
        def legs(p: Expr, q: Expr) -> Read:
            return lambda fly, j, lane: self.strip.loaded(fly, scratch, stage.source(p, q, j), lane)

        return legs

    def _into(self, stage: _Stage, scratch: Buffer) -> Legs[Write]:
        def legs(p: Expr, q: Expr) -> Write:
            return lambda k, lane, v: self.strip.stored(scratch, stage.target(p, q, k), lane, v)

        return legs

    # from memory

    def _begun(self, stage: _Stage, here: Buffer, there: Buffer) -> Iterator[Stmt]:
        """Yield the first stage, to ``there``, after what it needs."""
        rows, strip = self.rows, self.strip
        read = self._out_of(stage, here)
        match rows.kind:
            case "IRFFT":
                yield strip.fetched(here, 2 * rows.half)
                yield self._real(here, 0)
                if rows.halved:
                    yield self._real(here, rows.points)
                    read = self._woven(stage, here)
                else:
                    yield self._mirrored(here)
            case "RFFT" if not rows.halved:
                yield strip.each(rows.length, lambda p: self._real(here, p))
                yield strip.fetched(here, rows.length, step=2)
            case _ if rows.along == 1:
                read = self._from_memory(stage)
            case _:
                yield strip.fetched(here, 2 * rows.points)
        yield self._all(stage, read, self._into(stage, there))

    def _from_memory(self, stage: _Stage) -> Legs[Read]:
        """Read rows that lie side by side in memory."""
        rows, strip = self.rows, self.strip

        def legs(p: Expr, q: Expr) -> Read:
            def read(fly: Butterfly, j: int, lane: Expr) -> Complex:
                at, source = (strip.outer, stage.source(p, q, j), strip.nearest(lane)), rows.source
                parts: list[Expr]
                if isinstance(source, Buffer):
                    parts = [Load(source, (*at, const(k))) for k in range(2)]
                else:
                    parts = [element(at) for element in source]
                return fly.named(parts[0]), fly.named(parts[1])

            return read

        return legs

    def _real(self, scratch: Buffer, place: Expr | int) -> Stmt:
        """Make the number at a place real."""
        at, zero = add(mul(place, 2), 1), const(0.0, self.rows.dtype)
        return self.strip.lanes(lambda lane: Store(scratch, (at, lane), zero))

    def _mirrored(self, scratch: Buffer) -> Stmt:
        """Complete the spectrum of a real row of odd length."""
        rows, strip = self.rows, self.strip

        def pair(k: Expr, lane: Expr) -> Stmt:
            fly = Butterfly(rows.dtype)
            re, im = strip.loaded(fly, scratch, k, lane)
            value = re, fly.named(op("negate", im))
            return lets(fly.names, strip.stored(scratch, sub(rows.length, k), lane, value))

        return strip.each(rows.half - 1, lambda k: strip.lanes(lambda lane: pair(add(k, 1), lane)))

    def _woven(self, stage: _Stage, scratch: Buffer) -> Legs[Read]:
        """Read ``Z[k] = E[k] + i O[k]`` of half a spectrum: the inverse of ``_told_apart``."""

        def legs(p: Expr, q: Expr) -> Read:
            def read(fly: Butterfly, j: int, lane: Expr) -> Complex:
                k = stage.source(p, q, j)
                even, odd = self._halves(fly, scratch, k, lane)
                re, im = self._root(k)
                re, im = fly.multiply(odd, (re, op("negate", im)))
                return fly.add(even, (op("negate", im), re))

            return read

        return legs

    def _halves(
        self, fly: Butterfly, scratch: Buffer, k: Expr, lane: Expr
    ) -> tuple[Complex, Complex]:
        """Return half the sum and half the difference of numbers k and n - k, this conjugate."""
        other = sub(self.rows.points, k)
        (a, b), (c, e) = (self.strip.loaded(fly, scratch, at, lane) for at in (k, other))
        by = fly.number(0.5)
        total = op("add", a, c), op("subtract", b, e)
        gap = op("subtract", a, c), op("add", b, e)
        return fly.scaled(total, by), fly.scaled(gap, by)

    # to memory

    def _told_apart(self, source: Buffer, target: Buffer) -> Stmt:
        """Compute ``X[k] = E[k] + w^k O[k]`` from the spectra of the even and the odd places."""
        rows, strip = self.rows, self.strip

        def again(lane: Expr) -> Stmt:
            fly = Butterfly(rows.dtype)
            value = strip.loaded(fly, source, const(0), lane)
            return lets(fly.names, strip.stored(source, const(rows.points), lane, value))

        def number(k: Expr, lane: Expr) -> Stmt:
            fly = Butterfly(rows.dtype)
            even, (re, im) = self._halves(fly, source, k, lane)
            odd = fly.multiply((im, op("negate", re)), self._root(k))
            return lets(fly.names, strip.stored(target, k, lane, fly.add(even, odd)))

        each = strip.each(rows.half, lambda k: strip.lanes(lambda lane: number(k, lane)))
        return seq(strip.lanes(again), each)

    def _written(self, scratch: Buffer, guard: bool) -> Stmt:
        """Write what is in scratch."""
        rows, strip = self.rows, self.strip
        if rows.to == 2:
            spectrum, step = rows.kind == "RFFT", 1 + (rows.kind == "IRFFT" and not rows.halved)
            count = 2 * (rows.half if spectrum else rows.points) // step
            return strip.written(scratch, count, guard, step)
        kind = Kind.SERIAL if guard else Kind.VECTOR
        return strip.each(
            rows.length,
            lambda p: strip.lanes(lambda lane: self._put(scratch, p, lane, guard), kind),
        )

    def _put(self, scratch: Buffer, place: Expr, lane: Expr, guard: bool) -> Stmt:
        """Write a number of a row, of those that lie side by side in memory."""
        fly, row = Butterfly(self.rows.dtype), self.strip.row(lane)
        value = self.strip.loaded(fly, scratch, place, lane)
        if (factors := self.factors) is not None:
            re, im = (Load(factors, (place, row, const(k))) for k in range(2))
            value = fly.multiply(value, (re, im))
        at = self.strip.outer, place, row
        stores = [Store(self.rows.out, (*at, const(k)), v) for k, v in enumerate(value)]
        return self.strip.there(lane, lets(fly.names, seq(*stores)), guard)
