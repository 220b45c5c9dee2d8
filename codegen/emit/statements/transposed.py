"""Tiles that are stored transposed: lanes far apart in memory, unrolled iterations side by side.

Each iteration's vector would be a scatter. The vectors of up to 16 iterations are transposed in
registers instead, and each lane stores its elements of all of them as one vector. An element may be
a group of narrow ones, which stay neighbors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....ir.dtypes import index
from ....ir.loop.affine import steps
from ....ir.loop.build import as_int
from ....ir.loop.nodes import Buffer, For, Kind, Load, Scope, Stmt, Store, Var
from ....ir.loop.visit import loads_in
from ..access import store_element
from ..expr import Emitter
from ..llvm.core import IRValue, register_type
from ..small_strides import mixed
from .lane_dots import WHOLE, load_groups

FEWEST = 4  # neighbors in memory: fewer are quicker as scatters
MOST = 16  # rows of a square: more of them exceed the registers


@dataclass(frozen=True, slots=True)
class _TransposedTile:
    """``near`` iterations store neighbors in memory, ``lanes`` elements that are far apart.

    ``between`` are the unrolled loops between the two, with their trip counts.
    """

    store: Store
    near: tuple[Var, int]
    between: tuple[tuple[Var, int], ...]
    lanes: tuple[Var, int]


def store_transposed(em: Emitter, s: For) -> bool:
    """Emit an unrolled loop as a transposed tile; False if it is none."""
    tile = _tile(em, s)
    if tile is None:
        return _store_groups(em, s)
    width = _width(em, tile.store.buffer)
    for values in _combinations(tile.between):
        for var, value in values:
            em.env[var] = em.const(value, index)
        for lane in range(0, tile.lanes[1], width):
            for near in range(0, tile.near[1], width):
                _store_square(em, tile, lane, near, width)
    em.function.forget(tile.store.buffer)
    return True


def _tile(em: Emitter, s: For) -> _TransposedTile | None:
    """Return the parts of a nest of unrolled loops around one vectorized store."""
    loops: list[For] = []
    body: Stmt = s
    while isinstance(body, For):
        loops.append(body)
        body = body.body
    if em.device is not None or em.lanes is not None or len(loops) < 2:
        return None
    if not isinstance(body, Store) or any(x.kind is not Kind.UNROLLED for x in loops[:-1]):
        return None
    counts = [as_int(x.extent) for x in loops]
    if loops[-1].kind is not Kind.VECTOR or None in counts:
        return None
    pairs = [(x.var, n) for x, n in zip(loops, counts, strict=True) if n is not None]
    tile = _TransposedTile(body, pairs[0], tuple(pairs[1:-1]), pairs[-1])
    return tile if _is_transposed(em, tile) else None


def _is_transposed(em: Emitter, tile: _TransposedTile) -> bool:
    buffer, (at,) = tile.store.buffer, tile.store.index
    width = _width(em, buffer)
    if buffer.scope is Scope.REGISTER or buffer.dtype.kind == "pred":
        return False
    if tile.near[1] < FEWEST or width < FEWEST or tile.lanes[1] < FEWEST:
        return False
    match steps(at, tile.near[0], tile.lanes[0]):
        case (1, lane) if abs(lane) >= 2:
            pass
        case _:
            return False
    return not any(x.buffer is buffer for x in loads_in(tile.store.value))


def _width(em: Emitter, buffer: Buffer) -> int:
    return min(MOST, em.target.lanes(buffer.dtype))


def _combinations(loops: tuple[tuple[Var, int], ...]) -> Iterator[tuple[tuple[Var, int], ...]]:
    if not loops:
        yield ()
        return
    (var, count), *rest = loops
    for k in range(count):
        for others in _combinations(tuple(rest)):
            yield (var, k), *others


def _store_square(em: Emitter, tile: _TransposedTile, lane: int, near: int, width: int) -> None:
    """Store up to ``width`` x ``width`` elements from iteration ``near`` and lane ``lane`` on."""
    rows = min(width, tile.near[1] - near)
    side = 1 << (rows - 1).bit_length()
    active = min(width, tile.lanes[1] - lane)
    vectors = []
    with em.over(em.lanes_from(tile.lanes[0], em.const(lane, index), width, active)):
        for k in range(rows):
            em.env[tile.near[0]] = em.const(near + k, index)
            vectors.append(em.broadcast(em.value(tile.store.value), width))
    for part in range(0, active, side):
        own = [em.shuffle(v, list(range(part, part + side))) for v in vectors]
        for k, row in enumerate(_transposed(em, own, side)[: active - part]):
            em.env[tile.lanes[0]] = em.const(lane + part + k, index)
            with em.over(em.lanes_from(tile.near[0], em.const(near, index), side, rows)):
                store_element(em, tile.store.buffer, tile.store.index[0], row)


def _transposed(em: Emitter, rows: list[IRValue], side: int) -> list[IRValue]:
    """Return the columns of a square whose last rows may be missing; those elements are any.

    Each step is a perfect shuffle of the rows, of which as many as there are bits in a row's number
    bring an element from place (i, j) to (j, i).
    """
    rows = [*rows, *(rows[-1:] * (side - len(rows)))]
    half = side // 2
    low = [k // 2 + side * (k % 2) for k in range(side)]
    high = [k + half for k in low]
    for _ in range(side.bit_length() - 1):
        pairs = list(zip(rows[:half], rows[half:], strict=True))
        rows = [mixed(em, a, b, order) for a, b in pairs for order in (low, high)]
    return rows


@dataclass(frozen=True, slots=True)
class _GroupedTile:
    """A tile that moves ``depth`` neighbors at a time; ``near`` and ``lanes`` as above."""

    store: Store
    load: Load
    near: tuple[Var, int]
    lanes: tuple[Var, int]
    terms: tuple[Var, int]


def _store_groups(em: Emitter, s: For) -> bool:
    """Emit ``for near, lanes, n: x[near * d + lanes * far + n] = y[lanes * d + ..n]``."""
    tile = _groups(s)
    if tile is None or em.device is not None or em.lanes is not None or not _moves_groups(tile):
        return False
    width = min(MOST, em.target.lanes(WHOLE[tile.terms[1] * tile.store.buffer.dtype.bytes]))
    for lane in range(0, tile.lanes[1], width):
        for near in range(0, tile.near[1], width):
            _square_of_groups(em, tile, lane, near, width)
    em.function.forget(tile.store.buffer)
    return True


def _groups(s: For) -> _GroupedTile | None:
    match s:
        case For(
            kind=Kind.UNROLLED,
            body=For(
                kind=Kind.VECTOR,
                body=For(kind=Kind.SERIAL, body=Store(value=Load() as load) as store) as inner,
            ) as middle,
        ):
            near, lanes, depth = (as_int(x.extent) for x in (s, middle, inner))
            if near and lanes and depth:
                pairs = (s.var, near), (middle.var, lanes), (inner.var, depth)
                return _GroupedTile(store, load, *pairs)
    return None


def _moves_groups(tile: _GroupedTile) -> bool:
    """True if the groups are whole integers that are neighbors where they come from and go to."""
    here, there = tile.store.buffer, tile.load.buffer
    (var, depth), (lane, count) = tile.terms, tile.lanes
    if here.dtype != there.dtype or here is there or depth * here.dtype.bytes not in WHOLE:
        return False
    if here.scope is Scope.REGISTER or here.dtype.kind == "pred":
        return False
    variables = var, tile.near[0], lane
    match steps(tile.store.index[0], *variables), steps(tile.load.index[0], *variables):
        case (1, near, far), (1, _, own) if near == own == depth:
            return min(tile.near[1], count) >= FEWEST and abs(far) > depth
        case _:
            return False


def _square_of_groups(em: Emitter, tile: _GroupedTile, lane: int, near: int, width: int) -> None:
    (var, depth), buffer = tile.terms, tile.store.buffer
    rows, active = min(width, tile.near[1] - near), min(width, tile.lanes[1] - lane)
    side = 1 << (rows - 1).bit_length()
    vectors = []
    em.env[var] = em.const(0, index)
    with em.over(em.lanes_from(tile.lanes[0], em.const(lane, index), width, active)):
        for k in range(rows):
            em.env[tile.near[0]] = em.const(near + k, index)
            form = em.form(tile.load.index[0])
            assert form is not None
            vectors.append(load_groups(em, tile.load.buffer, form, depth, width))
    em.env[tile.near[0]] = em.const(near, index)
    type_ = register_type(buffer.dtype, side * depth)
    for part in range(0, active, side):
        own = [em.shuffle(v, list(range(part, part + side))) for v in vectors]
        for k, row in enumerate(_transposed(em, own, side)[: active - part]):
            em.env[tile.lanes[0]] = em.const(lane + part + k, index)
            text = f"bitcast {row} to {type_}"
            value = em.pure(text, buffer.dtype, side * depth, row.depth)
            with em.over(em.lanes_from(var, em.const(0, index), side * depth, rows * depth)):
                store_element(em, buffer, tile.store.index[0], value)
