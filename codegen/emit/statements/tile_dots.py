"""Emit products of tiles: loads, products and stores of whole registers.

A register has a shape of its own, and one instruction sets those of all. It takes as long as a
dozen products and clears the registers, so it runs only where the shapes are not those of the nest
before. Terms that fill no register have another shape: they take registers of their own, or where
there are none left they come first, and their sums wait in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ....ir.dtypes import index, s32
from ....ir.loop.nodes import For, Stmt
from ....ir.tile_dots import COLUMNS, GROUPS, ROWS, TILES
from ..expr import Emitter
from ..llvm.core import IRValue, memory_type
from ..llvm.tile_shapes import TileRegisters, TileShape
from .products import StridedMatrix, TermLoop, TileProduct, clears, tile_product


@dataclass(frozen=True, slots=True)
class _Terms:
    """Some groups of terms: from number ``first`` on, ``steps`` times ``groups`` in an instruction.

    ``rest`` is true for those that fill no register and use registers of another shape.
    """

    first: int
    groups: int
    steps: int
    rest: bool = False


def accumulate_tiles(em: Emitter, s: For, before: Stmt | None = None) -> bool:
    """Emit a nest of sums of products as products of tiles; False if it is none.

    Where ``before`` is given, it is what precedes the nest: False unless it sets all the sums to 0.
    Then its stores are not needed.
    """
    product = None
    if em.device is None and em.lanes is None:
        product = tile_product(s, em.target)
    if product is None or (before is not None and not clears(before, product)):
        return False
    whole, rest = divmod(product.groups, GROUPS)
    some, all_of = _Terms(whole * GROUPS, rest, 1, bool(whole)), _Terms(0, GROUPS, whole)
    fresh = before is not None
    shape = TileShape(product.rows, product.columns, GROUPS, rest)
    if whole and rest and shape.registers <= TILES:
        _multiply(em, product, shape, (some, all_of), fresh)
    else:
        for n, terms in enumerate(t for t in (some, all_of) if t.groups and t.steps):
            shape = TileShape(product.rows, product.columns, terms.groups)
            _multiply(em, product, shape, (replace(terms, rest=False),), fresh and not n)
    em.function.forget(product.sums.buffer)
    return True


def end_tiles(em: Emitter) -> None:
    """Emit the release of the registers, so that the system need not save them."""
    if uses_tiles(em):
        em.declare("llvm.x86.tilerelease", "void", [])
        em.function.write("call void @llvm.x86.tilerelease()")


def lose_tiles(em: Emitter) -> None:
    """Record that the registers have no shapes, after a call that has released them."""
    em.function.write(f"store i32 0, ptr {_slots(em).current}, align 4")


def uses_tiles(em: Emitter) -> bool:
    """True if the open function sets shapes."""
    return em.function.tiles is not None and bool(em.function.tiles.shapes)


def _multiply(
    em: Emitter, p: TileProduct, shape: TileShape, parts: Sequence[_Terms], fresh: bool
) -> None:
    """Emit the products of some terms. Sums that are ``fresh`` begin with 0."""
    _configure(em, shape)
    sums = _start(em, p.sums, 0)
    for i, j in shape.tiles:
        at = _tile_of(em, p.sums, sums, i, COLUMNS * j)
        if fresh:
            _call(em, "llvm.x86.tilezero", shape.sums(i, j))
        else:
            _move(em, "llvm.x86.tileloadd64", shape.sums(i, j), p.sums, at)
    for terms in parts:
        a = _start(em, p.left, terms.first * p.dot.depth)
        b = _start(em, p.right, terms.first * p.right.pitch)
        inner = TermLoop(terms.steps, terms.groups * p.dot.depth, terms.groups * p.right.pitch)
        step = partial(_step, em, p, shape, terms.rest)
        _walk(em, p, (*p.around, inner), a, b, step)
    for i, j in shape.tiles:
        at = _tile_of(em, p.sums, sums, i, COLUMNS * j)
        _move(em, "llvm.x86.tilestored64", shape.sums(i, j), p.sums, at)


def _configure(em: Emitter, shape: TileShape) -> None:
    """Emit the setting of the registers' shapes, run only if they have others."""
    function, tiles = em.function, _slots(em)
    current, memory, number = tiles.current, tiles.memory, tiles.number(shape)
    now = function.result(f"load i32, ptr {current}, align 4", s32)
    other = em.compare("ne", now, em.const(number, s32))
    words = ", ".join(f"i8 {n}" for n in shape.configuration())
    em.declare("llvm.x86.ldtilecfg", "void", ["ptr"])
    function.open_arm()
    function.write(f"store <64 x i8> <{words}>, ptr {memory}, align 64")
    function.write(f"call void @llvm.x86.ldtilecfg(ptr {memory})")
    function.write(f"store i32 {number}, ptr {current}, align 4")
    function.branch(other, function.close_arm(), None)


