"""Complex arrays as pairs of real ones: afterwards no operation computes on a complex value.

What is left complex are parameters and results of the entry and what library calls take and give
(``fft``, ``cholesky``, ``triangular-solve``, ``custom-call``); there ``real`` and ``imag`` take a
value apart and ``complex`` puts it together. Everywhere else a complex array is two arrays: tuples,
states of loops and operands of branches carry a tuple of two, and computations of scalars
(reducers, comparators) take and return the two parts one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from ...nodes import Computation, HloModule, Instruction, TupleShape
from ...rewrite import assemble, called, parameter, relink, with_entry, with_operands
from . import elements as complex_elements
from . import moves as complex_moves
from . import sums as complex_sums
from .values import (
    Pair,
    Value,
    flat,
    flat_shapes,
    gathered,
    grouped,
    has_complex,
    join,
    pack,
    packed_shape,
    take_apart,
    unpack,
)

Operands: TypeAlias = list[Value]


class Role(Enum):
    """Who calls a computation: that decides how complex values enter and leave it."""

    ENTRY = "entry"  # as they are
    STATE = "state"  # packed, a tuple of two for each
    SCALARS = "scalars"  # the parts one after the other
    SORT = "sort"  # the same for pairs of elements to be compared: all of the first part first


CONTROL = frozenset({"while", "conditional", "call", "fusion"})
SAME = frozenset({"opt-barrier", "add-dependency", "domain"})
FORMS = ("real", "imag", "complex")


def split_complex(module: HloModule) -> HloModule:
    """``add(c64 a, c64 b)``  ->  ``add(real(a), real(b))`` and ``add(imag(a), imag(b))``"""
    splitter = _Splitter()
    entry = splitter.computation(module.entry, Role.ENTRY)
    return module if entry is module.entry else with_entry(module, entry)


@dataclass
class _Splitter:
    """What has been rewritten; a computation may have callers of several roles."""

    done: dict[tuple[Computation, Role], Computation] = field(default_factory=dict)
    known: dict[Computation, bool] = field(default_factory=dict)

    def touched(self, c: Computation) -> bool:
        """Whether anything in a computation, or in what it calls, is complex."""
        if c not in self.known:
            self.known[c] = any(
                has_complex(i.shape) or i.opcode in FORMS or any(map(self.touched, called(i)))
                for i in c.instructions
            )
        return self.known[c]

    def computation(self, c: Computation, role: Role) -> Computation:
        """A computation without complex values, as callers of ``role`` call it."""
        if not self.touched(c):
            return c
        if (c, role) not in self.done:
            self.done[c, role] = self._rewrite(c, role)
        return self.done[c, role]

    def _rewrite(self, c: Computation, role: Role) -> Computation:
        parameters, bound = _parameters(c, role)
        root = self.body(c, bound)
        match role:
            case Role.ENTRY:
                return assemble(c.name, parameters, join(root))
            case Role.STATE:
                return assemble(c.name, parameters, pack(root))
            case _:
                parts = tuple(flat([root]))
                many = len(parts) > 1 or isinstance(c.root.shape, TupleShape)
                return assemble(c.name, parameters, gathered(parts) if many else parts[0])

    def body(self, c: Computation, bound: Mapping[Instruction, Value]) -> Value:
        """The value of a computation's root, given those of its parameters."""
        values: dict[Instruction, Value] = dict(bound)
        for i in c.instructions:
            if i not in values:
                values[i] = self.instruction(i, [values[o] for o in i.operands])
        return values[c.root]

    def instruction(self, i: Instruction, operands: Operands) -> Value:
        """The value of one instruction, given those of its operands."""
        if i.opcode in CONTROL:
            return self._control(i, operands)
        if i.opcode in ("tuple", "get-tuple-element") or i.opcode in SAME:
            return _plumbing(i, operands)
        if i.opcode in FORMS:
            return complex_elements.form(i, operands)
        involved = has_complex(i.shape) or any(has_complex(o.shape) for o in i.operands)
        role = Role.SORT if i.opcode == "sort" else Role.SCALARS
        if (rule := complex_sums.RULES.get(i.opcode)) is not None and involved:
            return rule(i, operands, lambda c: self.computation(c, role))
        i = relink(i, {c: self.computation(c, role) for c in called(i)})
        if not involved:
            return with_operands(i, tuple(map(join, operands)))
        for rules in (complex_elements.RULES, complex_moves.RULES):
            if (local := rules.get(i.opcode)) is not None:
                return local(i, operands)
        return take_apart(with_operands(i, tuple(map(join, operands))))

    def _control(self, i: Instruction, operands: Operands) -> Value:
        """Loops, branches and calls, on packed values."""
        new = {c: self.computation(c, Role.STATE) for c in called(i)}
        linked = relink(i, new)
        packed = with_operands(linked, tuple(map(pack, operands)))
        if not has_complex(i.shape):
            return packed
        return unpack(replace(packed, shape=packed_shape(i.shape)), i.shape)


