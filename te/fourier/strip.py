"""A strip of rows, of which each is a lane: loops over them, and ways to memory and back.

Scratch has numbers 2 p and 2 p + 1 for the parts of the complex number at place p, each of them a
vector over the lanes. Rows that lie along memory are transposed on the way, in squares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ...ir.dtypes import DType
from ...ir.loop.build import add, compare, const, floordiv, floormod, minimum, mul
from ...ir.loop.nodes import Buffer, Expr, For, If, Kind, Load, Stmt, Store, Var
from ...ir.loop.visit import seq
from .butterflies import Butterfly, Complex
from .rows import Element, Rows

SQUARES = (16, 8, 4)  # numbers that are transposed at a time, where code does so in registers
Move: TypeAlias = Callable[[Expr, Expr, Expr], Stmt]
"""Moves the number of a scratch buffer, which is that of a row, in a lane."""


class Names(Protocol):
    """Makes the loops and buffers of the function under construction."""

    def loop(self, extent: int) -> Var:
        """Return the variable of a new loop below ``extent``."""

    def alloc(self, name: str, shape: Sequence[int], dtype: DType) -> Buffer:
        """Return a new intermediate buffer."""


@dataclass(frozen=True, slots=True)
class Strip:
    """Rows ``number * lanes + lane`` of the outer index."""

    draft: Names
    rows: Rows
    outer: Expr
    number: Expr

    def row(self, lane: Expr) -> Expr:
        """Return the row of a lane, which may be behind the last."""
        return add(mul(self.number, self.rows.lanes), lane)

    def nearest(self, lane: Expr) -> Expr:
        """Return the row of a lane, or the last if there is none."""
        return minimum(self.row(lane), self.rows.count - 1) if self.rows.ragged else self.row(lane)

    def each(self, count: int, body: Callable[[Expr], Stmt]) -> Stmt:
        """Return a loop, or its only turn."""
        if count == 1:
            return body(const(0))
        i = self.draft.loop(count)
        return For(i, const(count), body(i)) if count else seq()

    def lanes(self, body: Callable[[Expr], Stmt], kind: Kind = Kind.VECTOR) -> Stmt:
        """Return a loop over the lanes."""
        lane = self.draft.loop(self.rows.lanes)
        return For(lane, const(self.rows.lanes), body(lane), kind)

    def guarded(self, body: Callable[[bool], Stmt]) -> Stmt:
        """Return ``body(False)`` for whole strips and ``body(True)`` for one with fewer rows."""
        rows = self.rows
        if not rows.ragged:
            return body(False)
        whole = compare("lt", self.number, const(rows.count // rows.lanes))
        return If(whole, body(False), body(True))

    def there(self, lane: Expr, s: Stmt, guard: bool) -> Stmt:
        """Return a statement for lanes that have a row."""
        return If(compare("lt", self.row(lane), const(self.rows.count)), s) if guard else s

    def loaded(self, fly: Butterfly, scratch: Buffer, place: Expr, lane: Expr) -> Complex:
        """Return the number at a place of scratch."""
        re, im = (Load(scratch, (add(mul(place, 2), k), lane)) for k in range(2))
        return fly.named(re), fly.named(im)

    def stored(self, scratch: Buffer, place: Expr, lane: Expr, value: Complex) -> Stmt:
        """Return the stores of a number to a place of scratch."""
        places = [(add(mul(place, 2), k), lane) for k in range(2)]
        return seq(*(Store(scratch, at, v) for at, v in zip(places, value, strict=True)))

    def fetched(self, scratch: Buffer, count: int, step: int = 1) -> Stmt:
        """Read ``count`` numbers of the rows, both parts of complex ones.

        Number n goes to ``step * n``. Lanes without a row take the last row's.
        """
        source = self.rows.source
        if isinstance(source, Buffer):

            def move(place: Expr, number: Expr, lane: Expr) -> Stmt:
                found = Load(source, self._index(source, self.nearest(lane), number))
                return Store(scratch, (place, lane), found)

            return self._moved(count, step, move, inward=True)
        parts = len(source)
        moves = (self._of_part(scratch, element, k) for k, element in enumerate(source))
        return seq(*(self._moved(count // parts, step * parts, m, inward=True) for m in moves))

    def _of_part(self, scratch: Buffer, element: Element, part: int) -> Move:
        def move(place: Expr, number: Expr, lane: Expr) -> Stmt:
            found = element((self.outer, self.nearest(lane), number))
            return Store(scratch, (add(place, part), lane), found)

        return move

    def written(self, scratch: Buffer, count: int, guard: bool, step: int = 1) -> Stmt:
        """Write numbers of the rows, as ``fetched`` reads them; ``guard``: where there is a row."""
        out = self.rows.out

        def move(place: Expr, number: Expr, lane: Expr) -> Stmt:
            index = self._index(out, self.row(lane), number)
            return self.there(lane, Store(out, index, Load(scratch, (place, lane))), guard)

        return self._moved(count, step, move, inward=False, squares=not guard)

    def _index(self, buffer: Buffer, row: Expr, number: Expr) -> tuple[Expr, ...]:
        if len(buffer.shape) == 3:
            return self.outer, row, number
        return self.outer, row, floordiv(number, 2), floormod(number, 2)

    def _moved(self, count: int, step: int, move: Move, inward: bool, squares: bool = True) -> Stmt:
        parts, start = [], 0
        for size in SQUARES if squares and self.rows.lanes >= SQUARES[-1] else ():
            if turns := (count - start) // size:
                parts.append(self._squares(start, turns, size, step, move, inward))
                start += turns * size
        rest = count - start

        def numbers(lane: Expr) -> Stmt:
            return self.each(rest, lambda n: move(mul(add(n, start), step), add(n, start), lane))

        return seq(*parts, self.lanes(numbers, Kind.SERIAL) if rest else seq())

    def _squares(
        self, start: int, turns: int, size: int, step: int, move: Move, inward: bool
    ) -> Stmt:
        """Move squares: vectors along memory on its side, over the lanes on that of scratch."""
        near, lane = self.draft.loop(size), self.draft.loop(self.rows.lanes)
        extents = {near: size, lane: self.rows.lanes}
        outer, inner = (lane, near) if inward else (near, lane)

        def turn(t: Expr) -> Stmt:
            number = add(add(mul(t, size), near), start)
            done = move(mul(number, step), number, lane)
            done = For(inner, const(extents[inner]), done, Kind.VECTOR)
            return For(outer, const(extents[outer]), done, Kind.UNROLLED)

        return self.each(turns, turn)
