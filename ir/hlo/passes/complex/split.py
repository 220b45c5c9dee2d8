"""``split_complex``: complex arrays become pairs of real ones, and no operation stays complex.

Only parameters and results of the entry, and operands and results of library calls (``fft``,
``cholesky``, ``triangular-solve``, ``custom-call``), stay complex; there ``real`` and ``imag``
split a value and ``complex`` joins it. Everywhere else a complex array is two arrays: tuples, loop
states and operands of branches contain a tuple of two, and computations of scalars (reducers,
comparators) take and return the two parts one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from ...nodes import Computation, HloModule, Instruction, TupleShape
from ...ops.definition import ComplexPolicy, Role
from ...ops.registry import definition
from ...rewrite import assemble, called, parameter, relink, with_entry, with_operands
from . import elements, moves, sums
from .values import (
    Parts,
    Value,
    flat_shapes,
    flatten,
    has_complex,
    join,
    make_tuple,
    pack,
    packed_shape,
    split,
    unflatten,
    unpack,
)

Operands: TypeAlias = list[Value]


class Convention(Enum):
    """The calling convention of a computation: how complex values are passed and returned."""

    ENTRY = "entry"  # as complex values
    STATE = "state"  # packed: each as a tuple of two
    SCALARS = "scalars"  # the parts one after the other
    SORT = "sort"  # for each operand of a sort both real parts, then both imaginary parts


RULES = {**elements.RULES, **moves.RULES}
"""The rule of each operation that has one of its own."""


def split_complex(module: HloModule) -> HloModule:
    """``add(c64 a, c64 b)``  ->  ``add(real(a), real(b))`` and ``add(imag(a), imag(b))``"""
    splitter = _Splitter()
    entry = splitter.computation(module.entry, Convention.ENTRY)
    return module if entry is module.entry else with_entry(module, entry)


@dataclass
class _Splitter:
    """Rewrites computations, each once for every convention by which it is called."""

    done: dict[tuple[Computation, Convention], Computation] = field(default_factory=dict)
    known: dict[Computation, bool] = field(default_factory=dict)

    def uses_complex(self, c: Computation) -> bool:
        """True if anything in a computation, or in its callees, is complex."""
        if c not in self.known:
            self.known[c] = any(
                has_complex(i.shape)
                or definition(i.opcode).role is Role.PARTS
                or any(map(self.uses_complex, called(i)))
                for i in c.instructions
            )
        return self.known[c]

    def computation(self, c: Computation, convention: Convention) -> Computation:
        """Return a computation without complex values that is called by this convention."""
        if not self.uses_complex(c):
            return c
        if (c, convention) not in self.done:
            self.done[c, convention] = self._rewrite(c, convention)
        return self.done[c, convention]

    def _rewrite(self, c: Computation, convention: Convention) -> Computation:
        parameters, bound = _parameters(c, convention)
        root = self.body(c, bound)
        match convention:
            case Convention.ENTRY:
                return assemble(c.name, parameters, join(root))
            case Convention.STATE:
                return assemble(c.name, parameters, pack(root))
            case _:
                parts = tuple(flatten([root]))
                many = len(parts) > 1 or isinstance(c.root.shape, TupleShape)
                return assemble(c.name, parameters, make_tuple(parts) if many else parts[0])

    def body(self, c: Computation, bound: Mapping[Instruction, Value]) -> Value:
        """Return the value of a computation's root, given those of its parameters."""
        values: dict[Instruction, Value] = dict(bound)
        for i in c.instructions:
            if i not in values:
                values[i] = self.instruction(i, [values[o] for o in i.operands])
        return values[c.root]

    def instruction(self, i: Instruction, operands: Operands) -> Value:
        """Return the value of one instruction, given those of its operands."""
        of = definition(i.opcode)
        if of.complex is ComplexPolicy.CONTROL:
            return self._control(i, operands)
        if of.complex is ComplexPolicy.PASSED:
            return _structural(i, operands)
        if of.role is Role.PARTS:
            return elements.join_or_split(i, operands)
        involved = has_complex(i.shape) or any(has_complex(o.shape) for o in i.operands)
        convention = Convention.SORT if i.opcode == "sort" else Convention.SCALARS
        if involved and of.complex is ComplexPolicy.COMBINED:
            return sums.combined(i, operands, lambda c: self.computation(c, convention))
        if not of.is_library:  # the host computes on complex numbers
            i = relink(i, {c: self.computation(c, convention) for c in called(i)})
        if not involved:
            return with_operands(i, tuple(map(join, operands)))
        match of.complex:
            case ComplexPolicy.SEPARATE:
                return moves.both(i, operands)
            case ComplexPolicy.PRODUCT:
                return sums.product(i, operands)
            case ComplexPolicy.FORMULA:
                return RULES[i.opcode](i, operands)
            case _:
                return split(with_operands(i, tuple(map(join, operands))))

    def _control(self, i: Instruction, operands: Operands) -> Value:
        """Rewrite loops, branches and calls to take and return packed values."""
        new = {c: self.computation(c, Convention.STATE) for c in called(i)}
        linked = relink(i, new)
        packed = with_operands(linked, tuple(map(pack, operands)))
        if not has_complex(i.shape):
            return packed
        return unpack(replace(packed, shape=packed_shape(i.shape)), i.shape)


