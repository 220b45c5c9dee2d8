"""Constants that loops and branches are given, put into the computations that use them.

A product in a loop then sees that its weights are constants, and can take them packed. All copies
of a constant share one array, and executables store equal constants once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from ...nodes import Computation, HloModule, Instruction, TupleShape
from ...patterns.loops import by_element, hands_on
from ...patterns.match import is_static
from ...rewrite import assemble, make, rebuild, users, with_attrs, with_entry

Sunk: TypeAlias = Mapping[int, Instruction]
"""Constants, and what nothing reads inside, by the number of the tuple's element."""


def sink_constants(module: HloModule) -> HloModule:
    """``while(tuple(x, constant))`` that hands the constant on  ->  ``while(tuple(x))``

    Its body and condition have the constant themselves, and what reads it from the result reads it
    from where it came. What a loop hands on unread leaves it too. Branches get their constants
    alike; outer loops come first, so that inner ones see what the outer ones were given.
    """
    return with_entry(module, _inside(module.entry))


def _inside(c: Computation) -> Computation:
    return rebuild(c, _rewrite)


def _rewrite(i: Instruction) -> Instruction | None:
    match i.opcode:
        case "while":
            return _loop(i)
        case "conditional":
            return _conditional(i)
        case "get-tuple-element" if i.operands[0].opcode == "tuple":
            index: int = i.attrs["index"]
            return i.operands[0].operands[index]
        case _:
            return None


def _loop(i: Instruction) -> Instruction | None:
    """Rewrite a loop; its result becomes a tuple of what stayed in it and of the constants."""
    condition, body, start = i.attrs["condition"], i.attrs["body"], i.operands[0]
    sunk = {**_constants(start), **_unread(start, condition, body)}
    if body.root.opcode != "tuple" or not (by_element(condition) and by_element(body)):
        sunk = {}
    sunk = {k: x for k, x in sunk.items() if hands_on(body, k)}
    if len(sunk) == len(start.operands):
        sunk = {}  # the loop runs for ever or not at all
    if not sunk:
        return _recalled(i, condition=_inside(condition), body=_inside(body))
    inner = _given(body, sunk)
    inner = assemble(inner.name, inner.parameters, _kept(inner.root, sunk))
    attrs = {"condition": _inside(_given(condition, sunk)), "body": _inside(inner)}
    state = _kept(start, sunk)
    loop = with_attrs(replace(i, shape=state.shape, operands=(state,)), **attrs)
    kept = iter(
        make("get-tuple-element", s.shape, (loop,), name=i.name, index=n)
        for n, s in enumerate(state.operands)
    )
    results = (sunk[k] if k in sunk else next(kept) for k in range(len(start.operands)))
    return make("tuple", i.shape, results, name=i.name)


def _conditional(i: Instruction) -> Instruction | None:
    """Rewrite the branches that are given constants."""
    listed = "branch_computations" in i.attrs
    names = ("true_computation", "false_computation")
    branches = i.attrs["branch_computations"] if listed else tuple(i.attrs[n] for n in names)
    sunk = [
        _constants(given) if by_element(b) else {}
        for b, given in zip(branches, i.operands[1:], strict=True)
    ]
    new = tuple(
        _inside(_given(b, constants) if constants else b)
        for b, constants in zip(branches, sunk, strict=True)
    )
    operands = (
        _kept(given, constants) if constants else given
        for given, constants in zip(i.operands[1:], sunk, strict=True)
    )
    attrs = {"branch_computations": new} if listed else dict(zip(names, new, strict=True))
    if not any(sunk):
        return _recalled(i, **attrs)
    return with_attrs(replace(i, operands=(i.operands[0], *operands)), **attrs)


def _recalled(i: Instruction, **attrs: Computation | tuple[Computation, ...]) -> Instruction | None:
    """Return ``i`` with other computations; None if they are those that it has."""
    return with_attrs(i, **attrs) if any(i.attrs[n] != c for n, c in attrs.items()) else None


def _constants(given: Instruction) -> Sunk:
    """Return the elements of a ``tuple`` that are constants or broadcasts of one."""
    if given.opcode != "tuple":
        return {}
    return {k: x for k, x in enumerate(given.operands) if _is_constant(x)}


def _is_constant(x: Instruction) -> bool:
    source = x.operands[0] if x.opcode == "broadcast" else x
    return source.opcode == "constant" and is_static(x) and is_static(source)


def _unread(start: Instruction, condition: Computation, body: Computation) -> Sunk:
    """Return the elements of a loop's ``tuple`` that are only handed on, as the same element."""
    if start.opcode != "tuple":
        return {}
    read = {
        u.attrs["index"]
        for c in (condition, body)
        for u, its in users(c).items()
        if u.opcode == "get-tuple-element" and u.operands[0] in c.parameters
        if set(its) != {body.root} or body.root.operands.count(u) > 1
    }
    return {k: x for k, x in enumerate(start.operands) if k not in read}


def _kept(given: Instruction, sunk: Sunk) -> Instruction:
    """Return a ``tuple`` without the elements that sink."""
    operands = tuple(x for k, x in enumerate(given.operands) if k not in sunk)
    return replace(given, shape=TupleShape(tuple(x.shape for x in operands)), operands=operands)


def _given(c: Computation, sunk: Sunk) -> Computation:
    """Return a computation that has the constants, and whose parameter lacks them."""
    (old,) = c.parameters
    assert isinstance(old.shape, TupleShape)
    count = len(old.shape.elements)
    number = {k: n for n, k in enumerate(k for k in range(count) if k not in sunk)}
    new = replace(old, shape=TupleShape(tuple(old.shape.elements[k] for k in number)))
    copies = {k: _copy(x) if _is_constant(x) else new for k, x in sunk.items()}

    def rule(i: Instruction) -> Instruction | None:
        if i is old:
            return new
        if i.opcode != "get-tuple-element" or i.operands[0] is not new:
            return None
        k: int = i.attrs["index"]
        return copies[k] if k in copies else with_attrs(i, index=number[k])

    return rebuild(c, rule)


def _copy(x: Instruction) -> Instruction:
    """Return an instruction of its own for another computation; the array stays the same."""
    return replace(x, operands=tuple(map(_copy, x.operands)))