def _slots(em: Emitter) -> TileRegisters:
    """Return the slots of the open function, in which no shape is set at first."""
    function = em.function
    if function.tiles is None:
        slots = function.alloca("i32", 4).text, function.alloca("[64 x i8]", 64).text
        function.tiles = TileRegisters(*slots)
        function.prologue.append(f"  store i32 0, ptr {slots[0]}, align 4")
    return function.tiles


def _walk(
    em: Emitter,
    p: TileProduct,
    loops: Sequence[TermLoop],
    a: IRValue,
    b: IRValue,
    step: Callable[[IRValue, IRValue], None],
) -> None:
    """Emit loops over terms around a step, which gets what a and b begin with in it."""
    if not loops:
        step(a, b)
        return
    first, rest = loops[0], loops[1:]
    if first.trips == 1:
        _walk(em, p, rest, a, b, step)
        return
    counter, name = em.function.open_loop((p.sums.buffer,), True)
    a, b = (
        em.offset(x, em.binary("mul", counter, em.const(n, index)), memory_type(m.buffer.dtype))
        for x, n, m in ((a, first.left, p.left), (b, first.right, p.right))
    )
    _walk(em, p, rest, a, b, step)
    em.function.close_loop(name, "0", str(first.trips), 1)


def _step(
    em: Emitter, p: TileProduct, shape: TileShape, rest: bool, a: IRValue, b: IRValue
) -> None:
    """Emit a product of each tile of a by each of b, from all starts; what is there stays."""
    left = right = -1
    for new_left, new_right in _path(p.starts):
        if new_right != right:
            for j in range(shape.across):
                at = _tile_of(em, p.right, b, 0, new_right + COLUMNS * p.dot.depth * j)
                _move(em, "llvm.x86.tileloadd64", shape.right(j, rest), p.right, at)
        for i in range(shape.down):
            own = shape.left(i, rest)
            if new_left != left:
                at = _tile_of(em, p.left, a, i, new_left)
                _move(em, "llvm.x86.tileloadd64", own, p.left, at)
            for j in range(shape.across):
                _call(em, p.dot.intrinsic, shape.sums(i, j), own, shape.right(j, rest))
        left, right = new_left, new_right


def _path(starts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return starts in an order in which one operand stays from each to the next, if it can."""
    left, found = list(starts[1:]), [starts[0]]
    while left:
        a, b = found[-1]
        near = next((x for x in left if x[0] == a or x[1] == b), left[0])
        left.remove(near)
        found.append(near)
    return found


def _start(em: Emitter, m: StridedMatrix, skipped: int) -> IRValue:
    """Return the address of the element that is ``skipped`` ones after a matrix' first."""
    form = em.form(m.first)
    assert form is not None
    return em.pointer(m.buffer, replace(form, constant=form.constant + skipped))


def _tile_of(em: Emitter, m: StridedMatrix, first: IRValue, i: int, across: int) -> IRValue:
    """Return the address of a tile, a number of tiles down and of elements across."""
    by = ROWS * m.pitch * i + across
    return em.offset(first, em.const(by, index), memory_type(m.buffer.dtype)) if by else first


def _call(em: Emitter, name: str, *registers: int) -> None:
    em.declare(name, "void", ["i8"] * len(registers))
    em.function.write(f"call void @{name}({', '.join(f'i8 {n}' for n in registers)})")


def _move(em: Emitter, name: str, register: int, m: StridedMatrix, at: IRValue) -> None:
    """Emit a load or a store of a tile."""
    em.declare(name, "void", ["i8", "ptr", "i64"])
    apart = m.pitch * m.buffer.dtype.bytes
    em.function.write(f"call void @{name}(i8 {register}, ptr {at.text}, i64 {apart})")