def _parameters(
    c: Computation, convention: Convention
) -> tuple[list[Instruction], dict[Instruction, Value]]:
    """Return a computation's new parameters in order, and the values of its old ones."""
    if convention is Convention.ENTRY:
        return list(c.parameters), {p: split(p) for p in c.parameters}
    if convention is Convention.STATE:
        new = [_packed_parameter(p) for p in c.parameters]
        return new, {o: unpack(p, o.shape) for o, p in zip(c.parameters, new, strict=True)}
    spots = _spots(c, convention)
    made: dict[int, Instruction] = {}
    bound: dict[Instruction, Value] = {}
    for p in c.parameters:
        parts = [_numbered(p, next(spots[p]), shape) for shape in flat_shapes(p.shape)]
        made |= {int(x.attrs["number"]): x for x in parts}
        bound[p] = unflatten(iter(parts), p.shape)
    return [made[n] for n in range(len(made))], bound


def _packed_parameter(p: Instruction) -> Instruction:
    shape = packed_shape(p.shape)
    return p if shape is p.shape else replace(p, shape=shape)


def _numbered(p: Instruction, number: int, shape: object) -> Instruction:
    if p.attrs["number"] == number and p.shape == shape:
        return p
    return parameter(number, flat_shapes(p.shape)[0], p.name)


def _spots(c: Computation, convention: Convention) -> dict[Instruction, Iterator[int]]:
    """Return the numbers of the parameters that each old one becomes."""
    found: dict[Instruction, list[int]] = {p: [] for p in c.parameters}
    count = 0
    # A comparator's parameters come in pairs: both real parts precede both imaginary ones.
    step = 2 if convention is Convention.SORT else 1
    for n in range(0, len(c.parameters), step):
        pair = c.parameters[n : n + step]
        for _ in flat_shapes(pair[0].shape):
            for p in pair:
                found[p].append(count)
                count += 1
    return {p: iter(numbers) for p, numbers in found.items()}


def _structural(i: Instruction, operands: Operands) -> Value:
    """Rewrite tuples and operations that return an operand unchanged."""
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
    """Make every array of a value depend on ``waited``, by ``add-dependency``."""
    match value:
        case Instruction():
            return with_operands(replace(i, shape=value.shape), (value, waited))
        case Parts(re=re, im=im):
            return Parts(*(with_operands(replace(i, shape=x.shape), (x, waited)) for x in (re, im)))
        case parts:
            return tuple(_after(i, part, waited) for part in parts)


def _on_arrays(i: Instruction, operands: Operands) -> Instruction:
    kept = tuple(o for o in operands if isinstance(o, Instruction))
    return with_operands(i, kept)
