"""Tuples: elements of ``tuple`` are forwarded, and tuple results are used by element."""

from __future__ import annotations

from ...nodes import Computation, HloModule, Instruction, TupleShape
from ...rewrite import assemble, make, map_computations, rebuild, with_operands


def simplify_tuples(module: HloModule) -> HloModule:
    """``get-tuple-element(tuple(a, b)), index=1``  ->  ``b``"""
    return map_computations(module, lambda c: rebuild(c, _element))


def _element(i: Instruction) -> Instruction | None:
    if i.opcode != "get-tuple-element" or i.operands[0].opcode != "tuple":
        return None
    index: int = i.attrs["index"]
    return i.operands[0].operands[index]


def explicit_tuples(module: HloModule) -> HloModule:
    """``ROOT sort(..)``  ->  ``ROOT tuple(gte(sort, 0), gte(sort, 1))``

    Afterwards only ``get-tuple-element`` uses a tuple that an instruction computes, so that each
    element is a value with a buffer of its own.
    """
    return map_computations(module, _explicit)


def _explicit(computation: Computation) -> Computation:
    whole: dict[Instruction, Instruction] = {}

    def rule(i: Instruction) -> Instruction | None:
        if i.opcode == "get-tuple-element":
            return None
        operands = tuple(_elements(o, whole) for o in i.operands)
        moved = with_operands(i, operands)
        return None if moved is i else moved

    new = rebuild(computation, rule)
    root = _elements(new.root, {})
    if root is new.root:
        return new
    if new.root in new.parameters:  # which stays one
        return assemble(new.name, new.parameters, root)
    return rebuild(new, lambda i: root if i is new.root else None)


def _elements(i: Instruction, known: dict[Instruction, Instruction]) -> Instruction:
    """Return ``i`` if it is an array, a ``tuple`` or empty, else a ``tuple`` of its elements."""
    if not isinstance(i.shape, TupleShape) or i.opcode == "tuple" or not i.shape.elements:
        return i
    if i not in known:
        parts = tuple(
            _elements(make("get-tuple-element", shape, (i,), name=i.name, index=n), known)
            for n, shape in enumerate(i.shape.elements)
        )
        known[i] = make("tuple", i.shape, parts)
    return known[i]
