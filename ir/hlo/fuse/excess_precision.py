"""Excess precision: narrow floats stay f32 between the operations of one fused group.

A float of fewer than 32 bits is what an array is stored as. Inside of a group nothing is stored, so
values need not be rounded after each operation; XLA calls this ``xla_allow_excess_precision``. The
rewritten group says in HLO what is computed, conversions included, so that the interpreter gives
its exact meaning. ``docs/decisions/excess-precision.md`` has the rules and the reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import prod

from ...conversion import convert as converted
from ...dtypes import DType, f32, pred, to_numpy
from ..nodes import AnyShape, Computation, Instruction, Shape, TupleShape
from ..ops.definition import Pattern, Role, Rounding
from ..ops.registry import definition
from ..patterns import build
from ..patterns.match import nonunit, splat
from ..rewrite import assemble, make, with_attrs, with_operands
from .groups import Fusion, Group
from .kinds import dims
from .rows import ROW_BYTES

IDENTITIES = frozenset({"EQ", "NE"})
QUANTIZED_BITS = 8
"""A conversion to a float of this many bits or fewer, if the model asks for it, is carried out."""


def keep_wide(fusion: Fusion) -> Fusion:
    """Return every group with f32 between its parameters and results; the same object if none
    changes.

    What several groups each compute for themselves is rounded in all of them, and computed from
    rounded operands, so that it has one value. A result that is read again where it has left the
    cache is read as it was stored.
    """
    homes = Counter(i for g in fusion.groups for i in g.members)
    repeated = {i for i, count in homes.items() if count > 1}
    groups = tuple(_wide_group(g, repeated) for g in fusion.groups)
    if all(new is old for new, old in zip(groups, fusion.groups, strict=True)):
        return fusion
    return replace(fusion, groups=groups)


def _wide_group(g: Group, repeated: set[Instruction]) -> Group:
    rounded = (i.name for i in g.members if i in repeated)
    stored = (o.name for o in g.outputs if not _stays_near(g, o))
    wide = widened(g.computation, rounded, stored)
    return g if wide is g.computation else replace(g, computation=wide)


def _stays_near(g: Group, output: Instruction) -> bool:
    """True if a result that a group reads again is still in cache: one of rows, or of few bytes."""
    reduces = [i for i in g.members if definition(i.opcode).pattern is Pattern.REDUCTION]
    rows = [i for i in reduces if nonunit(dims(i.operands[0])) == nonunit(dims(output))]
    return bool(reduces) and all(_has_short_rows(i) for i in rows)


def _has_short_rows(reduce: Instruction) -> bool:
    before = reduce.operands[0].array.dims
    axes = [d for d in reduce.attrs["dimensions"] if before[d] != 1]
    last = max((d for d, extent in enumerate(before) if extent != 1), default=0)
    return last in axes and prod(before[d] for d in axes) * f32.bytes <= ROW_BYTES


def widened(
    computation: Computation, rounded: Iterable[str] = (), stored: Iterable[str] = ()
) -> Computation:
    """``multiply(add(bf16 x, y), z)``  ->  ``convert(multiply(add(f32 x', y'), z'))``

    Parameters and results keep their types. Operations that round and are named in ``rounded``
    stay as they are. Those named in ``stored`` are computed wide, and rounded before they are used.
    The same object comes back where no rounding can be left out.
    """
    return _Widener(computation, frozenset(rounded), frozenset(stored)).computation()


def is_small(i: Instruction) -> bool:
    """True if an instruction is an array of floats of fewer than 32 bits."""
    return isinstance(i.shape, Shape) and _is_small(i.shape.dtype)


def _is_small(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits < f32.bits


def _may_widen(i: Instruction) -> bool:
    """True if an instruction's value, or an element of its tuple, has a form in f32."""
    return _wide_shape(i.shape) != i.shape


def _wide_shape(shape: AnyShape) -> AnyShape:
    match shape:
        case Shape(dtype=dtype) if _is_small(dtype):
            return replace(shape, dtype=f32)
        case TupleShape(elements=elements):
            return TupleShape(tuple(map(_wide_shape, elements)))
        case _:
            return shape


@dataclass
class _Widener:
    """Rewrites one computation.

    ``gains`` are the values that are more precise before they are rounded. ``wide`` and ``narrow``
    are those that a user asks for as f32 and in their own type; ``new`` has the rewritten value by
    (instruction, whether as f32). ``reducer`` says that this is the computation of a reduction: its
    parameters and results become f32 as well, and no comparison rounds, so it stays associative.
    """

    old: Computation
    rounded: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    reducer: bool = False
    gains: set[Instruction] = field(default_factory=set)
    wide: set[Instruction] = field(default_factory=set)
    narrow: set[Instruction] = field(default_factory=set)
    new: dict[tuple[Instruction, bool], Instruction] = field(default_factory=dict)

    def computation(self) -> Computation:
        """Return the rewritten computation."""
        every = self.old.instructions
        for i in every:
            if self.is_gaining(i):
                self.gains.add(i)
        if not self.gains:
            return self.old
        self.ask(self.old.root, self.reducer)
        for i in reversed(every):
            if i in self.wide or i in self.narrow:
                for o, wide in self.demands(i):
                    self.ask(o, wide)
        if not self.wide:
            return self.old
        for p in self.old.parameters:
            self.ask(p, self.reducer)
        for i in every:
            if i in self.wide or i in self.narrow:
                self.make(i)
        parameters = [self.new[p, self.reducer and _may_widen(p)] for p in self.old.parameters]
        root = self.new[self.old.root, self.reducer and _may_widen(self.old.root)]
        return assemble(self.old.name, parameters, root)

    def ask(self, i: Instruction, wide: bool) -> None:
        """Note in which form a value is needed."""
        (self.wide if wide and _may_widen(i) else self.narrow).add(i)

    def is_gaining(self, i: Instruction) -> bool:
        """True if the f32 value of ``i`` may differ from the rounded one."""
        above = any(o in self.gains for o in i.operands)
        match i.opcode:
            case "parameter":
                return self.reducer and is_small(i)
            case _ if i.name in self.stored:
                return False
            case "get-tuple-element":
                return above and is_small(i)
            case _ if _is_reduction(i):
                return _is_reducible(i) and (above or _rounds(i.attrs["to_apply"]))
            case _ if not is_small(i):
                return False
            case _ if (how := definition(i.opcode).rounding) is not Rounding.ROUNDS:
                return above and (how is not Rounding.EXACT or i.name not in self.rounded)
            case _ if i.name in self.rounded:
                return False
            case "convert":
                return not _is_quantization(i) and i.operands[0].array.dtype != pred
            case opcode:
                return definition(opcode).arithmetic or _is_contraction(i)

    def is_wide(self, i: Instruction) -> bool:
        """True if ``i`` is computed as f32, and rounded then where its own type is asked for."""
        asked, above = i in self.wide, any(o in self.gains for o in i.operands)
        match i.opcode:
            case "parameter" | "tuple":
                return asked and self.reducer
            case "get-tuple-element":
                return self.is_wide(i.operands[0])
            case _ if _is_reduction(i):
                return _is_reducible(i) and (asked or above)
            case _ if not is_small(i):
                return False
            case _ if _places(i) or _is_contraction(i):
                return asked and i in self.gains
            case "convert":
                return i in self.gains and (asked or above)
            case opcode:
                op = definition(opcode)
                free = i.name not in self.rounded or op.rounding is Rounding.COMMUTES
                return op.arithmetic and free and (asked or above)

    def demands(self, i: Instruction) -> Iterator[tuple[Instruction, bool]]:
        """Each operand of ``i``, and whether it is taken as f32."""
        wide = self.takes_wide(i)
        return ((o, wide and _may_widen(o)) for o in i.operands)

    def takes_wide(self, i: Instruction) -> bool:
        """True if ``i`` takes its operands as f32."""
        if _is_contraction(i):
            return i.opcode == "dot" and any(map(self.is_computed, i.operands))
        if self.is_wide(i):
            return True
        above = any(o in self.gains for o in i.operands)
        if not above or i.name in self.rounded:
            return False
        match i.opcode:
            case "get-tuple-element":
                return i in self.wide
            case "compare":
                same = len(set(i.operands)) == 1
                return self.reducer or same or i.attrs["direction"] not in IDENTITIES
            case "convert":
                return i.array.dtype != pred
            case _:
                return False

    def is_computed(self, operand: Instruction) -> bool:
        """True if an operand of a product is not in memory, as the weights of an attention are."""
        decoded = operand.opcode == "convert" and operand.operands[0].opcode == "parameter"
        return operand in self.gains and not decoded

    def make(self, i: Instruction) -> None:
        """Put the rewritten forms of ``i`` that are asked for into ``new``."""
        operands = tuple(self.new[d] for d in self.demands(i))
        if self.is_wide(i):
            self.new[i, True] = self.as_wide(i, operands)
            self.new[i, False] = own = self.as_own(i, operands)
            if i.name in self.stored and is_small(i):
                self.new[i, True] = build.convert(own, f32)
            return
        self.new[i, False] = own = self.unchanged(i, operands)
        if i in self.wide:
            value = splat(i)
            self.new[i, True] = (
                build.convert(own, f32)
                if value is None
                else build.full(converted(value, to_numpy(f32)), f32, i.array.dims)
            )

    def unchanged(self, i: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        """``i`` on its operands' new forms."""
        if i.opcode != "convert":
            return with_operands(i, operands)
        (old,), (x,) = i.operands, operands
        if i.array.dtype == f32 and old not in self.gains:
            return self.new.get((old, True), with_operands(i, operands))
        return i if x is old else build.convert(x, i.array.dtype)

    def as_wide(self, i: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        """``i`` computed as f32."""
        if i.opcode == "convert":
            return build.convert(operands[0], f32)
        found = replace(i, shape=_wide_shape(i.shape), operands=operands)
        if _is_reduction(i):
            body = _Widener(i.attrs["to_apply"], reducer=True).computation()
            return with_attrs(found, to_apply=body)
        return found

    def as_own(self, i: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        """Return what was computed as f32, converted to its own type."""
        wide = self.new[i, True]
        if i.opcode == "convert" and operands == i.operands:
            return i  # of another type than f32, which rounds once
        if isinstance(i.shape, Shape):
            return build.convert(wide, i.shape.dtype)
        assert isinstance(i.shape, TupleShape) and isinstance(wide.shape, TupleShape)
        parts = []
        for n, (have, want) in enumerate(zip(wide.shape.elements, i.shape.elements, strict=True)):
            assert isinstance(want, Shape)
            part = make("get-tuple-element", have, (wide,), index=n)
            parts.append(build.convert(part, want.dtype))
        return make("tuple", i.shape, parts)


def _is_reducible(i: Instruction) -> bool:
    """True if a reduction of small floats can be one in f32: a plain body, types that agree."""
    body: Computation = i.attrs["to_apply"]
    shapes = i.shape.elements if isinstance(i.shape, TupleShape) else (i.shape,)
    types = [s.dtype for s in shapes if isinstance(s, Shape)]
    if not any(map(_is_small, types)) or not all(_is_plain(x) for x in body.instructions):
        return False
    given = [o.array.dtype for o in i.operands]
    taken = [p.array.dtype for p in body.parameters]
    return given == taken == types * 2


def _rounds(reducer: Computation) -> bool:
    """True if an operation of a reducer rounds to a small float."""
    exact = (Rounding.COMMUTES, Rounding.EXACT)
    computed = (x for x in reducer.instructions if x.opcode not in ("parameter", "constant"))
    return any(is_small(x) and definition(x.opcode).rounding not in exact for x in computed)


def _is_plain(x: Instruction) -> bool:
    """True if an instruction of a reducer computes on real scalars, or is a name or literal."""
    op = definition(x.opcode)
    if op.structure:
        return x.opcode in ("parameter", "constant", "tuple")
    return op.pattern is Pattern.ELEMENTWISE and op.role is not Role.PARTS


def _is_reduction(i: Instruction) -> bool:
    return definition(i.opcode).pattern in (Pattern.REDUCTION, Pattern.WINDOW)


def _is_contraction(i: Instruction) -> bool:
    return definition(i.opcode).pattern is Pattern.OUT_FUSABLE


def _places(i: Instruction) -> bool:
    return definition(i.opcode).rounding is Rounding.PLACES


def _is_quantization(i: Instruction) -> bool:
    """True if a conversion to a float of few bits is the model's own.

    Arithmetic on such types is done in f32 (``widen_narrow``): a conversion of an operation whose
    operands are conversions of the same type. Any other conversion is there to lose precision.
    """
    dtype = i.array.dtype
    if dtype.bits > QUANTIZED_BITS:
        return False
    x = i.operands[0]
    known = definition(x.opcode).arithmetic or _is_reduction(x) or _is_contraction(x)
    operands = [o for o in x.operands if isinstance(o.shape, Shape) and o.shape.dtype.is_float]
    return not (known and operands and all(_is_of(o, dtype) for o in operands))


def _is_of(x: Instruction, dtype: DType) -> bool:
    """True if every element of ``x`` is a value of a narrower type."""
    value = splat(x)
    if value is not None:
        return bool(converted(converted(value, to_numpy(dtype)), value.dtype) == value)
    while _places(x):
        x = x.operands[0]
    return x.opcode == "convert" and x.operands[0].array.dtype == dtype