def _parameters(c: Computation, role: Role) -> tuple[list[Instruction], dict[Instruction, Value]]:
    """A computation's new parameters in order, and the values of its old ones."""
    if role is Role.ENTRY:
        return list(c.parameters), {p: take_apart(p) for p in c.parameters}
    if role is Role.STATE:
        new = [_packed_parameter(p) for p in c.parameters]
        return new, {o: unpack(p, o.shape) for o, p in zip(c.parameters, new, strict=True)}
    spots = _spots(c, role)
    made: dict[int, Instruction] = {}
    bound: dict[Instruction, Value] = {}
    for p in c.parameters:
        own = [_numbered(p, next(spots[p]), shape) for shape in flat_shapes(p.shape)]
        made |= {int(x.attrs["number"]): x for x in own}
        bound[p] = grouped(iter(own), p.shape)
    return [made[n] for n in range(len(made))], bound


def _packed_parameter(p: Instruction) -> Instruction:
    shape = packed_shape(p.shape)
    return p if shape is p.shape else replace(p, shape=shape)


def _numbered(p: Instruction, number: int, shape: object) -> Instruction:
    if p.attrs["number"] == number and p.shape == shape:
        return p
    return parameter(number, flat_shapes(p.shape)[0], p.name)


def _spots(c: Computation, role: Role) -> dict[Instruction, Iterator[int]]:
    """The numbers of the parameters that each old one becomes."""
    found: dict[Instruction, list[int]] = {p: [] for p in c.parameters}
    count = 0
    # A comparator takes its parameters two by two: both first parts stand before the second ones.
    step = 2 if role is Role.SORT else 1
    for n in range(0, len(c.parameters), step):
        pair = c.parameters[n : n + step]
        for _ in flat_shapes(pair[0].shape):
            for p in pair:
                found[p].append(count)
                count += 1
    return {p: iter(numbers) for p, numbers in found.items()}


def _plumbing(i: Instruction, operands: Operands) -> Value:
    """Tuples and what hands values on."""
    match i.opcode:
        case "tuple":
            return tuple(operands) if has_complex(i.shape) else _on_arrays(i, operands)
        case "get-tuple-element":
            whole = operands[0]
            return whole[i.attrs["index"]] if isinstance(whole, tuple) else _on_arrays(i, operands)
        case "add-dependency":
            return _after(i, operands[0], pack(operands[1]))
        case _ if has_complex(i.shape):
            rest = tuple(map(pack, operands[1:]))
            packed = replace(i, shape=packed_shape(i.shape), operands=(pack(operands[0]), *rest))
            return unpack(packed, i.shape)
        case _:
            return with_operands(i, tuple(map(pack, operands)))


def _after(i: Instruction, value: Value, waited: Instruction) -> Value:
    """Every array of a value once more, to be had after something else."""
    match value:
        case Instruction():
            return with_operands(replace(i, shape=value.shape), (value, waited))
        case Pair(re=re, im=im):
            return Pair(*(with_operands(replace(i, shape=x.shape), (x, waited)) for x in (re, im)))
        case parts:
            return tuple(_after(i, part, waited) for part in parts)


def _on_arrays(i: Instruction, operands: Operands) -> Instruction:
    kept = tuple(o for o in operands if isinstance(o, Instruction))
    return with_operands(i, kept)
