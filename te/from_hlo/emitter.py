"""Elements of HLO instructions, as expressions of their index.

``ElementEmitter.element`` follows the operands down to parameters and to what has a buffer already.
Everything it builds goes through one ``Interner``, and it remembers each (instruction, index), so a
value used along many paths is built once and the work is linear in the graph it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...ir.dtypes import index as index_type
from ...ir.dtypes import u64
from ...ir.hlo.nodes import Computation, Instruction
from ...ir.loop import affine
from ...ir.loop.build import (
    TRUE,
    add,
    as_expr,
    both,
    cast,
    compare,
    const,
    floordiv,
    floormod,
    maximum,
    minimum,
    op,
)
from ...ir.loop.nodes import Buffer, Const, Expr, Load, Var
from .. import blocks
from ..blocks import Axis
from ..sharing import Interner

_FAR = 1 << 62  # beyond any array

Index: TypeAlias = tuple[Expr, ...]
Rule: TypeAlias = "Callable[[ElementEmitter, Instruction, Index], Expr]"
Leaf: TypeAlias = tuple[Instruction, int]


def leaf(instruction: Instruction, element: int = 0) -> Leaf:
    """Return the instruction that makes a value, and which element of its tuple the value is."""
    while True:
        match instruction.opcode:
            case "get-tuple-element":
                element = instruction.attrs["index"]
                instruction = instruction.operands[0]
            case "tuple":
                instruction, element = instruction.operands[element], 0
            case "opt-barrier":
                instruction = instruction.operands[0]
            case _:
                return instruction, element


class ElementEmitter:
    """Expressions for the elements of one computation's instructions.

    ``rule_of`` an instruction says what an element is. ``buffers`` hold what is in memory, by leaf;
    a buffer may be wider than the value (an f32 accumulator of a bf16 result).
    """

    def __init__(
        self, computation: Computation, rule_of: Callable[[Instruction], Rule | None]
    ) -> None:
        self.computation = computation
        self.buffers: dict[Leaf, Buffer] = {}
        self._rule_of = rule_of
        self._pool = Interner()
        self._memo: dict[tuple[int, tuple[int, ...]], Expr] = {}
        self._ranges: dict[Var, affine.Interval] = {}

    def element(self, instruction: Instruction, index: Sequence[Expr | int]) -> Expr:
        """Return the element at ``index``: a load from a buffer, else how to compute it."""
        source, n = leaf(instruction)
        buffer = self.buffers.get((source, n))
        if buffer is None:
            return self.compute(source, index)
        at = tuple(self._pool.intern(as_expr(i)) for i in index)
        return self._pool.intern(cast(Load(buffer, at), instruction.array.dtype))

    def compute(self, instruction: Instruction, index: Sequence[Expr | int]) -> Expr:
        """Return the element at ``index`` computed from the operands, buffer or not."""
        at = tuple(self._pool.intern(as_expr(i)) for i in index)
        key = (id(instruction), tuple(map(id, at)))
        if (known := self._memo.get(key)) is None:
            rule = self._rule_of(instruction)
            assert rule is not None, f"{instruction.opcode} has no loops"
            known = self._memo[key] = self._pool.intern(rule(self, instruction, at))
        return known

    def scalar(self, instruction: Instruction) -> Expr:
        """Return the value of an operand with one element."""
        return self.element(instruction, (0,) * instruction.array.rank)

    def spatial(self, extents: Sequence[int], prefix: str = "i") -> tuple[Axis, ...]:
        """Spatial axes whose range is known from here on."""
        return self._known(blocks.spatial(extents, prefix))

    def reducing(self, extents: Sequence[int], prefix: str = "k") -> tuple[Axis, ...]:
        """Reduce axes whose range is known from here on."""
        return self._known(blocks.reducing(extents, prefix))

    def _known(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        self._ranges.update({a.var: (0, max(a.extent - 1, 0)) for a in axes})
        return axes

    def inside(self, e: Expr | int, extent: int) -> Expr | None:
        """Return the condition ``0 <= e < extent``; None where it always holds."""
        low, high = affine.bounds(as_expr(e), self._ranges)
        below = None if low >= 0 else compare("ge", e, 0)
        above = None if high < extent else compare("lt", e, extent)
        return both(below, above)

    def clamped(self, e: Expr | int, last: int) -> Expr:
        """Return ``min(max(e, 0), last)``, without what always holds."""
        e, last = as_expr(e), max(last, 0)
        low, high = affine.bounds(e, self._ranges)
        e = e if low >= 0 else maximum(e, 0)
        return e if high <= last else minimum(e, last)

    def unpadded(self, e: Expr, low: int, step: int, extent: int) -> tuple[Expr, Expr | None]:
        """Return the place in a dimension of place ``e`` of its padded copy, and whether there is
        one.

        The ``extent`` elements come after ``low`` places of padding, ``step`` apart. Where there is
        none, the place is that of another element; None if there always is one.
        """
        place: Expr = add(e, -low)
        rest: Expr = const(0)
        if step != 1:
            place, rest = self.divided(place, step)
        there = both(compare("eq", rest, 0), self.inside(place, extent))
        return self.clamped(place, extent - 1), there

    def divided(self, e: Expr, by: int) -> tuple[Expr, Expr]:
        """Return ``e // by`` and ``e % by``; exact where the multiples of ``by`` separate."""
        form = affine.linear(e)
        high = {a: c // by for a, c in form.terms.items() if c % by == 0}
        low = {a: c for a, c in form.terms.items() if c % by}
        rest = affine.Linear(low, form.constant % by)
        least, most = affine.bounds_of(rest, self._ranges)
        if least >= 0 and most < by:
            whole = affine.Linear(high, form.constant // by)
            return affine.to_expr(whole), affine.to_expr(rest)
        return floordiv(e, by), floormod(e, by)


def as_index(e: Expr) -> Expr:
    """Return an integer value as an index; a literal stays one. No u64 becomes negative."""
    if isinstance(e, Const) and e.dtype.is_int:
        return const(min(int(e.value.real), _FAR))
    if e.dtype == u64:
        e = op("minimum", e, const(_FAR, u64))
    return cast(e, index_type)


def always(condition: Expr | None) -> Expr:
    """Return a condition that may be absent (always true) as an expression."""
    return TRUE if condition is None else condition
